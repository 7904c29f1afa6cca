//! The names of devices and drives: parsed and resolved, but not opened.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// The devices of one drive, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Devices(Vec<PathBuf>);

/// Drives that hold buckets together, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drives(Vec<Devices>);

impl Devices {
    /// Parses `/dev/a`, `/dev/a,/dev/b`, or a drive's URL. A comma without a slash after it is part of a name, unless
    /// it divides relative paths of files ([`split_paths`]).
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
            Some(twice) => bail!("{} is named twice; name each device once", twice[0].display()),
            None => Ok(Self(devices)),
        }
    }

    /// Returns the paths of the devices.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(PathBuf::as_path)
    }

    /// Returns the devices except one, which is given by any of its paths.
    pub(crate) fn without(&self, path: &Path) -> Self {
        let own = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self(self.0.iter().filter(|path| **path != own).cloned().collect())
    }
}

impl Drives {
    /// Parses drives with a plus between them, each as [`Devices::parse`] does. A plus without a slash after it is
    /// part of a name, with the same exception.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::parse_each(split_paths(text, "+/"))
    }

    /// Parses each of the texts as [`Devices::parse`] does.
    pub(crate) fn parse_each<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let drives = texts.into_iter().map(Devices::parse);
        let mut drives: Vec<Devices> = drives.collect::<Result<_>>()?;
        drives.sort_by_key(Devices::to_string);
        let mut named = BTreeSet::new();
        if let Some(twice) = drives.iter().flat_map(Devices::paths).find(|path| !named.insert(*path)) {
            bail!("{} is named twice; name each device once", twice.display());
        }
        Ok(Self(drives))
    }

    /// Returns the devices of each drive.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Devices> {
        self.0.iter()
    }

    /// Returns all devices of all drives.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flat_map(Devices::paths)
    }
}

/// Splits a text, or the URL of drives, at separators. A separator ends with the slash that begins the next part.
/// Relative paths have no such slash: there a separator without slash divides, unless a file has the whole text as
/// its name, and only if a file exists for each part.
fn split_paths<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
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

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&shown.join(","))
    }
}

impl From<Devices> for Drives {
    fn from(devices: Devices) -> Self {
        Self(vec![devices])
    }
}

impl fmt::Display for Drives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(Devices::to_string).collect();
        f.write_str(&shown.join("+"))
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

    #[test]
    fn drives_are_separated_by_pluses_before_slashes() {
        let shown = |text: &str| Drives::parse(text).unwrap().to_string();
        assert_eq!(shown("drive:///no/c+/no/b,/no/a"), "/no/a,/no/b+/no/c");
        assert_eq!(shown("/no/a+b"), "/no/a+b");
        assert!(Drives::parse("/no/a+/no/b,/no/a").unwrap_err().to_string().contains("twice"));
        assert!(Drives::parse("+/no/a").is_err());
    }
}
