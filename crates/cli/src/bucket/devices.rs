//! Opens the devices of an object drive, and joins them to the array that their labels describe.

use crate::bucket::drive_holder;
use crate::process::context::ProcessContext;
use crate::volume::device_names::Devices;
use anyhow::{Context, Result, bail};
use drive::device::{Array, ArrayInfo, BlockDevice, Buffer, FileDevice, Found, Io, MemberState, OpenError};
use drive::{Drive, OpenOptions};
use std::path::Path;
use std::sync::Arc;

/// Length of the beginning of a device that must be all zeros for the device to count as empty: file systems, partition tables and drives have
/// their signatures there.
const BEGINNING_BYTES: usize = 128 << 10;

/// An open drive, and the state of its devices if they are an array.
pub(crate) struct OpenDrive {
    pub(crate) drive: Drive,
    pub(crate) array: Option<ArrayInfo>,
}

/// Devices that were opened, and the errors of those that were not.
struct OpenedDevices {
    devices: Vec<(String, Io)>,
    /// The errors, one for each device that cannot be opened.
    missing: Vec<String>,
}

/// Opens the drive on some devices, without background upkeep.
pub(crate) async fn open(
    devices: &Devices,
    options: OpenOptions,
    context: &ProcessContext,
) -> Result<OpenDrive> {
    let (named, clock) = (devices.clone(), context.clock.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let (io, array) = join(&named, options.read_only)?;
        anyhow::Ok(OpenDrive { drive: Drive::open(io, options, clock)?, array })
    });
    let opened = opened.await?.with_context(|| format!("cannot use the drive {devices}"));
    opened.map_err(|error| match drive_holder::describe_holder(devices).filter(|_| is_in_use(&error)) {
        Some(holder) => error.context(holder),
        None => error,
    })
}

/// Opens the array of the devices but the one at `path`, so that this one, which is open as `device`, can be rebuilt. Fails if it is in
/// sync. Blocks.
pub(crate) fn open_array_without(devices: &Devices, path: &Path, device: &Io) -> Result<Array> {
    let OpenedDevices { devices, missing } = open_each(&devices.without(path), false)?;
    let name = path.display().to_string();
    let all = Found::look(devices.iter().cloned().chain([(name.clone(), device.clone())]));
    if all.info().is_some_and(|info| info.members.contains(&MemberState::InSync(name))) {
        bail!("{} is in sync: there is nothing to rebuild", path.display());
    }
    Found::look(devices).open(false).map_err(|error| name_missing(error, &missing))
}

/// Returns whether a device, or a drive on it, could not be opened because another process has it open.
pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(OpenError::InUse(_))))
}

/// Returns whether the beginning of a device is all zeros.
pub(crate) fn is_blank(device: &dyn BlockDevice) -> Result<bool> {
    let mut beginning = Buffer::zeroed(BEGINNING_BYTES.min(device.len_bytes() as usize));
    device.read_at(0, &mut beginning).context("cannot read the beginning of the device")?;
    Ok(beginning.iter().all(|&byte| byte == 0))
}

/// Opens the only device, or the array of the devices.
fn join(devices: &Devices, read_only: bool) -> Result<(Io, Option<ArrayInfo>)> {
    let count = devices.paths().count();
    let OpenedDevices { devices, missing } = open_each(devices, read_only)?;
    let single = match devices.as_slice() {
        [(_, io)] if count == 1 => Some(io.clone()),
        _ => None,
    };
    let found = Found::look(devices);
    match (found.info(), single) {
        (None, Some(io)) => Ok((io, None)),
        (None, None) => bail!(
            "{}none of the devices belongs to an array; name the devices of one drive, or one device",
            missing_prefix(&missing)
        ),
        (info, _) => {
            let array = found.open(read_only).map_err(|error| name_missing(error, &missing))?;
            Ok((Io::Array(Arc::new(array)), info))
        }
    }
}

/// Opens each device. Devices that the kernel refuses to open, such as missing ones, count as missing unless there is only one device. Fails
/// on other errors, such as that another process has the device open.
fn open_each(devices: &Devices, read_only: bool) -> Result<OpenedDevices> {
    let is_only = devices.paths().count() == 1;
    let mut opened = OpenedDevices { devices: Vec::new(), missing: Vec::new() };
    for path in devices.paths() {
        let device = if read_only { FileDevice::open_read_only(path) } else { FileDevice::open(path) };
        match device {
            Ok(device) => opened.devices.push((path.display().to_string(), Io::open(device))),
            Err(error @ OpenError::Refused { .. }) if !is_only => {
                tracing::warn!(%error, "a device of the drive cannot be opened and counts as missing");
                opened.missing.push(error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(opened)
}

/// Names the missing devices in an error of the others.
fn name_missing(error: impl Into<anyhow::Error>, missing: &[String]) -> anyhow::Error {
    match missing {
        [] => error.into(),
        missing => error.into().context(missing.join("; ")),
    }
}

/// Formats the errors of missing devices, as the beginning of another error.
fn missing_prefix(missing: &[String]) -> String {
    missing.iter().map(|missing| format!("{missing}; ")).collect::<String>()
}
