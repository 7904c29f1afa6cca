//! `tenon batch serve`: serves the batches of a mount to clients with tokens, or verifies those of another server.

use crate::batch_server::BatchServer;
use crate::batch_server::tokens::TokenFile;
use crate::batch_verifier;
use crate::command::batch::target::Access;
use crate::command::flags::LogFlags;
use crate::command::flags::endpoint::TlsFlags;
use crate::endpoint::tls::TlsFiles;
use crate::process;
use crate::process::logging::{self, LogFile};
use crate::process::signals::StopSignals;
use crate::state::registry::Registry;
use anyhow::{Result, bail};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the end of a verifier waits for the verification of a batch.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// A mounted volume, or its mount point
    #[arg(value_name = "VOLUME|DIR", required_unless_present = "primary")]
    of: Option<String>,
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9300")]
    listen: SocketAddr,
    /// File of the tokens that `tenon batch token` has issued
    #[arg(long, value_name = "FILE", required_unless_present = "primary")]
    tokens: Option<PathBuf>,
    /// Verify batches for the batch server with this URL, instead of being one; needs --token with a token of a verifier
    #[arg(long, value_name = "URL", conflicts_with_all = ["of", "listen", "tokens", "tls_cert", "tls_key"])]
    primary: Option<String>,
    /// Directory for the temporary files of a verifier: twice the size of a batch
    #[arg(long, value_name = "DIR", requires = "primary")]
    scratch: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(super) fn run(self, access: &Access) -> Result<()> {
        let log = self.log.start(self.log.absolute_path()?.as_deref())?;
        match (&self.primary, &self.of, &self.tokens) {
            (Some(url), ..) => self.verify(url, access, log),
            (None, Some(of), Some(tokens)) => self.serve(of.clone(), tokens, log),
            _ => bail!("name a mounted volume and the file of its --tokens, or a --primary"),
        }
    }

    /// Verifies batches of another server, until the process is asked to end.
    fn verify(&self, url: &str, access: &Access, log: Option<LogFile>) -> Result<()> {
        let (token, ca_bundle) = access.token_and_certificates()?;
        let scratch = self.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let url = url.trim_end_matches('/').to_owned();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let runtime = process::runtime()?;
        runtime.block_on(async {
            let mut stop = StopSignals::new()?;
            logging::reopen_on_hangup(log)?;
            let flag = Arc::clone(&is_stopping);
            let mut work = tokio::task::spawn_blocking(move || {
                println!("{url}");
                batch_verifier::run(&url, &token, ca_bundle.as_deref(), &scratch, &flag)
            });
            tokio::select! {
                ended = &mut work => return ended?,
                _ = stop.wait() => is_stopping.store(true, Ordering::Relaxed),
            }
            // A verification that takes longer is left to another server, which takes the batch once the lease has ended.
            let _ = tokio::time::timeout(STOP_PATIENCE, work).await;
            anyhow::Ok(())
        })?;
        process::shut_down_runtime(runtime);
        Ok(())
    }

    /// Serves the batches of a mount, until the process is asked to end.
    fn serve(&self, of: String, tokens: &Path, log: Option<LogFile>) -> Result<()> {
        // A mount that is missing later, for example during its restart, only fails requests.
        Registry::of_user().find(&of)?;
        let tokens = TokenFile::new(tokens);
        tokens.tokens()?;
        let tls = self.tls.files().as_ref().map(TlsFiles::load).transpose()?;
        if tls.is_none() && !self.listen.ip().is_loopback() {
            tracing::warn!(
                "{} is served by plain http: others on the network can read tokens; give a certificate with --tls-cert and --tls-key",
                self.listen
            );
        }
        let runtime = process::runtime()?;
        runtime.block_on(async {
            let mut stop = StopSignals::new()?;
            logging::reopen_on_hangup(log)?;
            let server = BatchServer::start(of, tokens, self.listen, tls).await?;
            println!("{}", server.url());
            stop.wait().await;
            anyhow::Ok(())
        })?;
        process::shut_down_runtime(runtime);
        Ok(())
    }
}
