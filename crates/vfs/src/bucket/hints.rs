//! What others say happened to objects, for kernels and tables that may believe things for long.
//!
//! Owns what a hint is worth: most name what is known already, or what nobody here has asked for. The rest is looked at; when that
//! is much at once, the directories are doubted instead, and listed when somebody looks at them.
//!
//! Invariant: a hint is not believed. What differs from it is looked at or doubted, so that hints which come late, twice or out of
//! order do no harm, as long as one comes after the last change.

use futures_util::{StreamExt as _, stream};
use meta::{Ino, Inode, Kind, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef};

use crate::bucket::headers;
use crate::bucket::observe::KnownPath;
use crate::names::invalidation::Invalidation;
use crate::{Filesystem, Result};

/// Objects looked at for hints that come at once. For more it is cheaper to list, and only where somebody looks.
const LOOKS_MAX: usize = 128;
/// Of them at the same time.
const LOOKS_AT_ONCE: usize = 32;
/// How long somebody here who changes an object may take to be done with it.
const SETTLED_WITHIN: Duration = Duration::from_secs(1);
/// Inodes of the kernel that it is told of at once.
const BATCH: usize = 1024;

/// What somebody says of an object of the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Its full key.
    pub key: ObjectKey,
    /// What.
    pub says: Says,
}

/// What can be said of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// It is there, with these bytes.
    Stored {
        /// Which.
        etag: Option<ETag>,
        /// How many.
        size_bytes: Option<u64>,
        /// All of its user metadata.
        user: Option<BTreeMap<String, String>>,
    },
    /// It is gone.
    Removed,
    /// Something of it is other than it was.
    Changed,
}

/// What is to be done about a hint.
enum HintAction {
    Ignore,
    /// Who asks will be answered by the bucket, but a kernel may still believe what it was told.
    Invalidate,
    Look,
}

impl Filesystem {
    /// Hears what others say happened to objects. When this returns, programs see it, or whoever asks next asks the bucket.
    /// What nobody here has asked for costs nothing; what is named otherwise than it is known costs a request, unless it is much.
    /// In a volume named by inode keys mean nothing.
    pub async fn hear(&self, hints: Vec<Hint>) -> Result<()> {
        let (mut wanted, mut news) = (Vec::new(), Vec::new());
        for hint in merge_by_key(hints) {
            match self.action_for(&hint)? {
                HintAction::Ignore => {}
                HintAction::Invalidate => self.invalidate_key(&hint.key, &mut news)?,
                HintAction::Look => wanted.push(hint),
            }
        }
        let doubted = match wanted.len() <= LOOKS_MAX {
            true => self.look_up_all(wanted, &mut news).await,
            false => wanted,
        };
        let mut done = BTreeSet::new();
        for hint in &doubted {
            self.mark_stale(hint, &mut done, &mut news)?;
        }
        self.invalidations.deliver_patiently(&news).await;
        Ok(())
    }

    /// Hints were lost, or nobody knows whether there were any: nothing that was seen until now is believed any more.
    pub async fn doubt_everything(&self) {
        self.directories.mark_all_stale(self.moment());
        self.metadata_cache.forget_all();
        let mut after = None;
        while let Some((last, news)) = self.invalidations_after(after, push_invalidations) {
            after = Some(last);
            self.invalidations.deliver_patiently(&news).await;
        }
    }

    /// What a front end drops after an [`Invalidation::Everything`]: attributes, data and names of a bounded number of the
    /// inodes after one that front ends hold, with the last of these inodes.
    pub fn everything_held(&self, after: Option<Ino>) -> Option<(Ino, Vec<Invalidation>)> {
        self.invalidations_after(after, |inode, news| {
            push_invalidations(inode, news);
            news.push(Invalidation::Inode(inode.ino));
        })
    }

    fn invalidations_after(
        &self,
        after: Option<Ino>,
        invalidate: impl Fn(&Inode, &mut Vec<Invalidation>),
    ) -> Option<(Ino, Vec<Invalidation>)> {
        let held = self.references.after(after, BATCH);
        let last = *held.last()?;
        let mut news = Vec::with_capacity(3 * held.len());
        let inodes = self.names.inodes(&held).unwrap_or_default();
        for (ino, inode) in held.iter().zip(inodes.into_iter().chain(std::iter::repeat(None))) {
            match inode {
                Some(inode) => invalidate(&inode, &mut news),
                // The inode is gone: a program that still has its name asks again.
                None => news.push(Invalidation::Inode(*ino)),
            }
        }
        Some((last, news))
    }

    fn action_for(&self, hint: &Hint) -> Result<HintAction> {
        let Some(path) = self.known_path(&hint.key)? else { return Ok(HintAction::Ignore) };
        // The marker of a known directory.
        let Some(name) = &path.next else { return Ok(HintAction::Look) };
        let shown = self.visible_name_of(&path, name)?;
        let known = self.names.lookup(path.dir, &shown)?;
        if path.is_last && known.as_ref().is_some_and(|inode| self.confirms_known_state(inode, hint)) {
            return Ok(HintAction::Ignore);
        }
        // Who is just listing it may have asked before.
        self.directories.note_change(path.dir);
        let Some(inode) = known else {
            // That it is not there is known, or asked for.
            let is_news = hint.says != Says::Removed && self.is_listed(path.dir, name)?;
            return Ok(if is_news { HintAction::Look } else { HintAction::Ignore });
        };
        self.metadata_cache.forget(inode.ino);
        let is_trusted = self.is_trusted(path.dir, inode.observed_at) || self.is_listed(path.dir, name)?;
        let is_open = self.files.get(inode.ino).is_some();
        Ok(if is_trusted || is_open { HintAction::Look } else { HintAction::Invalidate })
    }

    /// Whether a hint says what is known: most are echoes of what was done here.
    fn confirms_known_state(&self, inode: &Inode, hint: &Hint) -> bool {
        let Says::Stored { etag: Some(etag), size_bytes, user } = &hint.says else { return false };
        let Some(object) = inode.object().filter(|object| object.etag == *etag) else { return false };
        if size_bytes.is_some_and(|size_bytes| size_bytes != inode.size_bytes) {
            return false;
        }
        if !self.reads_headers {
            // What else it has is asked for when somebody wants it.
            self.metadata_cache.forget(inode.ino);
            return true;
        }
        let Some(user) = user.clone().filter(|_| inode.exact) else { return false };
        let last_modified = object.last_modified;
        let object = ObjectRef { last_modified, ..ObjectRef::new(hint.key.clone(), etag.clone()) };
        let attributes = Attributes { user, ..Attributes::default() };
        let meta = ObjectMeta { object, size_bytes: inode.size_bytes, attributes, tag_count: None };
        let said = headers::observed(&meta, false, &self.defaults, inode.observed_at);
        (said.kind, said.mode, said.uid, said.gid, said.mtime)
            == (inode.kind, inode.mode, inode.uid, inode.gid, inode.mtime)
    }

    /// Looks at what hints are about; those about which the bucket does not answer.
    async fn look_up_all(&self, hints: Vec<Hint>, news: &mut Vec<Invalidation>) -> Vec<Hint> {
        let look = |hint: Hint| async move { (self.look_up_once_settled(&hint).await, hint) };
        let mut looks = stream::iter(hints.into_iter().map(look)).buffer_unordered(LOOKS_AT_ONCE);
        let mut unanswered = Vec::new();
        while let Some((seen, hint)) = looks.next().await {
            match seen {
                Ok(more) => news.extend(more),
                Err(error) => {
                    tracing::debug!(key = %hint.key, %error, "who looks next asks the bucket");
                    unanswered.push(hint);
                }
            }
        }
        unanswered
    }

    /// The bucket may speak of what is stored here before its answer has come: once that has, there is nothing to look at.
    async fn look_up_once_settled(&self, hint: &Hint) -> Result<Vec<Invalidation>> {
        drop(tokio::time::timeout(SETTLED_WITHIN, self.claims.claim(&hint.key)).await);
        match self.action_for(hint)? {
            HintAction::Look => self.look_up(&hint.key).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Whoever looks where a hint leads asks the bucket.
    fn mark_stale(&self, hint: &Hint, done: &mut BTreeSet<Ino>, news: &mut Vec<Invalidation>) -> Result<()> {
        let Some(path) = self.known_path(&hint.key)? else { return Ok(()) };
        self.invalidate_key(&hint.key, news)?;
        let mut dir = path.dir;
        loop {
            let now = self.moment();
            if done.insert(dir) {
                self.directories.mark_stale(dir, now);
                news.push(Invalidation::Attributes(dir));
            }
            // A directory may have gone with what was in it.
            match self.names.inode(dir)?.home {
                Some((above, _)) if !matches!(hint.says, Says::Stored { .. }) => dir = above,
                _ => return Ok(()),
            }
        }
    }

    /// Has kernels drop what they know under a key's name.
    fn invalidate_key(&self, key: &ObjectKey, news: &mut Vec<Invalidation>) -> Result<()> {
        let Some(path) = self.known_path(key)? else { return Ok(()) };
        let Some(name) = &path.next else { return Ok(()) };
        let shown = self.visible_name_of(&path, name)?;
        match self.names.lookup(path.dir, &shown)? {
            Some(inode) => push_invalidations(&inode, news),
            None => news.push(Invalidation::entry(path.dir, shown.as_bytes())),
        }
        Ok(())
    }

    /// The name that leads on to a key: an object's own may be beside a directory's.
    fn visible_name_of(&self, path: &KnownPath, name: &Name) -> Result<Name> {
        if path.is_last { self.visible_name(path.dir, name) } else { Ok(name.clone()) }
    }
}

/// Of a directory its name stays: somebody may be in it, and who asks for its attributes hears whether it is there.
fn push_invalidations(inode: &Inode, news: &mut Vec<Invalidation>) {
    if let Some((dir, name)) = inode.home.as_ref().filter(|_| inode.kind != Kind::Directory) {
        news.push(Invalidation::entry(*dir, name.as_bytes()));
    }
    news.push(Invalidation::Attributes(inode.ino));
}

/// One hint for each key. Where several say different things, only the bucket knows.
fn merge_by_key(hints: Vec<Hint>) -> impl Iterator<Item = Hint> {
    let mut by_key = BTreeMap::<ObjectKey, Says>::new();
    for Hint { key, says } in hints {
        match by_key.get_mut(&key) {
            Some(before) if *before != says => *before = Says::Changed,
            Some(_) => {}
            None => {
                by_key.insert(key, says);
            }
        }
    }
    by_key.into_iter().map(|(key, says)| Hint { key, says })
}
