//! `tenon batch token`: issues, lists and revokes tokens for a batch server.

use crate::batch_server::tokens::TokenFile;
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
    #[arg(long, value_name = "NAME", requires = "dir")]
    name: Option<String>,
    /// Directory of the token, as its path in the volume; `/` is the whole volume
    #[arg(long, value_name = "PATH", requires = "name")]
    dir: Option<String>,
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
        if let (Some(name), Some(dir)) = (&self.name, &self.dir) {
            println!("{}", file.issue(name, dir, self.expires)?);
            return Ok(());
        }
        if let Some(name) = &self.revoke {
            file.revoke(name)?;
            println!("token {name} is revoked");
            return Ok(());
        }
        for token in file.tokens()? {
            println!("{}  until {}  /{}", token.name, token.expires, token.dir);
        }
        Ok(())
    }
}
