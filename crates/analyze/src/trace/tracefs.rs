//! Tracefs: tracing instances of this program, and the record layouts of the kernel's events.
//!
//! Invariant: only instances of this program are changed, so other users of tracing are not disturbed. Tracefs is
//! mounted if necessary. Dropping an instance removes it; instances of killed processes are removed when the next
//! recording starts.

use crate::model::TraceError;
use rustix::mount::{MountFlags, mount};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Mount point of tracefs.
pub(super) const TRACEFS: &str = "/sys/kernel/tracing";

/// Prefix of the names of this program's instances; the pid and a counter follow.
const INSTANCE_PREFIX: &str = "tenon-analyze-";

/// Numbers the instances of this process, which may have several recordings at once.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// A tracefs mount.
#[derive(Debug, Clone)]
pub(super) struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Opens any directory as tracefs; tests pass one that lacks some events.
    pub(super) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Opens the machine's tracefs. Mounts it at its usual place if it is not mounted yet.
    pub(super) fn open() -> Result<Self, TraceError> {
        let found = Self::at(TRACEFS);
        let no_tracefs = |source| TraceError::NoTracefs { path: found.root.clone(), source };
        if !found.root.join("events").exists() {
            mount("tracefs", &found.root, "tracefs", MountFlags::empty(), None)
                .map_err(|error| no_tracefs(error.into()))?;
        }
        fs::read_dir(found.root.join("events/block")).map_err(no_tracefs)?;
        Ok(found)
    }

    /// Returns whether the kernel has the event `group/name`.
    pub(super) fn has(&self, event: &str) -> bool {
        self.root.join("events").join(event).join("format").exists()
    }

    /// Reads the record layout of an event.
    pub(super) fn layout(&self, event: &str) -> Result<Layout, TraceError> {
        let path = self.root.join("events").join(event).join("format");
        let text =
            fs::read_to_string(&path).map_err(|source| TraceError::File { path: path.clone(), source })?;
        Layout::parse(&text).ok_or_else(|| TraceError::Format { path, what: "not an event's format".into() })
    }

    /// Creates an instance in which no event is enabled yet.
    pub(super) fn create_instance(&self) -> Result<Instance, TraceError> {
        let name =
            format!("{INSTANCE_PREFIX}{}-{}", std::process::id(), INSTANCES.fetch_add(1, Ordering::Relaxed));
        let path = self.root.join("instances").join(name);
        fs::create_dir(&path).map_err(|source| TraceError::NoTracefs { path: path.clone(), source })?;
        Ok(Instance { path })
    }

    /// Removes the instances of processes that no longer exist.
    pub(super) fn remove_abandoned(&self) {
        let Ok(entries) = fs::read_dir(self.root.join("instances")) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner =
                name.strip_prefix(INSTANCE_PREFIX).and_then(|rest| rest.split('-').next().map(str::to_owned));
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// A tracing instance of this program. Dropping it removes it from the kernel.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Writes a setting of the instance.
    pub(super) fn set(&self, file: &str, value: &str) -> Result<(), TraceError> {
        let path = self.path.join(file);
        let written =
            OpenOptions::new().write(true).open(&path).and_then(|mut open| open.write_all(value.as_bytes()));
        written.map_err(|source| TraceError::File { path, source })
    }

    /// Enables an event for records that match `filter`. An empty filter matches all records.
    pub(super) fn enable(&self, event: &str, filter: &str) -> Result<(), TraceError> {
        if !filter.is_empty() {
            self.set(&format!("events/{event}/filter"), filter)?;
        }
        self.set(&format!("events/{event}/enable"), "1")
    }

    /// Opens the raw buffer of each processor for non-blocking reads.
    pub(super) fn buffers(&self) -> Result<Vec<File>, TraceError> {
        self.processor_dirs()?.into_iter().map(|cpu| open_raw(cpu.join("trace_pipe_raw"))).collect()
    }

    /// Returns the number of records lost because a buffer was full.
    pub(super) fn lost_records(&self) -> Result<u64, TraceError> {
        let mut lost = 0;
        for cpu in self.processor_dirs()? {
            let path = cpu.join("stats");
            let text = fs::read_to_string(&path).map_err(|source| TraceError::File { path, source })?;
            lost += text
                .lines()
                .filter_map(|line| line.split_once(": "))
                .filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"))
                .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(lost)
    }

    fn processor_dirs(&self) -> Result<Vec<PathBuf>, TraceError> {
        let path = self.path.join("per_cpu");
        let entries = fs::read_dir(&path).map_err(|source| TraceError::File { path, source })?;
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        if let Err(error) = fs::remove_dir(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a tracing instance; remove its directory by hand");
        }
    }
}

fn open_raw(path: PathBuf) -> Result<File, TraceError> {
    OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(&path)
        .map_err(|source| TraceError::File { path, source })
}

/// The record layout of an event, from its `format` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// The event id, with which each record begins.
    pub(super) id: u16,
    fields: HashMap<String, (usize, usize)>,
}

impl Layout {
    fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
        Some(Self { id, fields: text.lines().filter_map(parse_field).collect() })
    }

    /// Returns offset and size of a field, in bytes.
    pub(super) fn field(&self, name: &str) -> Option<(usize, usize)> {
        self.fields.get(name).copied()
    }
}

/// Parses a field's line: `field:char rwbs[10]; offset:28; size:10; signed:0;` yields `rwbs`, 28 and 10.
fn parse_field(line: &str) -> Option<(String, (usize, usize))> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.rsplit([' ', '*']).next()?.split('[').next()?;
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some((name.to_owned(), (offset, size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_file_is_parsed() {
        let text = "name: block_bio_queue\nID: 2097\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:char rwbs[10];\toffset:28;\tsize:10;\tsigned:0;\n\
            \tfield:void *req;\toffset:40;\tsize:8;\tsigned:0;\n\nprint fmt: \"%d\", REC->dev\n";
        let layout = Layout::parse(text).unwrap();
        assert_eq!(layout.id, 2097);
        assert_eq!(layout.field("rwbs"), Some((28, 10)));
        assert_eq!(layout.field("req"), Some((40, 8)));
        assert_eq!(layout.field("nr_sector"), None);
    }

    #[test]
    fn other_text_is_no_format_file() {
        assert_eq!(Layout::parse("hello"), None);
    }
}
