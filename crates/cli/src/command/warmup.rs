//! `tenon warmup`: fills the disk cache of a mount.

use crate::command::locate::resolve_parent;
use crate::command::output::{Progress, print_line};
use crate::command::units::human_bytes;
use crate::control::cache_messages::WarmUp;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Request};
use crate::state::registry::Registry;
use anyhow::Result;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Read files into the disk cache, so that they need not be read from the bucket later.
///
/// The mount must have a disk cache (`tenon mount --cache-dir`). What the cache has already is not read again, so the
/// command can be repeated after an interruption.
#[derive(Debug, Args)]
pub(crate) struct Warmup {
    /// Files and directories in a mount; a directory stands for all files below it
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Print totals as one JSON object
    #[arg(long)]
    json: bool,
}

impl Warmup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let progress = Progress::start_on_terminal();
        let mut total = WarmUp::default();
        for path in &self.paths {
            let done = warm_up(path, &total, &progress)?;
            add(&mut total, done);
        }
        drop(progress);
        for failure in &total.failures {
            eprintln!("tenon: {failure}");
        }
        match self.json {
            true => print_line(&serde_json::to_string(&total)?)?,
            false => print_line(&describe(&total))?,
        }
        Ok(if total.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Asks the mount of a path to read it into its disk cache. Shows progress, which begins at `before`.
fn warm_up(path: &Path, before: &WarmUp, progress: &Progress) -> Result<WarmUp> {
    let (mount, inside) = Registry::of_user().containing(&resolve_parent(path)?)?;
    let mut client = Client::connect(&mount)?;
    let request = Request::WarmUp { path_hex: store::hex(&inside) };
    let answer = client.request_with_progress(&request, |answer| {
        let Answer::WarmingUp(now) = answer else { return false };
        let mut total = before.clone();
        add(&mut total, now.clone());
        progress.show(&describe(&total));
        true
    })?;
    match answer {
        Answer::WarmedUp(done) => Ok(done),
        other => client.unexpected(&other),
    }
}

fn add(total: &mut WarmUp, more: WarmUp) {
    total.files += more.files;
    total.bytes += more.bytes;
    total.read_bytes += more.read_bytes;
    total.failed += more.failed;
    total.failures.extend(more.failures);
}

fn describe(done: &WarmUp) -> String {
    let failed = if done.failed > 0 { format!(", {} failed", done.failed) } else { String::new() };
    format!(
        "{} files with {} are cached, {} of it read now{failed}",
        done.files,
        human_bytes(done.bytes),
        human_bytes(done.read_bytes)
    )
}
