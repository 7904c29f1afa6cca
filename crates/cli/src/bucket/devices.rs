//! The devices of an object drive: parsed, opened, and joined to the array that their labels describe.

use crate::bucket::ProcessContext;
use crate::bucket::drive_holder;
use crate::bucket::drives::is_in_use;
use anyhow::{Context, Result, bail};
use drive::device::{Array, ArrayInfo, FileDevice, Found, Io, MemberState, OpenError};
use drive::{Drive, OpenOptions};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The devices of one drive, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Devices(Vec<PathBuf>);

/// An open drive, and the state of its devices if they are an array.
pub(crate) struct OpenDrive {
    pub(crate) drive: Drive,
    pub(crate) array: Option<ArrayInfo>,
}

/// Devices that were opened, and the errors of those that were not.
struct OpenedDevices {
    devices: Vec<(String, Io)>,
    missing: Vec<String>,
}

impl Devices {
    /// Parses `/dev/a`, `/dev/a,/dev/b`, or a drive's URL. A comma without a slash after it is part of a name.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::of(split_paths(text, ",/").into_iter().map(Path::new))
    }

    /// Resolves the paths of devices. Refuses a device that is named twice.
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let mut devices = Vec::new();
        for path in paths {
            if path.to_string_lossy().contains("+/") && !path.exists() {
                bail!("{} are several drives: name one of them", path.display());
            }
            if path.as_os_str().is_empty() {
                bail!("the path of a device is empty; write /dev/a or /dev/a,/dev/b");
            }
            let resolved = path.canonicalize().or_else(|_| std::path::absolute(path));
            devices.push(resolved.with_context(|| format!("cannot resolve {}", path.display()))?);
        }
        devices.sort();
        match devices.windows(2).find(|two| two[0] == two[1]) {
            Some(twice) => bail!("{} is named twice", twice[0].display()),
            None => Ok(Self(devices)),
        }
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Opens the drive on the devices, without background upkeep.
    pub(crate) async fn open(&self, options: OpenOptions, context: &ProcessContext) -> Result<OpenDrive> {
        let (devices, clock) = (self.clone(), context.clock.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let (io, array) = devices.join(options.read_only)?;
            anyhow::Ok(OpenDrive { drive: Drive::open(io, options, clock)?, array })
        });
        let opened = opened.await?.with_context(|| format!("cannot use the drive {self}"));
        opened.map_err(|error| match drive_holder::describe_holder(self).filter(|_| is_in_use(&error)) {
            Some(holder) => error.context(holder),
            None => error,
        })
    }

    /// Returns the array of the other devices, of which `device`, which is open already, is to become a member.
    /// Blocks.
    pub(crate) fn array_without(&self, path: &Path, device: &Io) -> Result<Array> {
        let own = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let others = Self(self.0.iter().filter(|path| **path != own).cloned().collect());
        let OpenedDevices { devices, missing } = others.open_each(false)?;
        let name = path.display().to_string();
        let all = Found::look(devices.iter().cloned().chain([(name.clone(), device.clone())]));
        if all.info().is_some_and(|info| info.members.contains(&MemberState::InSync(name))) {
            bail!("{} is in sync: there is nothing to rebuild", path.display());
        }
        Found::look(devices).open(false).with_context(|| missing_prefix(&missing))
    }

    fn join(&self, read_only: bool) -> Result<(Io, Option<ArrayInfo>)> {
        let OpenedDevices { devices, missing } = self.open_each(read_only)?;
        let single = match devices.as_slice() {
            [(_, io)] if self.0.len() == 1 => Some(io.clone()),
            _ => None,
        };
        let found = Found::look(devices);
        let info = found.info();
        match (info, single) {
            (None, Some(io)) => Ok((io, None)),
            (None, None) => bail!("{}none of the devices belongs to an array", missing_prefix(&missing)),
            (info, _) => {
                let array = found.open(read_only).with_context(|| missing_prefix(&missing))?;
                Ok((Io::Array(Arc::new(array)), info))
            }
        }
    }

    /// Opens each device. A device that is missing is recorded; a device that another process has open is an error.
    fn open_each(&self, read_only: bool) -> Result<OpenedDevices> {
        let mut opened = OpenedDevices { devices: Vec::new(), missing: Vec::new() };
        for path in &self.0 {
            let device = if read_only { FileDevice::open_read_only(path) } else { FileDevice::open(path) };
            match device {
                Ok(device) => opened.devices.push((path.display().to_string(), Io::open(device))),
                Err(error @ OpenError::Refused { .. }) if self.0.len() > 1 => {
                    tracing::warn!(%error, "a device of the drive is missing");
                    opened.missing.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(opened)
    }
}

/// Splits a text, or the URL of drives, at separators. A separator ends with the slash that begins the next part.
/// Relative paths have no such slash: there a separator without slash divides, unless a file has the whole text as
/// its name, and only if a file exists for each part.
pub(crate) fn split_paths<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let text = text.strip_prefix("drive://").unwrap_or(text);
    let parts: Vec<&str> = text.split(separator.trim_end_matches('/')).collect();
    if parts.len() > 1 && !Path::new(text).exists() && parts.iter().all(|part| exist(part)) {
        return parts;
    }
    let mut begins = 0;
    let mut parts = Vec::new();
    for (at, _) in text.match_indices(separator) {
        parts.push(&text[begins..at]);
        begins = at + separator.len() - 1;
    }
    parts.push(&text[begins..]);
    parts
}

/// Returns whether a text is the path of a file, or several such paths with commas between them.
fn exist(text: &str) -> bool {
    Path::new(text).exists() || text.split(',').all(|path| Path::new(path).exists())
}

/// Formats the errors of missing devices, as the beginning of another error.
fn missing_prefix(missing: &[String]) -> String {
    missing.iter().map(|missing| format!("{missing}; ")).collect::<String>()
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&shown.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_separated_by_commas_before_slashes() {
        let shown = |text: &str| Devices::parse(text).unwrap().to_string();
        assert_eq!(shown("drive:///no/b,/no/a"), "/no/a,/no/b");
        assert_eq!(shown("/no/a,b"), "/no/a,b");
        assert!(Devices::parse("/no/a,/no/a").unwrap_err().to_string().contains("twice"));
        assert!(Devices::parse("").is_err());
    }
}
