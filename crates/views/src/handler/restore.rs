//! Restores a handler from its state directory.
//!
//! If a file is damaged, all files are renamed, a warning is logged, and the handler begins with an empty state.
//! Clients then open their views again, and the objects are listed from the store.

use super::container::Container;
use super::frames::{FileName, FrameReader};
use super::objects::{LogRecord, RecordKind, SHARDS, shard_of_object};
use super::registry::SavedContainer;
use super::saved_state::{SavedState, read_saved_state};
use super::state_log::LogFiles;
use super::{Handler, HandlerError, HandlerParts, Incarnation};
use crate::object_record::key_of;
use hashbrown::{HashMap, HashSet};
use log::NextFrame;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// File with the machine's boot id (proc(5)). Without this file, every start counts as a start after another boot,
/// after which all containers are listed again.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Objects to verify, by container and key.
pub(super) type PendingVerifications = HashSet<(u32, Box<[u8]>)>;

/// Returns a handler with the saved state, and the objects that it has to verify first.
pub(super) fn restore(parts: HandlerParts) -> Result<(Handler, PendingVerifications), HandlerError> {
    let Some(dir) = parts.dir.clone() else {
        let first = Incarnation { epoch: parts.entropy.next_u64(), number: 1, boot: Vec::new() };
        return Ok((Handler::new(parts, first, None), PendingVerifications::new()));
    };
    let failed = |error: io::Error| HandlerError::new(&dir, error.to_string());
    let lock_file = lock(&dir)?;
    let mut saved = match read_saved_state(&dir).map_err(failed)? {
        Ok(saved) => saved,
        Err(broken) => {
            set_aside(&dir, &broken).map_err(failed)?;
            SavedState::default()
        }
    };
    let boot = std::fs::read(BOOT_ID).unwrap_or_default();
    let is_untrusted = saved.is_torn_at_end || boot.is_empty() || saved.boot != boot;
    // After a lost end of the log, clients may know changes that this handler does not. A new epoch makes them read
    // the whole content of their views again.
    let epoch = saved.epoch.filter(|_| !is_untrusted).unwrap_or_else(|| parts.entropy.next_u64());
    let next = saved.files.iter().map(|name| name.number()).max().unwrap_or(0) + 1;
    let files = LogFiles::create(dir.clone(), epoch, next, lock_file).map_err(failed)?;
    let incarnation = Incarnation { epoch, number: saved.incarnation + 1, boot };
    let handler = Handler::new(parts, incarnation, Some(files));
    let containers = saved_containers(&mut saved, is_untrusted);
    handler.registry.restore(&saved.views, containers);
    let pending = handler.read_objects(&dir, &saved.files).map_err(failed)?;
    handler.log.append(handler.incarnation.record());
    handler.log.flush().map_err(failed)?;
    Ok((handler, pending))
}

/// Returns the containers as they were saved, indexed by number; `None` for a forgotten one. If the end of the log may
/// be lost (`is_untrusted`), each has to be listed again.
fn saved_containers(saved: &mut SavedState, is_untrusted: bool) -> Vec<Option<SavedContainer>> {
    let names = std::mem::take(&mut saved.containers);
    let container = |(number, name): (u32, Option<String>)| {
        let (covered, is_stale) = saved.listed.remove(&number).unwrap_or_default();
        let last_moment = saved.times.get(&number).copied();
        Some(SavedContainer { name: name?, covered, is_stale: is_stale || is_untrusted, last_moment })
    };
    (0..).zip(names).map(container).collect()
}

/// Creates the directory if it does not exist, and locks it against other handlers while the returned file is open.
fn lock(dir: &Path) -> Result<File, HandlerError> {
    let failed = |error: io::Error| HandlerError::new(dir, error.to_string());
    std::fs::create_dir_all(dir).map_err(failed)?;
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match log::hold(&file) {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(HandlerError::new(
            dir,
            "another event handler is using it; stop that one, or give this one another directory".to_owned(),
        )),
        Err(error) => Err(failed(error)),
    }
}

/// Renames all state files to `*.broken`, so that they can be examined and the handler begins with an empty state.
fn set_aside(dir: &Path, broken: &str) -> io::Result<()> {
    tracing::warn!(
        "{broken}; renaming the state files to *.broken and starting with an empty state: containers are listed again when clients open their views"
    );
    for name in FileName::all(dir)? {
        let path = name.path(dir);
        std::fs::rename(&path, path.with_extension("broken"))?;
    }
    Ok(())
}

impl Handler {
    /// Loads the objects from a snapshot and the logs after it. Returns those that have to be verified.
    fn read_objects(&self, dir: &Path, files: &[FileName]) -> io::Result<PendingVerifications> {
        let mut pending = PendingVerifications::new();
        let mut snapshot_versions = [0; SHARDS];
        for name in files {
            let Some(FrameReader { mut frames, .. }) = FrameReader::open(&name.path(dir))? else { continue };
            while let NextFrame::Frame(frame) = frames.next()? {
                for record in LogRecord::read_all(frame).unwrap_or_default() {
                    let is_log = matches!(name, FileName::Log(_));
                    self.apply_object_record(&record, is_log, &mut snapshot_versions, &mut pending);
                }
            }
        }
        Ok(pending)
    }

    /// Applies a record about a shard, about an object, or about an object's pending verification; ignores others. Ignores an object record of
    /// a log if the snapshot has it already, by the shard's version in `snapshot_versions`.
    fn apply_object_record(
        &self,
        record: &LogRecord<'_>,
        is_log: bool,
        snapshot_versions: &mut [u64; SHARDS],
        pending: &mut PendingVerifications,
    ) {
        let key = key_of(record.body);
        match record.kind {
            RecordKind::Shard if (record.number as usize) < SHARDS => {
                snapshot_versions[record.number as usize] = record.version;
                self.objects.set_departures_floor(record.number as usize, record.version);
            }
            RecordKind::VerifyPending => drop(pending.insert((record.number, key.into()))),
            RecordKind::Verified => drop(pending.remove(&(record.number, key.into()))),
            RecordKind::Object => {
                let shard = shard_of_object(record.number, key);
                if !is_log || record.version > snapshot_versions[shard] {
                    self.objects.load_record(record.number, record.body, record.version, is_log);
                }
            }
            _ => {}
        }
    }

    /// Queues the verification of the pending objects, and starts listings of the containers whose known state may be
    /// wrong.
    pub(super) async fn resume_pending_work(&self, pending: PendingVerifications) {
        let containers = self.registry.containers();
        let by_number: HashMap<u32, &Arc<Container>> =
            containers.values().map(|container| (container.number, container)).collect();
        let pending = pending
            .into_iter()
            .filter_map(|(number, key)| Some((Arc::clone(by_number.get(&number)?), key, None)));
        self.verifier.enqueue(pending.collect::<Vec<_>>()).await;
        for container in containers.values() {
            let is_stale = container.listing().is_stale();
            if is_stale {
                self.lister.relist(container);
            }
        }
    }
}
