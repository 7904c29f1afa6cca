//! `tenon doctor`: checks this machine, its mounts and a volume's server, and says what to do.

mod bundle;
mod finding;
mod machine;
mod mounts;
mod server;

use self::finding::Level;
use crate::command::flags::StoreFlags;
use crate::command::output::{Progress, print_line};
use crate::process;
use anyhow::{Context as _, Result};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check this machine, its mounts and, with a volume, the server: what works, and what to do about the rest
///
/// Exit code 0: all checks passed, perhaps with warnings; 1: a check failed.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Volume whose server to check, like s3://bucket
    volume: Option<String>,
    /// Only read from the server; otherwise small objects are written below .tenon/doctor/ and removed
    #[arg(long, requires = "volume")]
    read_only: bool,
    /// Write a support file (tar, compressed by zstd) with the findings, the state of all mounts, the ends of their
    /// logs and facts about this machine, without secrets
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Print one JSON object per finding
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut findings = machine::check();
        findings.extend(mounts::check());
        if let Some(volume) = &self.volume {
            let progress = Progress::start_on_terminal();
            progress.show("checking the server");
            let settings = self.store.settings();
            let checked = server::check(volume, self.read_only, &settings);
            findings.extend(process::runtime()?.block_on(checked));
        }
        for finding in &findings {
            print_line(&if self.json { serde_json::to_string(finding)? } else { finding.to_string() })?;
        }
        if let Some(file) = &self.bundle {
            bundle::write(file, &findings)
                .with_context(|| format!("cannot write the support file {}", file.display()))?;
            eprintln!(
                "tenon: the support file {} is written; look through it before you send it",
                file.display()
            );
        }
        let has_failed = findings.iter().any(|finding| finding.level == Level::Failed);
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
