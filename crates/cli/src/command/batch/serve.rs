//! `tenon batch serve`: serves the batches of a mount to clients with tokens.

use crate::batch_server::BatchServer;
use crate::batch_server::tokens::TokenFile;
use crate::command::flags::LogFlags;
use crate::command::flags::endpoint::TlsFlags;
use crate::endpoint::tls::TlsFiles;
use crate::process;
use crate::process::logging;
use crate::process::signals::StopSignals;
use crate::state::registry::Registry;
use anyhow::Result;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// A mounted volume, or its mount point
    #[arg(value_name = "VOLUME|DIR")]
    of: String,
    /// Address to listen on
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9300")]
    listen: SocketAddr,
    /// File of the tokens that `tenon batch token` has issued
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Serve {
    pub(super) fn run(self) -> Result<()> {
        let log = self.log.start(self.log.absolute_path()?.as_deref())?;
        // A mount that is missing later, for example during its restart, only fails requests.
        Registry::of_user().find(&self.of)?;
        let tokens = TokenFile::new(&self.tokens);
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
            let server = BatchServer::start(self.of, tokens, self.listen, tls).await?;
            println!("{}", server.url());
            stop.wait().await;
            anyhow::Ok(())
        })?;
        process::shut_down_runtime(runtime);
        Ok(())
    }
}
