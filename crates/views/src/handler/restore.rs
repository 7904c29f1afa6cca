//! Restores a handler from its state directory.
//!
//! Files that cannot be read are renamed, a warning is logged, and the state is rebuilt from the store, which has all
//! of it.

use super::change_log::{LogBuffer, LogRecord, RecordKind};
use super::container::{Container, View};
use super::frames::{FileName, FrameReader, NextFrame};
use super::matcher::Needs;
use super::object_record::{ByteReader, key_of};
use super::shard::Shard;
use super::state_dir::StateDir;
use super::verify::VerifyQueue;
use super::{Handler, HandlerError, HandlerParts, Registry, SHARDS, hash};
use crate::Rule;
use hashbrown::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::Timestamp;

/// Versions of incarnation N begin at N shifted left by this many bits. So a version that was assigned but not logged
/// before the process ended is not assigned again.
const INCARNATION_BITS: u32 = 40;

/// File with the machine's boot id (proc(5)). Without this file, every start counts as a new boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Content of the files, except the objects.
#[derive(Debug, Default)]
struct SavedState {
    files: Vec<FileName>,
    epoch: Option<u64>,
    incarnation: u32,
    boot: Vec<u8>,
    /// Views with the incarnation in which each was opened, indexed by number; `None` for a forgotten view.
    views: Vec<Option<(u32, Vec<Rule>)>>,
    containers: Vec<Option<String>>,
    /// By container: what was listed, and whether it has to be listed again.
    listed: HashMap<u32, (Vec<(String, Needs)>, bool)>,
    /// By container: the last moment for which clients were told the content of views with rules on ages.
    times: HashMap<u32, Timestamp>,
    /// Whether the last log ended in an incomplete frame, which was cut off.
    is_torn_at_end: bool,
}

/// Objects to verify, by container and key.
type PendingVerifications = HashSet<(u32, Box<[u8]>)>;

impl HandlerError {
    pub(super) fn new(dir: &Path, what: String) -> Self {
        Self { dir: dir.display().to_string(), what }
    }
}

/// Returns a handler with the saved state, and the objects that it has to verify first.
pub(super) fn restore(parts: HandlerParts) -> Result<(Arc<Handler>, PendingVerifications), HandlerError> {
    let Some(dir) = parts.dir.clone() else {
        let epoch = parts.entropy.next_u64();
        return Ok((Handler::new(parts, epoch, 1, None), PendingVerifications::new()));
    };
    let failed = |error: io::Error| HandlerError::new(&dir, error.to_string());
    let lock_file = lock(&dir)?;
    let saved = match read_saved_state(&dir).map_err(failed)? {
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
    let state_dir = StateDir::new(dir.clone(), epoch, next, lock_file).map_err(failed)?;
    let handler = Handler::new(parts, epoch, saved.incarnation + 1, Some((state_dir, boot)));
    handler.restore_registry(&saved, is_untrusted);
    let pending = handler.read_objects(&dir, &saved).map_err(failed)?;
    handler.log_record(handler.incarnation_record());
    handler.flush_log().map_err(failed)?;
    Ok((handler, pending))
}

/// Locks the directory against other handlers.
fn lock(dir: &Path) -> Result<File, HandlerError> {
    let failed = |error: io::Error| HandlerError::new(dir, error.to_string());
    std::fs::create_dir_all(dir).map_err(failed)?;
    let path = dir.join("lock");
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
    match store::hold(&file) {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(HandlerError::new(
            dir,
            "another event handler is using it; stop that one, or give this one another directory".to_owned(),
        )),
        Err(error) => Err(failed(error)),
    }
}

/// Reads everything except the objects. The inner error says which file is damaged.
fn read_saved_state(dir: &Path) -> io::Result<Result<SavedState, String>> {
    let names = FileName::all(dir)?;
    let snapshot = names.iter().rev().find(|name| matches!(name, FileName::Snapshot(_))).copied();
    let first = snapshot.map_or(0, FileName::number);
    let logs = names.into_iter().filter(|name| matches!(name, FileName::Log(number) if *number >= first));
    let files: Vec<FileName> = snapshot.into_iter().chain(logs).collect();
    let mut saved = SavedState { files: files.clone(), ..SavedState::default() };
    for name in &files {
        let is_last = Some(name) == files.last();
        if let Err(broken) = saved.read(dir, *name, is_last)? {
            return Ok(Err(broken));
        }
    }
    Ok(Ok(saved))
}

/// Reads everything except the objects, for the fuzz target.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz_saved_state(dir: &Path) -> io::Result<()> {
    read_saved_state(dir).map(drop)
}

impl SavedState {
    fn read(&mut self, dir: &Path, name: FileName, is_last: bool) -> io::Result<Result<(), String>> {
        let path = name.path(dir);
        let broken = |what: &str| Ok(Err(format!("{} {what}", path.display())));
        let Some(mut frames) = FrameReader::open(&path)? else {
            // A last log without a complete header holds no records.
            return if is_last && matches!(name, FileName::Log(_)) {
                Ok(Ok(()))
            } else {
                broken("has an unknown format")
            };
        };
        self.epoch = Some(frames.epoch);
        let mut is_whole = matches!(name, FileName::Log(_));
        let is_torn = loop {
            match frames.next()? {
                NextFrame::End => break false,
                NextFrame::Broken => break true,
                NextFrame::Frame(frame) => {
                    let Some(records) = LogRecord::read_all(frame) else {
                        return broken("has a malformed record");
                    };
                    for record in records {
                        is_whole |= record.kind == RecordKind::End;
                        if self.apply(&record).is_none() {
                            return broken("has a record that cannot be decoded");
                        }
                    }
                }
            }
        };
        if !is_whole || (is_torn && !is_last) {
            return broken("is damaged");
        }
        if is_torn {
            self.is_torn_at_end = true;
            OpenOptions::new().write(true).open(&path)?.set_len(frames.whole_bytes)?;
        }
        Ok(Ok(()))
    }

    fn apply(&mut self, record: &LogRecord<'_>) -> Option<()> {
        match record.kind {
            RecordKind::View if record.number as usize == self.views.len() => {
                let rules = crate::read(std::str::from_utf8(record.body).ok()?).ok()?.pop()?.rules;
                self.views.push(Some((record.version as u32, rules)));
            }
            RecordKind::Container if record.number as usize == self.containers.len() => {
                self.containers.push(Some(String::from_utf8(record.body.to_vec()).ok()?));
            }
            // A log may repeat records that the snapshot has.
            RecordKind::View if record.number as usize > self.views.len() => return None,
            RecordKind::Container if record.number as usize > self.containers.len() => return None,
            RecordKind::View | RecordKind::Container => {}
            RecordKind::ViewForgotten => *entry_mut(&mut self.views, record.number)? = None,
            RecordKind::ContainerForgotten => *entry_mut(&mut self.containers, record.number)? = None,
            RecordKind::Listed => {
                drop(self.listed.insert(record.number, (read_covered(record.body)?, false)))
            }
            RecordKind::Stale => self.listed.entry(record.number).or_default().1 = true,
            RecordKind::Incarnation => {
                self.incarnation = record.number;
                self.boot = record.body.to_vec();
            }
            RecordKind::Time => drop(self.times.insert(record.number, Timestamp(record.version as i64))),
            RecordKind::Object
            | RecordKind::VerifyPending
            | RecordKind::Verified
            | RecordKind::Shard
            | RecordKind::End => {}
        }
        Some(())
    }
}

/// Returns the entry of a number, which is added if it is the next one.
fn entry_mut<T>(all: &mut Vec<Option<T>>, number: u32) -> Option<&mut Option<T>> {
    if number as usize == all.len() {
        all.push(None);
    }
    all.get_mut(number as usize)
}

fn read_covered(body: &[u8]) -> Option<Vec<(String, Needs)>> {
    let mut rest = ByteReader(body);
    let mut covered = Vec::new();
    while !rest.0.is_empty() {
        let needs = Needs::from_bits(rest.take(1)?[0]);
        let bytes = u32::from_le_bytes(rest.array()?);
        covered.push((String::from_utf8(rest.take(bytes as usize)?.to_vec()).ok()?, needs));
    }
    Some(covered)
}

/// Renames all state files to `*.broken`, so that they can be examined and the handler begins with an empty state.
fn set_aside(dir: &Path, broken: &str) -> io::Result<()> {
    tracing::warn!("{broken}; renaming the state files to *.broken and listing the containers again");
    for name in FileName::all(dir)? {
        let path = name.path(dir);
        std::fs::rename(&path, path.with_extension("broken"))?;
    }
    Ok(())
}

impl Handler {
    fn new(
        parts: HandlerParts,
        epoch: u64,
        incarnation: u32,
        saving: Option<(StateDir, Vec<u8>)>,
    ) -> Arc<Self> {
        let HandlerParts { buckets, clock, config, .. } = parts;
        let first = u64::from(incarnation) << INCARNATION_BITS;
        let buffer =
            |shard| saving.as_ref().map(|(state_dir, _)| LogBuffer::new(shard, &state_dir.unwritten_shards));
        let shards = (0..SHARDS).map(|shard| Mutex::new(Shard::new(first, buffer(shard)))).collect();
        let (state_dir, boot) =
            saving.map_or((None, Vec::new()), |(state_dir, boot)| (Some(state_dir), boot));
        Arc::new_cyclic(|weak_self| Self {
            weak_self: weak_self.clone(),
            buckets,
            clock,
            config,
            epoch,
            incarnation,
            boot,
            shards,
            registry: Mutex::new(Registry::default()),
            verify_queue: VerifyQueue::default(),
            state_dir,
            counts: Default::default(),
            change_counter: Default::default(),
        })
    }

    /// Restores the views and containers.
    fn restore_registry(&self, saved: &SavedState, is_untrusted: bool) {
        let mut registry = self.registry();
        for (number, view) in (0..).zip(&saved.views) {
            match view {
                Some((incarnation, rules)) => {
                    registry.add(&Arc::new(View::new(number, *incarnation, rules.clone(), self.clock.now())));
                }
                None => registry.views.push(None),
            }
        }
        let mut containers = HashMap::new();
        registry.container_count = saved.containers.len() as u32;
        for (number, name) in (0..).zip(&saved.containers) {
            let Some(name) = name else { continue };
            let time = saved.times.get(&number).copied();
            let now = time.unwrap_or_else(|| self.clock.now());
            let container = Arc::new(Container::new(number, name.as_str().into(), now));
            container.rules().last_moment = time;
            registry.views_of(name).for_each(|view| container.add_view(view));
            self.rebuild_matcher_at(&container, now);
            let (covered, is_stale) = saved.listed.get(&number).cloned().unwrap_or_default();
            let mut listing = container.listing();
            listing.is_stale = !covered.is_empty() && (is_stale || is_untrusted);
            listing.covered = covered;
            drop(listing);
            containers.insert(Arc::clone(&container.name), container);
        }
        registry.containers = Arc::new(containers);
    }

    fn read_objects(&self, dir: &Path, saved: &SavedState) -> io::Result<PendingVerifications> {
        let mut pending = PendingVerifications::new();
        let mut snapshot_versions = [0; SHARDS];
        for name in &saved.files {
            let Some(mut frames) = FrameReader::open(&name.path(dir))? else { continue };
            while let NextFrame::Frame(frame) = frames.next()? {
                for record in LogRecord::read_all(frame).unwrap_or_default() {
                    let is_log = matches!(name, FileName::Log(_));
                    self.apply_object_record(&record, is_log, &mut snapshot_versions, &mut pending);
                }
            }
        }
        Ok(pending)
    }

    fn apply_object_record(
        &self,
        record: &LogRecord<'_>,
        is_log: bool,
        snapshot_versions: &mut [u64; SHARDS],
        pending: &mut PendingVerifications,
    ) {
        let key = key_of(record.body);
        let hash = hash(record.number, key);
        let number = super::shard_of(hash);
        match record.kind {
            RecordKind::Shard if (record.number as usize) < SHARDS => {
                snapshot_versions[record.number as usize] = record.version;
                self.shard_at(record.number as usize).set_departures_floor(record.version);
            }
            RecordKind::VerifyPending => drop(pending.insert((record.number, key.into()))),
            RecordKind::Verified => drop(pending.remove(&(record.number, key.into()))),
            RecordKind::Object => {
                if (!is_log || record.version > snapshot_versions[number])
                    && let Some((table, _)) = self.shard_at(number).table(record.number)
                {
                    table.load_record(hash, record.body, record.version, is_log);
                }
            }
            _ => {}
        }
    }

    /// Verifies the objects and lists the containers whose state may have changed while no handler ran.
    pub(super) async fn resume_pending_work(&self, pending: PendingVerifications) {
        let containers = self.containers();
        let by_number: HashMap<u32, &Arc<Container>> =
            containers.values().map(|container| (container.number, container)).collect();
        let pending = pending
            .into_iter()
            .filter_map(|(number, key)| Some((Arc::clone(by_number.get(&number)?), key, None)));
        self.verify_later(pending.collect()).await;
        for container in containers.values() {
            let is_stale = container.listing().is_stale;
            if is_stale {
                self.relist(container);
            }
        }
    }
}
