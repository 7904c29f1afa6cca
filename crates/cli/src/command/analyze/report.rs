//! `tenon analyze report`: shows an earlier comparison, as text and as a page.

use super::OutputFlags;
use analyze::compare::{Comparison, table};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show results that `tenon analyze compare --json` wrote; nothing is measured.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// File that `tenon analyze compare --json` wrote
    file: PathBuf,
    /// Write a self-contained HTML page with the figures to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl Report {
    pub(super) fn run(self) -> Result<ExitCode> {
        let path = &self.file;
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let comparison = read(path, &text)?;
        print!("{}", table(&comparison));
        OutputFlags { json: None, html: self.html }.write_html(&comparison)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Parses the comparison in a file's text.
pub(super) fn read(path: &Path, text: &str) -> Result<Comparison> {
    let message = || {
        format!("{} was not written by `tenon analyze compare --json`, or by another version", path.display())
    };
    serde_json::from_str(text).with_context(message)
}
