//! The devices of an object drive: named, opened, and joined to the array that their labels say they are.

use crate::bucket::World;
use crate::drives::is_held;
use crate::held;
use anyhow::{Context, Result, bail};
use drive::device::{Array, ArrayInfo, FileDevice, Found, Io, MemberState, OpenError};
use drive::{Drive, OpenOptions};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The devices of one drive, whose order says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Devices(Vec<PathBuf>);

/// A drive that is open, and what its devices are if they are an array.
pub(crate) struct OpenDrive {
    pub(crate) drive: Drive,
    pub(crate) array: Option<ArrayInfo>,
}

/// Devices that could be opened, and why others could not.
struct Looked {
    devices: Vec<(String, Io)>,
    missing: Vec<String>,
}

impl Devices {
    /// Reads `/dev/a`, `/dev/a,/dev/b`, or a drive's URL. A comma in a name is a comma as long as no slash follows.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::of(separated(text, ",/").into_iter().map(Path::new))
    }

    /// These devices; each must be named once.
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let mut devices = Vec::new();
        for path in paths {
            if path.to_string_lossy().contains("+/") && !path.exists() {
                bail!("{} are several drives: name one of them", path.display());
            }
            if path.as_os_str().is_empty() {
                bail!("a device has no name; write /dev/a or /dev/a,/dev/b");
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

    /// Opens the drive on them, without anybody who keeps it up.
    pub(crate) async fn open(&self, options: OpenOptions, world: &World) -> Result<OpenDrive> {
        let (devices, clock) = (self.clone(), world.clock.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let (io, array) = devices.join(options.read_only)?;
            anyhow::Ok(OpenDrive { drive: Drive::open(io, options, clock)?, array })
        });
        let opened = opened.await?.with_context(|| format!("cannot use the drive {self}"));
        opened.map_err(|error| match held::who_has(self).filter(|_| is_held(&error)) {
            Some(who) => error.context(who),
            None => error,
        })
    }

    /// The array that these are without a device, which is open already and is to become one of its members. Blocks.
    pub(crate) fn array_for(&self, path: &Path, device: &Io) -> Result<Array> {
        let own = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let others = Self(self.0.iter().filter(|path| **path != own).cloned().collect());
        let Looked { devices, missing } = others.look(false)?;
        let name = path.display().to_string();
        let all = Found::look(devices.iter().cloned().chain([(name.clone(), device.clone())]));
        if all.info().is_some_and(|info| info.members.contains(&MemberState::InSync(name))) {
            bail!("{} is in sync: there is nothing to rebuild", path.display());
        }
        Found::look(devices).open(false).with_context(|| because(&missing))
    }

    fn join(&self, read_only: bool) -> Result<(Io, Option<ArrayInfo>)> {
        let Looked { devices, missing } = self.look(read_only)?;
        let single = match devices.as_slice() {
            [(_, io)] if self.0.len() == 1 => Some(io.clone()),
            _ => None,
        };
        let found = Found::look(devices);
        let info = found.info();
        match (info, single) {
            (None, Some(io)) => Ok((io, None)),
            (None, None) => bail!("{}none of the devices is of an array", because(&missing)),
            (info, _) => {
                let array = found.open(read_only).with_context(|| because(&missing))?;
                Ok((Io::Array(Arc::new(array)), info))
            }
        }
    }

    /// Opens each. One that is gone is told of; one that somebody else has open is an error.
    fn look(&self, read_only: bool) -> Result<Looked> {
        let mut looked = Looked { devices: Vec::new(), missing: Vec::new() };
        for path in &self.0 {
            let opened = if read_only { FileDevice::open_read_only(path) } else { FileDevice::open(path) };
            match opened {
                Ok(device) => looked.devices.push((path.display().to_string(), Io::open(device))),
                Err(error @ OpenError::Refused { .. }) if self.0.len() > 1 => {
                    tracing::warn!(%error, "a device of the drive is missing");
                    looked.missing.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(looked)
    }
}

/// What stands between separators in a text, or in a URL of drives; a separator ends with the slash that the next part begins with.
/// Relative paths have no such slash: there a separator alone divides, where no file has the whole text as its name and a file has
/// the name of each part.
pub(crate) fn separated<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let text = text.strip_prefix("drive://").unwrap_or(text);
    let parts: Vec<&str> = text.split(separator.trim_end_matches('/')).collect();
    if parts.len() > 1 && !Path::new(text).exists() && parts.iter().all(|part| are_there(part)) {
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

/// Whether a text is the path of a file, or those of several with commas between them.
fn are_there(text: &str) -> bool {
    Path::new(text).exists() || text.split(',').all(|path| Path::new(path).exists())
}

/// What is not there, in front of what comes of it.
fn because(missing: &[String]) -> String {
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
    fn devices_are_told_apart_by_commas_before_slashes() {
        let shown = |text: &str| Devices::parse(text).unwrap().to_string();
        assert_eq!(shown("drive:///no/b,/no/a"), "/no/a,/no/b");
        assert_eq!(shown("/no/a,b"), "/no/a,b");
        assert!(Devices::parse("/no/a,/no/a").unwrap_err().to_string().contains("twice"));
        assert!(Devices::parse("").is_err());
    }
}
