//! `tenon drive format`: makes a drive.

use crate::bucket::devices::is_blank;
use crate::command::units;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use anyhow::{Result, bail};
use clap::Args;
use drive::device::{Array, BlockDevice, FileDevice, Found, Io, Shape};
use drive::{Drive, FormatOptions};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Make a drive from one or several block devices or files; their contents are lost
#[derive(Debug, Args)]
pub(super) struct Format {
    /// Block devices, or files to use as such
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// With several devices, the number that hold data (default: all that hold no parity)
    #[arg(long, value_name = "K")]
    data: Option<usize>,
    /// With several devices, the number that hold parity: as many may be lost
    #[arg(long, value_name = "M")]
    parity: Option<usize>,
    /// Create the files, each with this length
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    size: Option<u64>,
    /// Length of a zone, a power of two of at least 1 MiB (default: chosen by the device's length)
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    zone: Option<u64>,
    /// Format devices even if they are not empty
    #[arg(long)]
    force: bool,
}

impl Format {
    /// Formats the drive. If that fails, removes the files that were created for it.
    pub(super) fn run(self) -> Result<ExitCode> {
        let shape = shape(self.devices.len(), self.data, self.parity)?;
        let new: Vec<&PathBuf> = self.devices.iter().filter(|path| !path.exists()).collect();
        let made = self.format(shape, &ProcessContext::system()?);
        if made.is_err() {
            for path in new {
                let _ = std::fs::remove_file(path);
            }
        }
        made.map(|()| ExitCode::SUCCESS)
    }

    fn format(&self, shape: Option<Shape>, context: &ProcessContext) -> Result<()> {
        let named = Devices::of(self.devices.iter().map(PathBuf::as_path))?;
        let mut devices = Vec::new();
        for path in &self.devices {
            devices.push((path.display().to_string(), empty_device(path, self.size, self.force)?));
        }
        let device = match shape {
            Some(shape) => array_of(devices, shape, context)?,
            None => devices.swap_remove(0).1.device(),
        };
        Drive::format(&device, FormatOptions { zone_bytes: self.zone }, &context.entropy)?;
        println!("formatted {named} as a drive; serve it with `tenon serve drive://{named}`");
        Ok(())
    }
}

/// Returns the shape of the array that several devices form; `None` for one device.
fn shape(devices: usize, data: Option<usize>, parity: Option<usize>) -> Result<Option<Shape>> {
    match (devices, data, parity) {
        (1, None, None) => Ok(None),
        (1, ..) => {
            bail!("one device cannot have parity: name more devices, or leave out --data and --parity")
        }
        (_, _, None) => {
            bail!(
                "give --parity, the number of devices that may be lost; with 0, losing one device loses the whole drive"
            )
        }
        (_, Some(data), Some(parity)) if data + parity != devices => {
            bail!(
                "--data {data} and --parity {parity} do not add up to the {devices} devices that are named; leave out --data to compute it"
            )
        }
        (_, _, Some(parity)) if parity >= devices => {
            bail!("--parity {parity} leaves no device for data; give a smaller number, or name more devices")
        }
        (_, _, Some(parity)) => Ok(Some(Shape { data: devices - parity, parity })),
    }
}

/// Opens or creates a device. Refuses one that is not empty, unless `force` is set.
fn empty_device(path: &Path, size: Option<u64>, force: bool) -> Result<Io> {
    let device = match size {
        Some(len_bytes) if !path.exists() => FileDevice::create(path, len_bytes)?,
        Some(_) => bail!("{} already exists; leave out --size to format it", path.display()),
        None => FileDevice::open(path)?,
    };
    if !force && !is_blank(&device)? {
        bail!("{} is not empty; --force formats it, and its contents are lost", path.display());
    }
    Ok(Io::open(device))
}

fn array_of(
    devices: Vec<(String, Io)>,
    shape: Shape,
    context: &ProcessContext,
) -> Result<Arc<dyn BlockDevice>> {
    Array::format(devices.clone(), shape, &context.entropy)?;
    Ok(Arc::new(Found::look(devices).open(false)?))
}
