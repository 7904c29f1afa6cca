//! `tenon batch token`: issues, lists and revokes tokens for a batch server.

use crate::batch_server::tokens::{Right, TokenFile};
use crate::command::units;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of the command.
#[derive(Debug, Args)]
pub(super) struct Token {
    /// File of the tokens, which is made if it is missing
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Issue a token with this name, and print it
    #[arg(long, value_name = "NAME", requires = "right")]
    name: Option<String>,
    /// Directory of the token, as its path in the volume; `/` is the whole volume
    #[arg(long, value_name = "PATH", requires = "name", group = "right")]
    dir: Option<String>,
    /// Issue a token for a server that verifies batches (`tenon batch serve --primary`). It is trusted with all names of the volume
    #[arg(long, requires = "name", group = "right")]
    verifier: bool,
    /// Time after which the token expires
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = units::duration)]
    expires: Duration,
    /// Revoke the token with this name
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    revoke: Option<String>,
}

impl Token {
    pub(super) fn run(self) -> Result<()> {
        let file = TokenFile::new(&self.file);
        if let Some(name) = &self.name {
            let right = match self.dir {
                Some(dir) if !self.verifier => Right::Directory(dir),
                _ => Right::Verifier,
            };
            println!("{}", file.issue(name, &right, self.expires)?);
            return Ok(());
        }
        if let Some(name) = &self.revoke {
            file.revoke(name)?;
            println!("token {name} is revoked");
            return Ok(());
        }
        for token in file.tokens()? {
            let right = match token.right() {
                Right::Directory(dir) => format!("/{dir}"),
                Right::Verifier => "verifier".to_owned(),
            };
            println!("{}  until {}  {right}", token.name, token.expires);
        }
        Ok(())
    }
}
