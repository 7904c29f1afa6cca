//! `tenon analyze report`: a comparison that was measured before, as text and as a page.

use super::OutputFlags;
use analyze::compare::{Comparison, table};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what `tenon analyze compare --json` wrote; nothing is measured.
#[derive(Debug, Args)]
pub(super) struct Report {
    /// File that `tenon analyze compare --json` wrote
    file: PathBuf,
    /// Write one page with the figures, which needs nothing else
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

/// A comparison by its text, which is that of a file.
pub(super) fn read(path: &Path, text: &str) -> Result<Comparison> {
    let said = || {
        format!("{} is no file of `tenon analyze compare --json`, or one of another version", path.display())
    };
    serde_json::from_str(text).with_context(said)
}
