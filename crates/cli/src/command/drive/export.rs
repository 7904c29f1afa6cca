//! `tenon drive export`: copies the objects of a drive to files.

use super::{EXIT_DAMAGED, parse_drives};
use crate::bucket::drives::{DrivesOptions, OpenDrives};
use crate::bucket::object_copy::{self, ExportTotals};
use crate::command::output::Progress;
use crate::process;
use crate::process::context::ProcessContext;
use anyhow::{Context, Result};
use clap::Args;
use drive::{Drive, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use store::Buckets;
use store_dir::{DirBuckets, DirOptions};

/// Copy objects to files, with a directory for each bucket; `tenon serve dirs:///DIR` serves them
///
/// An interrupted export is resumed. The exit code is 1 if an object was left out: it is damaged, cannot be read,
/// or cannot be stored as a file. With --before-damage it is 4 if the drive has lost anything.
#[derive(Debug, Args)]
pub(super) struct Export {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
    /// Export a pool although some of its drives are missing
    #[arg(long)]
    degraded: bool,
    /// Copy what is intact on a damaged drive: the state before the first damaged frame of its log, and the
    /// readable part of its index; losses are listed on standard error
    #[arg(long)]
    before_damage: bool,
    /// Target directory; created if it does not exist
    #[arg(required = true)]
    dir: PathBuf,
    /// Export only this bucket
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
}

impl Export {
    pub(super) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        runtime.block_on(self.export(&ProcessContext::system()?))
    }

    async fn export(&self, context: &ProcessContext) -> Result<ExitCode> {
        let Self { degraded, before_damage, .. } = *self;
        let options = OpenOptions { read_only: true, before_damage, ..OpenOptions::default() };
        let opening = DrivesOptions { options, degraded };
        let opened = OpenDrives::open(&parse_drives(&self.drives)?, opening, context).await?;
        let lost = opened.all().iter().map(print_losses).sum::<usize>();
        // A pool can only be listed if all of its drives are intact, so what is left is read drive by drive.
        let buckets = opened.buckets_to_export(degraded || before_damage).await?;
        let code = export(&buckets, &self.dir, self.bucket.as_deref(), context).await?;
        Ok(if lost == 0 { code } else { ExitCode::from(EXIT_DAMAGED) })
    }
}

/// Prints what opening the drive before its damage left out. Returns the number of losses.
fn print_losses(drive: &Drive) -> usize {
    drive.losses().iter().for_each(|line| eprintln!("left out: {line}"));
    drive.losses().len()
}

async fn export(
    from: &[Arc<dyn Buckets>],
    dir: &Path,
    bucket: Option<&str>,
    context: &ProcessContext,
) -> Result<ExitCode> {
    let usable = || format!("cannot use {}", dir.display());
    std::fs::create_dir_all(dir).with_context(usable)?;
    let (clock, entropy) = (context.clock.clone(), context.entropy.clone());
    let to = DirBuckets::open(dir, DirOptions::default(), clock, entropy).with_context(usable)?;
    let progress = Progress::start();
    let show = |so_far: &ExportTotals| progress.show(&format!("{} objects copied", so_far.objects));
    let mut exported = ExportTotals::default();
    for buckets in from {
        let left_out = |line: &str| println!("{line}");
        object_copy::export(&**buckets, &to, bucket, &mut exported, left_out, &show).await?;
    }
    drop(progress);
    let ExportTotals { objects, bytes, kept, failed } = exported;
    println!("{objects} objects, {} MiB copied; {kept} already exported; {failed} left out", bytes >> 20);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
