//! Hints: reports of event sources and other clients that objects changed.
//!
//! Decides what each hint requires. Most hints confirm known state, or are about names that nothing here depends on. The other
//! keys are looked up. If there are too many, their directories are marked stale instead, and listed on the next lookup.
//!
//! Invariant: a hint is not trusted. A hint that differs from the known state leads to a lookup or marks a directory stale. So
//! late, repeated and reordered hints do no harm, if at least one hint follows the last change.

use futures_util::{StreamExt as _, stream};
use meta::{Ino, Inode, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef};

use crate::Result;
use crate::base::Base;
use crate::bucket::discovery::Discovery;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::followers::front_ends::push_invalidations;
use crate::followers::invalidation::Invalidation;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::inodes::KnownPath;

/// Processes reports that objects changed.
#[derive(Debug)]
pub struct Hints {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) metadata: Arc<Metadata>,
    pub(in crate::bucket) locks: Arc<ChangeLocks>,
    pub(in crate::bucket) discovery: Arc<Discovery>,
}

impl Hints {
    pub(crate) fn new(base: &Base, parts: &BucketParts, discovery: &Arc<Discovery>) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            metadata: parts.metadata.clone(),
            locks: parts.locks.clone(),
            discovery: discovery.clone(),
        })
    }
}

/// Maximum objects to look up for hints that arrive together. For more it is cheaper to mark their directories stale,
/// of which only those that programs use are then listed.
const LOOKS_MAX: usize = 128;
/// Maximum concurrent lookups.
const LOOKS_AT_ONCE: usize = 32;
/// Maximum wait until a change of the object by this mount has ended.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);

/// A report that an object of the bucket changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The object's full key.
    pub key: ObjectKey,
    /// The reported state.
    pub state: ReportedState,
}

/// The state of an object that a hint reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedState {
    /// The object exists, with these properties.
    Stored {
        /// The etag.
        etag: Option<ETag>,
        /// Length in bytes.
        size_bytes: Option<u64>,
        /// All of its user metadata.
        user: Option<BTreeMap<String, String>>,
    },
    /// The object was removed.
    Removed,
    /// The object was changed in some way.
    Changed,
}

/// The action that a hint requires.
enum HintAction {
    /// The hint reports a known state, or a name on which nothing here depends.
    Ignore,
    /// Lookups will ask the bucket anyway, but the kernel may have cached an old answer.
    Invalidate,
    /// The key must be looked up in the bucket.
    Look,
}

impl Hints {
    /// Processes hints. When this returns, programs see the reported changes, or the next lookup asks the bucket. Hints about
    /// names that nothing here depends on are free. Other hints that differ from the known state cost one request each, unless
    /// they are too many. Does nothing in a volume named by inode, where keys have no names.
    pub async fn process(&self, hints: Vec<Hint>) -> Result<()> {
        let (mut wanted, mut invalidations) = (Vec::new(), Vec::new());
        for hint in merge_by_key(hints) {
            match self.action_for(&hint)? {
                HintAction::Ignore => {}
                HintAction::Invalidate => self.invalidate_key(&hint.key, &mut invalidations)?,
                HintAction::Look => wanted.push(hint),
            }
        }
        let unresolved = match wanted.len() <= LOOKS_MAX {
            true => self.look_up_all(wanted).await,
            false => wanted,
        };
        let mut done = BTreeSet::new();
        for hint in &unresolved {
            self.mark_stale(hint, &mut done, &mut invalidations)?;
        }
        self.names.deliver_patiently(&invalidations).await;
        Ok(())
    }

    /// Marks everything seen until now as stale, because hints may have been lost.
    pub async fn mark_all_stale(&self) {
        self.known.directories().mark_all_stale(self.mount.moment());
        self.metadata.cache().forget_all();
        let mut after = None;
        while let Some((last, invalidations)) = self.names.invalidations_after(after, push_invalidations) {
            after = Some(last);
            self.names.deliver_patiently(&invalidations).await;
        }
    }

    /// Returns what a hint requires. Forgets cached state that the hint shows to be outdated.
    fn action_for(&self, hint: &Hint) -> Result<HintAction> {
        let Some(path) = self.names.known_path(&hint.key)? else { return Ok(HintAction::Ignore) };
        // The key is the marker of a known directory.
        let Some(name) = &path.next else { return Ok(HintAction::Look) };
        let shown = self.visible_name_of(&path, name)?;
        let known = self.names.tables().lookup(path.dir, &shown)?;
        if path.is_last && known.as_ref().is_some_and(|inode| self.confirms_known_state(inode, hint)) {
            return Ok(HintAction::Ignore);
        }
        // A listing under way may have been requested before this change.
        self.known.directories().note_change(path.dir);
        let Some(inode) = known else {
            // An unknown name matters only if a listing says that it does not exist.
            let is_news = hint.state != ReportedState::Removed && self.known.is_listed(path.dir, name)?;
            return Ok(if is_news { HintAction::Look } else { HintAction::Ignore });
        };
        self.metadata.cache().forget(inode.ino);
        let is_trusted =
            self.known.is_trusted(path.dir, inode.observed_at) || self.known.is_listed(path.dir, name)?;
        let is_open = self.content.files().get(inode.ino).is_some();
        Ok(if is_trusted || is_open { HintAction::Look } else { HintAction::Invalidate })
    }

    /// Returns whether a hint confirms the known state of an inode. Most hints do, as they report changes made by this
    /// mount.
    fn confirms_known_state(&self, inode: &Inode, hint: &Hint) -> bool {
        let ReportedState::Stored { etag: Some(etag), size_bytes, user } = &hint.state else { return false };
        let Some(object) = inode.object().filter(|object| object.etag == *etag) else { return false };
        if size_bytes.is_some_and(|size_bytes| size_bytes != inode.size_bytes) {
            return false;
        }
        if !self.known.reads_headers() {
            // The object's metadata may have changed. It is read again when needed.
            self.metadata.cache().forget(inode.ino);
            return true;
        }
        let Some(user) = user.clone().filter(|_| inode.exact) else { return false };
        let last_modified = object.last_modified;
        let object = ObjectRef { last_modified, ..ObjectRef::new(hint.key.clone(), etag.clone()) };
        let attributes = Attributes { user, ..Attributes::default() };
        let meta = ObjectMeta { object, size_bytes: inode.size_bytes, attributes, tag_count: None };
        let reported = headers::observed(&meta, false, &self.mount.defaults, inode.observed_at);
        (reported.kind, reported.mode, reported.uid, reported.gid, reported.mtime)
            == (inode.kind, inode.mode, inode.uid, inode.gid, inode.mtime)
    }

    /// Looks up the keys of hints. Returns the hints whose lookup failed.
    async fn look_up_all(&self, hints: Vec<Hint>) -> Vec<Hint> {
        let look = |hint: Hint| async move { (self.look_up_once_settled(&hint).await, hint) };
        let mut looks = stream::iter(hints.into_iter().map(look)).buffer_unordered(LOOKS_AT_ONCE);
        let mut unanswered = Vec::new();
        while let Some((seen, hint)) = looks.next().await {
            match seen {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(key = %hint.key, %error, "cannot look up a key that was reported as changed; the next lookup asks the bucket");
                    unanswered.push(hint);
                }
            }
        }
        unanswered
    }

    /// Waits for this mount's own change of the key before looking it up. A hint may arrive before the answer to the request
    /// that it reports; after that answer no lookup is needed.
    async fn look_up_once_settled(&self, hint: &Hint) -> Result<()> {
        drop(tokio::time::timeout(SETTLED_WITHIN, self.locks.key_locks().lock(&hint.key)).await);
        match self.action_for(hint)? {
            HintAction::Look => self.discovery.look_up(&hint.key).await,
            _ => Ok(()),
        }
    }

    /// Marks the directory of a hinted key as stale, so that the next lookup asks the bucket; also the directories
    /// above, unless the hint says that the object exists. `done` has the directories marked so far, `invalidations`
    /// collects what kernels must drop.
    fn mark_stale(
        &self,
        hint: &Hint,
        done: &mut BTreeSet<Ino>,
        invalidations: &mut Vec<Invalidation>,
    ) -> Result<()> {
        let Some(path) = self.names.known_path(&hint.key)? else { return Ok(()) };
        self.invalidate_key(&hint.key, invalidations)?;
        let mut dir = path.dir;
        loop {
            let now = self.mount.moment();
            if done.insert(dir) {
                self.known.directories().mark_stale(dir, now);
                invalidations.push(Invalidation::Attributes(dir));
            }
            // A directory may have been removed together with its last object.
            match self.names.tables().inode(dir)?.home {
                Some((above, _)) if !matches!(hint.state, ReportedState::Stored { .. }) => dir = above,
                _ => return Ok(()),
            }
        }
    }

    /// Adds invalidations of what kernels know under a key's name.
    fn invalidate_key(&self, key: &ObjectKey, invalidations: &mut Vec<Invalidation>) -> Result<()> {
        let Some(path) = self.names.known_path(key)? else { return Ok(()) };
        let Some(name) = &path.next else { return Ok(()) };
        let shown = self.visible_name_of(&path, name)?;
        match self.names.tables().lookup(path.dir, &shown)? {
            Some(inode) => push_invalidations(&inode, invalidations),
            None => invalidations.push(Invalidation::entry(path.dir, shown.as_bytes())),
        }
        Ok(())
    }

    /// Returns the visible name for the next component of a key. An object that shares its name with a directory has an escaped
    /// name.
    fn visible_name_of(&self, path: &KnownPath, name: &Name) -> Result<Name> {
        if path.is_last { self.names.visible_name(path.dir, name) } else { Ok(name.clone()) }
    }
}

/// Merges hints into one for each key. Contradicting hints become `Changed`.
fn merge_by_key(hints: Vec<Hint>) -> impl Iterator<Item = Hint> {
    let mut by_key = BTreeMap::<ObjectKey, ReportedState>::new();
    for Hint { key, state } in hints {
        match by_key.get_mut(&key) {
            Some(before) if *before != state => *before = ReportedState::Changed,
            Some(_) => {}
            None => {
                by_key.insert(key, state);
            }
        }
    }
    by_key.into_iter().map(|(key, state)| Hint { key, state })
}
