//! `tenon drive check`: checks the index of a drive against its space map.

use super::{EXIT_DAMAGED, on_each, parse_drives};
use crate::bucket::devices;
use crate::process;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use anyhow::Result;
use clap::Args;
use drive::{Drive, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;

/// Check the index against the space map, block by block; objects are not read
///
/// If the drive is too damaged to be opened, reports what is intact; `tenon drive export --before-damage` copies
/// it.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
}

impl Check {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (context, drives) = (ProcessContext::system()?, parse_drives(&self.drives)?);
        let check = async |devices| check_drive(&devices, &context).await;
        process::runtime()?.block_on(on_each(&drives, check))
    }
}

/// Checks a drive. If damage keeps it from being opened, reports what is intact.
async fn check_drive(devices: &Devices, context: &ProcessContext) -> Result<ExitCode> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let error = match devices::open(devices, options, context).await {
        Ok(opened) => return check_open(&opened.drive).await,
        Err(error) => error,
    };
    let is_damage = error.chain().any(|cause| cause.downcast_ref().is_some_and(drive::Error::is_damage));
    if !is_damage {
        return Err(error);
    }
    let before = OpenOptions { before_damage: true, ..options };
    // Without superblock or manifest nothing can be opened; the first error says why.
    let Ok(opened) = devices::open(devices, before, context).await else { return Err(error) };
    println!("the drive cannot be used: {:#}", error.root_cause());
    check_open(&opened.drive).await?;
    println!(
        "`tenon drive export --before-damage {devices} DIR` copies what is intact; do not change the devices before that"
    );
    Ok(ExitCode::from(EXIT_DAMAGED))
}

async fn check_open(drive: &Drive) -> Result<ExitCode> {
    let checked = drive.check().await?;
    checked.problems.iter().for_each(|line| println!("{line}"));
    let mib = |blocks: u64| (blocks * drive::device::BLOCK_BYTES) >> 20;
    println!(
        "{} objects, {} parts; {} MiB in runs, {} in pack zones, {} of the index, {} free; {} problems",
        checked.objects,
        checked.parts,
        mib(checked.object_blocks),
        mib(checked.zone_blocks),
        mib(checked.held_blocks),
        mib(checked.free_blocks),
        checked.problems.len()
    );
    Ok(if checked.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) })
}
