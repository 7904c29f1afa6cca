//! `tenon drive scrub`: verifies all checksums and repairs what can be repaired, here or in the process that has the drive open.

use super::{EXIT_DAMAGED, on_each, parse_drives};
use crate::bucket::{devices, drive_holder};
use crate::command::output::Progress;
use crate::command::units;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request, Scrubbed};
use crate::process;
use crate::process::context::ProcessContext;
use crate::serving::drive_requests::Rate;
use crate::volume::device_names::Devices;
use anyhow::Result;
use clap::Args;
use drive::{Drive, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;

/// Default rate of reading a drive that is served, in bytes per second.
pub(super) const SERVED_BYTES_PER_SEC: u64 = 64 << 20;

/// Read everything and verify its checksums; damaged blocks are rewritten from the other devices
///
/// If a process serves or mounts the drive, that process scrubs it and continues to serve. Interrupting the
/// command also stops the scrub.
#[derive(Debug, Args)]
pub(super) struct Scrub {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...; of a pool /dev/a+/dev/b+...
    #[arg(required = true, value_name = "DRIVE")]
    drives: Vec<PathBuf>,
    /// Read at most this many bytes per second (default: no limit, or 64MiB if the drive is served)
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    rate: Option<u64>,
}

impl Scrub {
    pub(super) fn run(self) -> Result<ExitCode> {
        let drives = parse_drives(&self.drives)?;
        if let Some(mount) = drives.each().find_map(drive_holder::holder_of_devices) {
            return self.request(&mount);
        }
        let context = ProcessContext::system()?;
        let runtime = process::runtime()?;
        runtime.block_on(on_each(&drives, async |devices| scrub(&devices, self.rate, &context).await))
    }

    /// Asks the process that has one of the drives open to scrub all drives that it has.
    fn request(&self, mount: &LiveMount) -> Result<ExitCode> {
        let progress = Progress::start();
        let show = |answer: &Answer| show_objects(answer, &progress);
        let request = Request::Scrub { bytes_per_sec: Some(self.rate.unwrap_or(SERVED_BYTES_PER_SEC)) };
        let mut client = Client::connect(mount)?;
        let scrubbed = match client.request_with_progress(&request, show)? {
            Answer::Scrubbed { drives } => drives,
            other => return client.unexpected(&other),
        };
        drop(progress);
        let mut code = ExitCode::SUCCESS;
        for of_one in scrubbed {
            if print_outcome(&of_one) != ExitCode::SUCCESS {
                code = ExitCode::from(EXIT_DAMAGED);
            }
        }
        Ok(code)
    }
}

async fn scrub(devices: &Devices, rate: Option<u64>, context: &ProcessContext) -> Result<ExitCode> {
    let open =
        |read_only| devices::open(devices, OpenOptions { read_only, ..OpenOptions::default() }, context);
    let opened = open(true).await?;
    let drive = match opened.array {
        // An array is opened for writing, so that damaged blocks are repaired from its other devices.
        Some(_) => {
            drop(opened);
            open(false).await?.drive
        }
        None => opened.drive,
    };
    scrub_open(&drive, rate).await
}

/// Scrubs an open drive, and prints the outcome. Returns the exit code.
pub(super) async fn scrub_open(drive: &Drive, rate: Option<u64>) -> Result<ExitCode> {
    let progress = Progress::start();
    let show = |so_far: &drive::Scrubbed| progress.show(&format!("{} objects read", so_far.objects));
    let scrubbed = drive.scrub_at(&Rate::new(rate), show).await?;
    drop(progress);
    Ok(print_outcome(&scrubbed.into()))
}

/// Shows how many objects were read. Returns whether the answer was such a progress message.
pub(super) fn show_objects(answer: &Answer, progress: &Progress) -> bool {
    let Answer::Scrubbing { objects } = answer else { return false };
    progress.show(&format!("{objects} objects read"));
    true
}

/// Prints the outcome of a scrub. Returns the exit code.
pub(super) fn print_outcome(Scrubbed { objects, bytes, mended, damaged }: &Scrubbed) -> ExitCode {
    damaged.iter().for_each(|line| println!("{line}"));
    if *mended > 0 {
        println!("{mended} damaged or unreadable blocks were rewritten from the other devices");
    }
    println!("{objects} objects, {} MiB read, {} damaged", bytes >> 20, damaged.len());
    if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DAMAGED) }
}
