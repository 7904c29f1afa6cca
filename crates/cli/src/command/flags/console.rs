//! Flags of the console.

use crate::command::flags::endpoint::TlsFlags;
use crate::serving::console::ConsoleSettings;
use anyhow::{Result, bail};
use clap::Args;
use std::net::SocketAddr;

/// Flags of the console.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Console")]
pub(crate) struct ConsoleFlags {
    /// Serve the console, web pages for a browser, at this address; users sign in with their S3 keys
    #[arg(long, value_name = "ADDR:PORT")]
    console: Option<SocketAddr>,
    /// Allow an address of the console that other machines can reach
    #[arg(long, requires = "console")]
    console_allow_remote: bool,
}

impl ConsoleFlags {
    /// Returns the settings of the console, which uses the endpoint's certificate; `None` without `--console`. Fails if other
    /// machines can reach the address, and `--console-allow-remote` is not given.
    pub(crate) fn settings(&self, tls: &TlsFlags) -> Result<Option<ConsoleSettings>> {
        let Some(address) = self.console else { return Ok(None) };
        if !address.ip().is_loopback() && !self.console_allow_remote {
            bail!(
                "other machines can reach the console at {address}: add --console-allow-remote, and a certificate with --tls-cert and --tls-key, or use a loopback address such as 127.0.0.1:{}",
                address.port()
            );
        }
        Ok(Some(ConsoleSettings { address, tls: tls.files() }))
    }
}
