//! `tenon drive`: makes, joins, inspects, checks, scrubs, rebuilds and exports object drives.

mod check;
mod export;
mod format;
mod info;
mod join;
mod rebuild;
mod scrub;

use crate::volume::device_names::{Devices, Drives};
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code if damage was found.
const EXIT_DAMAGED: u8 = 4;

/// Make and maintain object drives: objects on raw block devices, without a file system.
///
/// `tenon serve drive:///DEVICE` serves the buckets of a drive by S3, `tenon mount drive:///DEVICE DIR` mounts them
/// as directories.
#[derive(Debug, Args)]
pub(crate) struct Drive {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Format(format::Format),
    Rebuild(rebuild::Rebuild),
    Join(join::Join),
    Info(info::Info),
    Map(info::Map),
    Check(check::Check),
    Scrub(scrub::Scrub),
    Export(export::Export),
}

impl Drive {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Format(format) => format.run(),
            Action::Rebuild(rebuild) => rebuild.run(),
            Action::Join(join) => join.run(),
            Action::Info(info) => info.run(),
            Action::Map(map) => map.run(),
            Action::Check(check) => check.run(),
            Action::Scrub(scrub) => scrub.run(),
            Action::Export(export) => export.run(),
        }
    }
}

/// Parses drives. One word names one or several drives; several words are the devices of one drive.
fn parse_drives(words: &[PathBuf]) -> Result<Drives> {
    match words {
        [word] => Drives::parse(&word.to_string_lossy()),
        devices => Ok(Devices::of(devices.iter().map(PathBuf::as_path))?.into()),
    }
}

/// Parses the devices of one drive.
fn parse_one_drive(words: &[PathBuf]) -> Result<Devices> {
    match words {
        [word] => Devices::parse(&word.to_string_lossy()),
        devices => Devices::of(devices.iter().map(PathBuf::as_path)),
    }
}

/// Runs `act` on each drive, and prints which drive it is if there are several. Returns the last exit code that is
/// not success.
async fn on_each(drives: &Drives, act: impl AsyncFn(Devices) -> Result<ExitCode>) -> Result<ExitCode> {
    let all: Vec<&Devices> = drives.each().collect();
    let mut code = ExitCode::SUCCESS;
    for devices in &all {
        if all.len() > 1 {
            println!("{devices}");
        }
        let of_one = act((*devices).clone()).await?;
        if of_one != ExitCode::SUCCESS {
            code = of_one;
        }
    }
    Ok(code)
}
