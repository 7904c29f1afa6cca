//! `tenon upgrade-check`: the versions of the formats of a volume, and what a mount with this build does with them.

mod bucket_formats;
mod finding;
mod formats;
mod state_formats;

use crate::command::flags::StoreFlags;
use crate::command::output::print_line;
use crate::metadata;
use crate::process::{self, VERSION};
use crate::volume::{Volume, embedded};
use anyhow::Result;
use clap::Args;
use finding::{Finding, Verdict};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code if a mount with this build brings data to a newer version.
const EXIT_UPGRADED: u8 = 3;
/// Exit code if this build cannot open the volume.
const EXIT_REFUSED: u8 = 4;

/// Show the formats of a volume, and what an upgrade to this build, or a downgrade, does with them
///
/// Compares the versions in the bucket, the database, the drive and the state directory with those that this build reads. Changes nothing, and
/// may be used while the volume is mounted. Run it with the new program before an upgrade, or with the old one before a downgrade. Exit code 0: this
/// build uses everything as it is; 3: the next mount with this build brings data to a newer version, which earlier builds refuse; 4: this build
/// cannot open the volume; 1: something could not be examined.
#[derive(Debug, Args)]
pub(crate) struct UpgradeCheck {
    /// The volume, or a state directory
    #[arg(value_name = "VOLUME|DIR")]
    target: String,
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl UpgradeCheck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let findings = match Path::new(&self.target) {
            path if is_state_dir(path) => state_formats::find(path),
            _ => self.find_of_volume()?,
        };
        let code = exit_code(&findings);
        if self.json {
            print_line(&json!({ "version": VERSION, "exit_code": code, "formats": findings }).to_string())?;
        } else {
            print_line(&format!("{:<20} found  reads  place", "format"))?;
            findings.iter().try_for_each(|finding| print_line(&finding.to_string()))?;
            print_line(summary(code))?;
        }
        Ok(ExitCode::from(code))
    }

    fn find_of_volume(&self) -> Result<Vec<Finding>> {
        let volume = Volume::parse(&self.target)?;
        let store = self.store.settings();
        let mut findings = bucket_formats::find_local(&volume);
        // A drive that this build cannot read is reported by its version, and not by the failure to open it.
        if findings.iter().all(|finding| finding.verdict != Verdict::Refused) {
            findings.extend(process::runtime()?.block_on(bucket_formats::find(&volume, &store))?);
        }
        findings.extend(state_formats::find(&store.state_dir(&volume, self.state_dir.as_deref())));
        Ok(findings)
    }
}

/// Returns whether a path is a state directory, and not a volume.
fn is_state_dir(path: &Path) -> bool {
    path.is_dir() && !embedded::is_volume(path) && metadata::is_state_directory(path)
}

/// Returns the exit code: that of the worst finding.
fn exit_code(findings: &[Finding]) -> u8 {
    let has = |verdict| findings.iter().any(|finding| finding.verdict == verdict);
    match () {
        () if has(Verdict::Refused) => EXIT_REFUSED,
        () if has(Verdict::Unknown) => 1,
        () if has(Verdict::Upgraded) => EXIT_UPGRADED,
        () => 0,
    }
}

/// Returns the line that sums up the findings.
fn summary(code: u8) -> &'static str {
    match code {
        0 => "this build uses everything as it is",
        EXIT_UPGRADED => {
            "the next mount with this build brings data to a newer version; earlier builds may refuse it then"
        }
        EXIT_REFUSED => "this build cannot open the volume",
        _ => "something could not be examined",
    }
}
