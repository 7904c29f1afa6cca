//! `tenon drive join`: joins drives into a pool.

use crate::bucket::drives::{DrivesOptions, OpenDrives};
use crate::process;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Drives;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Join several drives into a pool, or add empty drives to a pool
///
/// Each key of a pool is stored on one of its drives. Name all drives: those in the pool, and those to add. Of
/// the drives that are in no pool yet, only one may have objects.
#[derive(Debug, Args)]
pub(super) struct Join {
    /// The drives: /dev/a /dev/b ..., or /dev/a+/dev/b+... or drive:///dev/a+/dev/b+..., each a device or an array:
    /// /dev/a+/dev/b,/dev/c,...
    #[arg(required = true, value_name = "DRIVES")]
    drives: Vec<PathBuf>,
}

impl Join {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (context, drives) = (ProcessContext::system()?, parse_drives_to_join(&self.drives)?);
        let runtime = process::runtime()?;
        runtime.block_on(join(&drives, &context)).map(|()| ExitCode::SUCCESS)
    }
}

/// Parses the drives to join. Several words are several drives.
fn parse_drives_to_join(words: &[PathBuf]) -> Result<Drives> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    match words.as_slice() {
        [word] => Drives::parse(word),
        words => Drives::parse_each(words.iter().map(AsRef::as_ref)),
    }
}

/// Joins drives into a pool.
async fn join(drives: &Drives, context: &ProcessContext) -> Result<()> {
    let opened = OpenDrives::open(drives, DrivesOptions::default(), context).await?;
    let pool = drive::pool::join(&opened.all(), &context.entropy).await?;
    for drive in opened.all() {
        drive.close().await?;
    }
    println!(
        "joined {} drives into the pool {:016x}; serve it with `tenon serve drive://{drives}`",
        pool.drives.len(),
        pool.pool
    );
    Ok(())
}
