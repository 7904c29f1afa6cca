//! `tenon drive rebuild`: rebuilds a device of an array, here or in the process that has the drive open.

use super::{EXIT_DAMAGED, parse_one_drive, scrub};
use crate::bucket::{devices, drive_holder};
use crate::command::output::Progress;
use crate::command::units;
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Rebuild as RebuildRequest, Request};
use crate::process;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use anyhow::{Context, Result, bail};
use clap::Args;
use drive::device::{Array, FileDevice, Io, Rebuilt};
use drive::{Drive, OpenOptions};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Rebuild the missing device of a drive on several devices; the contents of the new device are lost
///
/// If the other devices have parity left, the drive is scrubbed first, so that no wrong data is computed from a
/// damaged device. If a process serves or mounts the drive, that process rebuilds the device and continues to
/// serve.
#[derive(Debug, Args)]
pub(super) struct Rebuild {
    /// The drive's devices: /dev/a /dev/b ..., or /dev/a,/dev/b,... or drive:///dev/a,/dev/b,...
    #[arg(required = true, value_name = "DRIVE")]
    devices: Vec<PathBuf>,
    /// The new device, or a device that missed writes
    #[arg(required = true)]
    device: PathBuf,
    /// Rebuild even if the new device is not empty
    #[arg(long)]
    force: bool,
    /// Do not scrub the drive first
    #[arg(long)]
    no_scrub: bool,
    /// If the drive is served, read at most this many bytes per second (default: 64MiB)
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    rate: Option<u64>,
}

impl Rebuild {
    pub(super) fn run(self) -> Result<ExitCode> {
        let devices = parse_one_drive(&self.devices)?;
        match drive_holder::holder_of_devices(&devices) {
            Some(holder) => self.request(&holder, &devices),
            None => {
                let runtime = process::runtime()?;
                runtime.block_on(self.rebuild(&devices, &ProcessContext::system()?))
            }
        }
    }

    /// Asks the process that has the array open to rebuild the device.
    fn request(&self, mount: &LiveMount, devices: &Devices) -> Result<ExitCode> {
        let path = &self.device;
        let absolute =
            std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
        let request = Request::Rebuild(RebuildRequest {
            devices: devices.paths().map(|path| path.display().to_string()).collect(),
            device_hex: store::hex(absolute.as_os_str().as_bytes()),
            force: self.force,
            no_scrub: self.no_scrub,
            bytes_per_sec: Some(self.rate.unwrap_or(scrub::SERVED_BYTES_PER_SEC)),
        });
        let progress = Progress::start();
        let show = |answer: &Answer| match answer {
            Answer::Rebuilding { percent } => {
                progress.show(&format!("{percent}% rebuilt"));
                true
            }
            other => scrub::show_objects(other, &progress),
        };
        let mut client = Client::connect(mount)?;
        let answer = client.request_with_progress(&request, show)?;
        drop(progress);
        let Answer::Rebuilt { scrubbed, member, rows_lost } = answer else {
            return client.unexpected(&answer);
        };
        let code = scrubbed.as_ref().map_or(ExitCode::SUCCESS, scrub::print_outcome);
        Ok(print_outcome(path, member, rows_lost, code))
    }

    /// Rebuilds the drive on the device in this process, for a drive that no other process has open.
    async fn rebuild(&self, devices: &Devices, context: &ProcessContext) -> Result<ExitCode> {
        let path = &self.device;
        let device = FileDevice::open(path)?;
        let is_blank = devices::is_blank(&device)?;
        let io = Io::open(device);
        let array = Arc::new(devices::open_array_without(devices, path, &io)?);
        if !self.force && !is_blank && !array.was_member(&io) {
            bail!(
                "{} is not empty; --force rebuilds the drive on it, and its contents are lost",
                path.display()
            );
        }
        let mut code = ExitCode::SUCCESS;
        if array.losses_left() > 0 && !self.no_scrub {
            let (io, clock) = (Io::Array(array.clone()), context.clock.clone());
            let open = move || Drive::open(io, OpenOptions::default(), clock);
            let drive = tokio::task::spawn_blocking(open).await??;
            code = scrub::scrub_open(&drive, None).await?;
            drive.close().await?;
        }
        let rebuilt = rebuild_on(array, path, io, context).await?;
        Ok(print_outcome(path, rebuilt.member, rebuilt.rows_lost, code))
    }
}

async fn rebuild_on(array: Arc<Array>, path: &Path, io: Io, context: &ProcessContext) -> Result<Rebuilt> {
    let (name, entropy) = (path.display().to_string(), context.entropy.clone());
    let rebuilt = tokio::task::spawn_blocking(move || {
        let progress = Progress::start();
        let show = |done: u64, all: u64| progress.show(&format!("{}% rebuilt", done * 100 / all));
        array.rebuild(name, &io, &entropy, show)
    });
    Ok(rebuilt.await??)
}

/// Prints the outcome. Returns the exit code.
fn print_outcome(path: &Path, member: usize, rows_lost: u64, mut code: ExitCode) -> ExitCode {
    if rows_lost > 0 {
        println!(
            "{rows_lost} rows could not be computed and are zeros on the new device: scrub the drive to see what is damaged"
        );
        code = ExitCode::from(EXIT_DAMAGED);
    }
    println!("{} is now member {member} of the drive", path.display());
    code
}
