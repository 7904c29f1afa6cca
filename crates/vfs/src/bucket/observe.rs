//! Processes observations of single keys, from events, the lister, or changes through the endpoint.
//!
//! Level-triggered like all of `reconcile`, which they end in: late, lost and repeated observations do no harm.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meta::{Dentry, Ino, Kind, Moment, Name};
use store::{ObjectKey, ObjectMeta, names};

use crate::bucket::headers;
use crate::layout::is_reserved;
use crate::names::invalidation::Invalidation;
use crate::{Error, Filesystem, Result};

/// Maximum looks at a key whose name programs keep changing.
const LOOKS_MAX: u32 = 8;

/// The part of a key's path that the tables know.
#[derive(Debug)]
pub(crate) struct KnownPath {
    /// The deepest known directory.
    pub(crate) dir: Ino,
    /// The next component of the key in that directory; `None` if the key is the directory's marker.
    pub(crate) next: Option<Name>,
    /// Whether that component is the last one, the object's own name.
    pub(crate) is_last: bool,
}

impl Filesystem {
    /// Reconciles names with an object observed at a key, or with its absence. Names that this mount has not learned stay
    /// unknown; a lookup asks the bucket. Does nothing in a volume named by inode, where keys have no names. With write-back
    /// the observation serves only as a hint, and the key is looked up.
    pub async fn reconcile(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        match self.config.write_back {
            // An observation of the bucket does not include changes that wait in the write-back log.
            true => self.look_up(key).await?.into_iter().for_each(|news| self.invalidations.notify(news)),
            false => {
                let news = self.observe(key, observed, looked_at).await?;
                news.into_iter().for_each(|news| self.invalidations.notify(news));
            }
        }
        Ok(())
    }

    /// Looks up a key in the bucket and reconciles names with the object found. Returns the invalidations for front ends. Sends
    /// one request if the key has a name in this volume.
    pub(crate) async fn look_up(&self, key: &ObjectKey) -> Result<Vec<Invalidation>> {
        if self.known_path(key)?.is_none() {
            return Ok(Vec::new());
        }
        let look = |looked_at| {
            let look = async move {
                let seen = self.store.find(key).await?;
                self.observe(key, seen.as_ref(), looked_at).await
            };
            look.boxed()
        };
        self.look_up_until_valid(key, look).await
    }

    /// Looks up a key, and repeats the look if a program changed the name meanwhile: that change may have failed.
    pub(crate) async fn look_up_until_valid<'l>(
        &self,
        key: &ObjectKey,
        look: impl Fn(Moment) -> BoxFuture<'l, Result<Vec<Invalidation>>>,
    ) -> Result<Vec<Invalidation>> {
        let mut looked_at = self.moment();
        let mut news = look(looked_at).await?;
        for _ in 1..LOOKS_MAX {
            let Some((dir, name)) = self.visible_entry(key)? else { break };
            if self.changes.is_valid_look(dir, &name, looked_at) {
                break;
            }
            self.changes.wait_until_settled(dir, &name).await;
            looked_at = self.moment();
            news.extend(look(looked_at).await?);
        }
        Ok(news)
    }

    /// Reconciles names with an observation of a key. Returns the invalidations for front ends.
    pub(crate) async fn observe(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<Vec<Invalidation>> {
        let mut news = Vec::new();
        let Some(known) = self.known_path(key)? else { return Ok(news) };
        match &known.next {
            Some(name) if !known.is_last => {
                self.observe_below(known.dir, name, observed.is_some(), looked_at, &mut news).await?
            }
            Some(name) => self.observe_object(known.dir, name, observed, looked_at, &mut news).await?,
            None => self.observe_directory(known.dir, observed, looked_at, &mut news).await?,
        }
        if observed.is_none() {
            self.drop_if_empty(known.dir, &mut news).await?;
        }
        Ok(news)
    }

    /// Returns the part of a key's path that the tables know; `None` for a key without a name.
    pub(crate) fn known_path(&self, key: &ObjectKey) -> Result<Option<KnownPath>> {
        let inside = key.as_bytes().strip_prefix(self.config.prefix.as_slice());
        let Some(inside) = inside.filter(|inside| !inside.is_empty() && self.layout.follows_paths()) else {
            return Ok(None);
        };
        let inside = ObjectKey::new(inside.to_vec()).map_err(|error| Error::Name(error.into()))?;
        let mut path = names::key_to_path(&inside);
        if path.first().is_some_and(|first| is_reserved(Ino::ROOT, first)) {
            return Ok(None);
        }
        let last = path.pop().unwrap_or_default();
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(&name)?;
            match self.names.entry(dir, &name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => dir = ino,
                _ => return Ok(Some(KnownPath { dir, next: Some(name), is_last: false })),
            }
        }
        let next = if last.is_empty() { None } else { Some(Name::new(&last)?) };
        Ok(Some(KnownPath { dir, next, is_last: true }))
    }

    /// Returns the directory and the visible name of a key's object, if all directories above are known.
    pub(crate) fn visible_entry(&self, key: &ObjectKey) -> Result<Option<(Ino, Name)>> {
        let Some(known) = self.known_path(key)?.filter(|known| known.is_last) else { return Ok(None) };
        let Some(name) = known.next else { return Ok(None) };
        Ok(Some((known.dir, self.visible_name(known.dir, &name)?)))
    }

    /// Returns the visible name of an object: escaped if a directory has its plain name.
    pub(crate) fn visible_name(&self, dir: Ino, name: &Name) -> Result<Name> {
        match self.names.entry(dir, name)? {
            Some(entry) if entry.kind == Kind::Directory => Ok(Name::new(&names::beside(name.as_bytes()))?),
            _ => Ok(name.clone()),
        }
    }

    /// Processes a change below a directory that is not known.
    async fn observe_below(
        &self,
        dir: Ino,
        name: &Name,
        exists: bool,
        looked_at: Moment,
        news: &mut Vec<Invalidation>,
    ) -> Result<()> {
        let is_file = self.names.entry(dir, name)?.is_some();
        let prefix = self.layout.directory(&self.names, dir)?;
        let seen = headers::implicit_directory(self.now(), looked_at, &self.defaults, false);
        match exists {
            // The name was a file's until now.
            true if is_file => self.probe(dir, name).await?,
            true if self.reconcile_visible_name((dir, &prefix), name, Some(seen), looked_at).await? => {}
            _ => self.directories.get(dir).forget(),
        }
        push_invalidations(news, dir, name);
        Ok(())
    }

    async fn observe_object(
        &self,
        dir: Ino,
        name: &Name,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
        news: &mut Vec<Invalidation>,
    ) -> Result<()> {
        let prefix = self.layout.directory(&self.names, dir)?;
        let shown = self.visible_name(dir, name)?;
        if observed.is_some() && self.is_missing_since(dir, &shown, looked_at)? {
            return Ok(());
        }
        let seen = observed.map(|meta| headers::observed(meta, false, &self.defaults, looked_at));
        if let Some(entry) = self.names.entry(dir, &shown)? {
            self.metadata_cache.forget(entry.ino);
        }
        if !self.reconcile_visible_name((dir, &prefix), &shown, seen, looked_at).await? {
            self.directories.get(dir).forget();
        }
        push_invalidations(news, dir, &shown);
        Ok(())
    }

    /// Processes an observation of a directory's marker.
    async fn observe_directory(
        &self,
        dir: Ino,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
        news: &mut Vec<Invalidation>,
    ) -> Result<()> {
        let inode = self.names.inode(dir)?;
        let Some((parent, name)) = inode.home else { return Ok(()) };
        let seen = match observed {
            Some(meta) => headers::observed(meta, true, &self.defaults, looked_at),
            None => headers::implicit_directory(inode.mtime, looked_at, &self.defaults, true),
        };
        let prefix = self.layout.directory(&self.names, parent)?;
        if !self.reconcile_visible_name((parent, &prefix), &name, Some(seen), looked_at).await? {
            self.directories.get(parent).forget();
        }
        push_invalidations(news, parent, &name);
        Ok(())
    }

    /// Removes a directory without known entries if a probe shows that it is gone. Continues with the directories above.
    async fn drop_if_empty(&self, mut dir: Ino, news: &mut Vec<Invalidation>) -> Result<()> {
        while dir != Ino::ROOT {
            let Ok(inode) = self.names.inode(dir) else { return Ok(()) };
            let Some((parent, name)) = inode.home.clone() else { return Ok(()) };
            if inode.object().is_some() || !self.names.entries(dir, None, 1)?.is_empty() {
                return Ok(());
            }
            self.probe(parent, &name).await?;
            if self.names.entry(parent, &name)?.is_some() {
                return Ok(());
            }
            push_invalidations(news, parent, &name);
            dir = parent;
        }
        Ok(())
    }
}

fn push_invalidations(news: &mut Vec<Invalidation>, parent: Ino, name: &Name) {
    news.push(Invalidation::entry(parent, name.as_bytes()));
    news.push(Invalidation::Inode(parent));
}
