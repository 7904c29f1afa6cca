//! Settings of directories that a mount renamed, created or removed, in a volume named by path.
//!
//! The documents of such a directory are stored under its name, so they have to follow a rename. A rename must not wait for the
//! bucket to copy them: its commit also writes a note, an attribute of the root that says whose documents a name has from now
//! on. The next access to any bucket's settings moves the documents first.
//!
//! Invariants: a note is in the same commit as its rename; while a name has a note, the documents under the name are not read;
//! a note is removed once the documents are where it says, and before anything new is stored there.
//!
//! Not covered: renames by other mounts of the bucket take effect only when an endpoint of the renaming machine reads settings.

use bytes::Bytes;
use meta::{FsError, Ino, Name, Op, Origin, XattrHow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::{ListEntry, ListRequest, ObjectKey, Pages, Payload, PutOptions, bucket_name};

use super::errors::{error_about, namespace_error_about};
use crate::Result;
use crate::base::Base;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::mount::Mount;
use crate::names::Names;
use crate::objects::settings_cache::SettingsCache;

/// The documents of buckets, and the notes of those that have to move.
#[derive(Debug)]
pub(crate) struct BucketSettings {
    pub(in crate::objects) me: Weak<Self>,
    pub(in crate::objects) mount: Arc<Mount>,
    pub(in crate::objects) names: Arc<Names>,
    pub(in crate::objects) locks: Arc<ChangeLocks>,
    pub(in crate::objects) known: Arc<KnownState>,
    pub(in crate::objects) cache: SettingsCache,
    pub(in crate::objects) notes: MovedSettings,
}

impl BucketSettings {
    pub(crate) fn new(base: &Base, parts: &BucketParts) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            locks: parts.locks.clone(),
            known: parts.known.clone(),
            cache: SettingsCache::default(),
            notes: MovedSettings::default(),
        })
    }

    /// Returns the cache.
    pub(crate) fn cache(&self) -> &SettingsCache {
        &self.cache
    }
}

/// Prefix of the root's attributes that are notes; a directory's name follows.
const PREFIX: &[u8] = b"tenon.settings.";
/// Notes that may wait for an access to settings; beyond that they are processed in the background.
const WAITING_MAX: usize = 100;
/// Notes to remove in one commit.
const ENDED_AT_ONCE: usize = 256;

/// State of the notes of a volume.
#[derive(Debug, Default)]
pub(crate) struct MovedSettings {
    /// Upper bound of the number of notes; 0: none.
    waiting: AtomicUsize,
    /// Serializes changes of notes, which are read before they are written.
    noting: Mutex<()>,
    /// Serializes moves of documents.
    moving: tokio::sync::Mutex<()>,
    /// Whether a background task moves documents.
    has_task: AtomicBool,
}

/// For each name with a note, the name under which its documents are stored; empty: it has none.
type Notes = BTreeMap<Vec<u8>, Vec<u8>>;

impl MovedSettings {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.noting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }
}

/// The one background task that moves documents. Another one can begin once this guard is dropped.
struct MovingTask(Arc<BucketSettings>);

impl MovingTask {
    fn begin(settings: Arc<BucketSettings>) -> Option<Self> {
        let is_first = !settings.notes.has_task.swap(true, Ordering::AcqRel);
        is_first.then(|| Self(settings))
    }

    /// Moves documents until no note is left. Notes that fail to move wait for the next access to settings, or for further notes.
    async fn run(self) {
        if let Err(error) = self.0.move_pending_settings().await {
            tracing::debug!(%error, "settings of renamed directories could not be moved yet");
            return;
        }
        let settings = self.0.clone();
        drop(self);
        // A note that was written after the last look found this task, and began no other.
        if settings.notes.has_waiting() {
            settings.move_in_background();
        }
    }
}

impl Drop for MovingTask {
    fn drop(&mut self) {
        self.0.notes.has_task.store(false, Ordering::Release);
    }
}

impl BucketSettings {
    /// Counts the notes that an earlier mount left.
    pub(crate) fn load_moved_settings(&self) -> Result<()> {
        self.notes.waiting.store(self.settings_notes()?.len(), Ordering::Release);
        Ok(())
    }

    /// Commits changes of names together with notes: `to` gets the documents of `from`, and `from` has none from now on. Either
    /// may be a place that is not a bucket.
    pub(crate) fn commit_with_settings<T>(
        &self,
        from: Option<(Ino, &Name)>,
        to: Option<(Ino, &Name)>,
        commit: impl FnOnce(Vec<Op>) -> Result<T>,
    ) -> Result<T> {
        let (from, to) = (self.bucket_at(from), self.bucket_at(to));
        if from.is_none() && to.is_none() {
            return commit(Vec::new());
        }
        let _noting = self.notes.lock();
        let source = match from {
            None => Vec::new(),
            Some(from) => self.settings_note(from)?.unwrap_or_else(|| from.to_vec()),
        };
        let notes = [to.map(|to| note(to, source)), from.map(|from| note(from, Vec::new()))];
        let ops: Vec<Op> = notes.into_iter().flatten().collect();
        let noted = ops.len();
        let done = commit(ops)?;
        let waiting = self.notes.waiting.fetch_add(noted, Ordering::AcqRel) + noted;
        if waiting > WAITING_MAX || self.known.sharing().is_some() {
            self.move_in_background();
        }
        Ok(done)
    }

    /// Starts a task that moves the documents of all notes, unless one is at work.
    fn move_in_background(&self) {
        if let Some(task) = self.me.upgrade().and_then(MovingTask::begin) {
            tokio::spawn(task.run());
        }
    }

    /// Notes that a directory that was just created has no documents. Those of an earlier directory of that name may still be
    /// there if another client removed it.
    pub(crate) fn forget_settings_of(&self, parent: Ino, name: &Name) -> Result<()> {
        self.commit_with_settings(None, Some((parent, name)), |notes| match notes.is_empty() {
            true => Ok(()),
            false => Ok(self.names.commit_together(Origin::Bookkeeping, &notes).map(drop)?),
        })
    }

    /// Returns the name of a place, if it is a bucket whose documents are stored under its name.
    fn bucket_at<'n>(&self, place: Option<(Ino, &'n Name)>) -> Option<&'n [u8]> {
        let (_, name) =
            place.filter(|(parent, _)| *parent == Ino::ROOT && self.mount.rules.names_documents_by_bucket)?;
        let is_bucket =
            std::str::from_utf8(name.as_bytes()).is_ok_and(|text| bucket_name::check(text).is_ok());
        is_bucket.then_some(name.as_bytes())
    }

    /// Returns the name under which a bucket's documents are stored, if they have not moved yet. This happens only on a
    /// read-only mount.
    pub(crate) fn settings_source(&self, bucket: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.notes.waiting.load(Ordering::Acquire) {
            0 => Ok(None),
            _ => self.settings_note(bucket),
        }
    }

    /// Returns the name under which the documents of a bucket are stored; `None` if there is no note of it.
    fn settings_note(&self, bucket: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.names.tables().xattr(Ino::ROOT, &attribute(bucket)) {
            Ok(source) => Ok(Some(source.to_vec())),
            Err(FsError::NoData) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn settings_notes(&self) -> Result<Notes> {
        let mut notes = Notes::new();
        for attribute in self.names.tables().xattrs(Ino::ROOT)? {
            if let Some(bucket) = attribute.strip_prefix(PREFIX)
                && let Some(source) = self.settings_note(bucket)?
            {
                notes.insert(bucket.to_vec(), source);
            }
        }
        Ok(notes)
    }

    /// Moves documents to where the notes say.
    pub(crate) async fn move_pending_settings(&self) -> store::Result<()> {
        if !self.notes.has_waiting() {
            return Ok(());
        }
        let _moving = self.notes.moving.lock().await;
        let root = ObjectKey::try_from("/")?;
        let documented = self.documented_buckets().await?;
        loop {
            let notes = self.waiting_notes().map_err(error_about(&root))?;
            if notes.is_empty() {
                return Ok(());
            }
            match next_step(&notes, |name| name.starts_with(b"#") || documented.contains(name)) {
                NextStep::End(ended) => self.end_notes(&ended).map_err(error_about(&root))?,
                NextStep::Move { to, from } => {
                    self.move_settings(from, to).await?;
                    self.end_notes(&[(to, from)]).map_err(error_about(&root))?;
                }
                NextStep::BreakCycle => self.break_cycle(&notes).await?,
            }
            // New documents must not be stored before the removal of the note is durable, or a crash would bring the note back.
            self.names.sync_names_unless_write_back().await.map_err(error_about(&root))?;
        }
    }

    /// Reads the notes, and counts them.
    fn waiting_notes(&self) -> Result<Notes> {
        let _noting = self.notes.lock();
        let notes = self.settings_notes()?;
        self.notes.waiting.store(notes.len(), Ordering::Release);
        Ok(notes)
    }

    /// Returns the names that have documents.
    async fn documented_buckets(&self) -> store::Result<BTreeSet<Vec<u8>>> {
        let prefix = self.settings_of(b"")?;
        let request = ListRequest {
            prefix: prefix.clone(),
            delimiter: Some(b'/'),
            limit: 1000,
            ..ListRequest::default()
        };
        let entries = Pages::new(self.mount.store.as_ref(), request).collect().await?;
        let name = |entry: &ListEntry| match entry {
            ListEntry::Prefix(text) => Some(text.strip_prefix(&*prefix)?.strip_suffix(b"/")?.to_vec()),
            ListEntry::Object(_) => None,
        };
        Ok(entries.iter().filter_map(name).collect())
    }

    /// Returns the key prefix of a name's documents; for an empty name, the prefix of all documents.
    fn settings_of(&self, bucket: &[u8]) -> store::Result<Bytes> {
        let root = ObjectKey::try_from("/")?;
        let key = self
            .mount
            .layout
            .setting_key(if bucket.is_empty() { b"_" } else { bucket }, "_")
            .map_err(error_about(&root))?;
        let surplus = if bucket.is_empty() { "_/_".len() } else { "_".len() };
        Ok(Bytes::copy_from_slice(&key.as_bytes()[..key.as_bytes().len() - surplus]))
    }

    /// Replaces the documents of `to` by those of `from`. The documents of `from` stay: that name has a note of its own.
    async fn move_settings(&self, from: &[u8], to: &[u8]) -> store::Result<()> {
        let target = self.settings_of(to)?;
        let mut surplus: BTreeSet<ObjectKey> = self.documents(&target).await?.into_iter().collect();
        if !from.is_empty() {
            let source = self.settings_of(from)?;
            for document in self.documents(&source).await? {
                let Some(text) = self.read_setting(&document).await? else { continue };
                let key = ObjectKey::new([&*target, &document.as_bytes()[source.len()..]].concat())?;
                let _key_lock = self.locks.key_locks().lock(&key).await;
                self.mount.store.put(&key, Payload::from(text), PutOptions::default()).await?;
                self.cache.remove(&key);
                surplus.remove(&key);
            }
        }
        for key in surplus {
            let _key_lock = self.locks.key_locks().lock(&key).await;
            self.remove_setting(&key).await?;
            self.cache.remove(&key);
        }
        self.mount.store.sync().await
    }

    /// Returns the keys of the documents below a prefix.
    async fn documents(&self, prefix: &Bytes) -> store::Result<Vec<ObjectKey>> {
        let request = ListRequest { prefix: prefix.clone(), limit: 1000, ..ListRequest::default() };
        let entries = Pages::new(self.mount.store.as_ref(), request).collect().await?;
        entries.iter().map(|entry| Ok(ObjectKey::try_from(entry.text())?)).collect()
    }

    /// Removes notes, except those that have changed.
    fn end_notes(&self, ended: &[Note<'_>]) -> Result<()> {
        for batch in ended.chunks(ENDED_AT_ONCE) {
            let _noting = self.notes.lock();
            let mut ops = Vec::with_capacity(batch.len());
            for (bucket, source) in batch {
                if self.settings_note(bucket)?.as_deref() == Some(*source) {
                    ops.push(Op::RemoveXattr { ino: Ino::ROOT, name: attribute(bucket) });
                }
            }
            if !ops.is_empty() {
                self.names.commit_together(Origin::Bookkeeping, &ops)?;
            }
        }
        Ok(())
    }

    /// Breaks a cycle of names that have each other's documents: moves one name's documents aside, under a name that no bucket
    /// can have.
    async fn break_cycle(&self, notes: &Notes) -> store::Result<()> {
        let Some((name, _)) = notes.first_key_value() else { return Ok(()) };
        let aside = [b"#", name.as_slice()].concat();
        self.move_settings(name, &aside).await?;
        let _noting = self.notes.lock();
        let root = ObjectKey::try_from("/")?;
        let now = self.settings_notes().map_err(error_about(&root))?;
        let users = now.iter().filter(|(to, from)| *from == name && *to != name);
        let users = users.map(|(to, _)| note(to, aside.clone()));
        let ops: Vec<Op> = users.chain([note(&aside, Vec::new())]).collect();
        self.names.commit_together(Origin::Bookkeeping, &ops).map(drop).map_err(namespace_error_about(&root))
    }
}

/// A name, and the name under which its documents are stored.
type Note<'n> = (&'n [u8], &'n [u8]);

/// The next step of moving documents.
#[derive(Debug, PartialEq, Eq)]
enum NextStep<'n> {
    /// Remove notes whose names have no documents, and get none.
    End(Vec<Note<'n>>),
    /// Move the documents of one name.
    Move { to: &'n [u8], from: &'n [u8] },
    /// Every name has the documents of another one.
    BreakCycle,
}

/// Returns the next step. A name whose documents another name needs is left for a later step.
fn next_step(notes: &Notes, may_have_documents: impl Fn(&[u8]) -> bool) -> NextStep<'_> {
    let sources: BTreeSet<&[u8]> =
        notes.iter().filter(|(to, from)| to != from).map(|(_, from)| from.as_slice()).collect();
    let free = notes.iter().filter(|(to, _)| !sources.contains(to.as_slice()));
    let (ended, moved): (Vec<Note<'_>>, Vec<Note<'_>>) = free
        .map(|(to, from)| (to.as_slice(), from.as_slice()))
        .partition(|(to, from)| to == from || !may_have_documents(to) && !may_have_documents(from));
    match moved.first() {
        _ if !ended.is_empty() => NextStep::End(ended),
        Some(&(to, from)) => NextStep::Move { to, from },
        None => NextStep::BreakCycle,
    }
}

/// Returns the name of the root's attribute that is the note of a bucket.
fn attribute(bucket: &[u8]) -> Box<[u8]> {
    [PREFIX, bucket].concat().into()
}

/// Returns the op that notes under which name the documents of a bucket are stored.
fn note(bucket: &[u8], source: Vec<u8>) -> Op {
    Op::SetXattr { ino: Ino::ROOT, name: attribute(bucket), value: source.into(), how: XattrHow::Set }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(all: &[(&str, &str)]) -> Notes {
        all.iter().map(|(to, from)| (to.as_bytes().to_vec(), from.as_bytes().to_vec())).collect()
    }

    /// Regression: each note of a created or removed directory took a step, a commit and a sync of its own.
    #[test]
    fn notes_without_documents_end_together() {
        let waiting = notes(&[("gone", ""), ("made", ""), ("mine", "mine"), ("to", "from")]);
        let ended: [Note<'_>; 3] = [(b"gone", b""), (b"made", b""), (b"mine", b"mine")];
        assert_eq!(
            next_step(&waiting, |name| name == b"from" || name == b"mine"),
            NextStep::End(ended.to_vec())
        );
        let waiting = notes(&[("to", "from")]);
        assert_eq!(next_step(&waiting, |name| name == b"from"), NextStep::Move { to: b"to", from: b"from" });
    }

    #[test]
    fn documents_that_another_name_needs_are_moved_later() {
        let chain = notes(&[("a", ""), ("b", "a"), ("c", "b")]);
        assert_eq!(next_step(&chain, |_| true), NextStep::Move { to: b"c", from: b"b" });
        assert_eq!(next_step(&notes(&[("a", "b"), ("b", "a")]), |_| true), NextStep::BreakCycle);
    }
}
