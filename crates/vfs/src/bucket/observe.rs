//! Processes observations of single keys, from events, conflicts, or changes through Tenon's S3 endpoint.
//!
//! Level-triggered like all of `reconcile`, which they end in: late, lost and repeated observations do no harm.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meta::{Ino, Moment, Name, Observed};
use store::{ObjectKey, ObjectMeta};

use crate::Result;
use crate::bucket::discovery::Discovery;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;
use crate::bucket::reconcile::PrefixedDirectory;

/// Maximum lookups of a key whose name programs keep changing.
const LOOKS_MAX: u32 = 8;

impl Discovery {
    /// Reconciles names with an object observed at a key, or with its absence. Names that this mount has not learned stay
    /// unknown; a lookup asks the bucket. Does nothing in a volume named by inode, where keys have no names. With write-back
    /// the observation serves only as a hint, and the key is looked up.
    pub(crate) async fn reconcile(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        match self.mount.config.write_back {
            // An observation of the bucket does not include changes that wait in the write-back log.
            true => self.look_up(key).await,
            false => self.observe(key, observed, looked_at).await.map(drop),
        }
    }

    /// Looks up a key in the bucket and reconciles names with the object found. Sends one request if the key has a name in this
    /// volume.
    pub(crate) async fn look_up(&self, key: &ObjectKey) -> Result<()> {
        if self.names.known_path(key)?.is_none() {
            return Ok(());
        }
        let look = |looked_at| {
            let look = async move {
                let seen = self.mount.store.find(key).await?;
                self.observe(key, seen.as_ref(), looked_at).await
            };
            look.boxed()
        };
        self.known.look_up_until_valid(key, look).await
    }

    /// Reconciles names with an observation of a key. Returns false if a change of the directory has made the look invalid.
    pub(crate) async fn observe(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<bool> {
        let Some(known) = self.names.known_path(key)? else { return Ok(true) };
        let is_valid = match &known.next {
            Some(name) if !known.is_last => {
                self.observe_below(known.dir, name, observed.is_some(), looked_at).await?
            }
            Some(name) => self.observe_object(known.dir, name, observed, looked_at).await?,
            None => self.observe_directory(known.dir, observed, looked_at).await?,
        };
        if observed.is_none() {
            self.drop_if_empty(known.dir).await?;
        }
        Ok(is_valid)
    }

    /// Processes a change below a directory that is not known. Returns whether the look was valid.
    async fn observe_below(&self, dir: Ino, name: &Name, exists: bool, looked_at: Moment) -> Result<bool> {
        let is_file = self.names.tables().entry(dir, name)?.is_some();
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let seen = headers::implicit_directory(self.mount.now(), looked_at, &self.mount.defaults, false);
        if exists && is_file {
            // The name was a file's until now.
            self.probe(dir, name).await?;
            return Ok(true);
        }
        if !exists {
            self.known.forget_listing(dir, name);
            return Ok(true);
        }
        self.reconcile_seen((dir, &prefix), name, Some(seen), looked_at).await
    }

    /// Reconciles a visible name with what was seen at its key. Returns whether the look was valid; if not, the next lookup asks the
    /// bucket.
    async fn reconcile_seen(
        &self,
        place: PrefixedDirectory<'_>,
        name: &Name,
        seen: Option<Observed>,
        looked_at: Moment,
    ) -> Result<bool> {
        let is_valid = self.reconciler.reconcile_visible_name(place, name, seen, looked_at).await?;
        if !is_valid {
            self.known.distrust(place.0, name);
        }
        Ok(is_valid)
    }

    /// Processes an observation of the object that a known directory has under a name. Returns whether the look was valid.
    async fn observe_object(
        &self,
        dir: Ino,
        name: &Name,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<bool> {
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let shown = self.names.visible_name(dir, name)?;
        if observed.is_some() && self.known.is_missing_since(dir, &shown, looked_at)? {
            return Ok(true);
        }
        if let Some(entry) = self.names.tables().entry(dir, &shown)? {
            self.metadata.cache().forget(entry.ino);
            if let Some(meta) = observed {
                self.exports.adopt_stored(entry.ino, meta, looked_at)?;
            }
        }
        let seen = observed.map(|meta| headers::observed(meta, false, &self.mount.defaults, looked_at));
        self.reconcile_seen((dir, &prefix), &shown, seen, looked_at).await
    }

    /// Processes an observation of a directory's marker. Returns whether the look was valid.
    async fn observe_directory(
        &self,
        dir: Ino,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<bool> {
        let inode = self.names.tables().inode(dir)?;
        let Some((parent, name)) = inode.home else { return Ok(true) };
        let seen = match observed {
            Some(meta) => headers::observed(meta, true, &self.mount.defaults, looked_at),
            None => headers::implicit_directory(inode.mtime, looked_at, &self.mount.defaults, true),
        };
        let prefix = self.mount.layout.directory(self.names.tables(), parent)?;
        self.reconcile_seen((parent, &prefix), &name, Some(seen), looked_at).await
    }

    /// Removes a directory without known entries if a probe shows that it is gone. Continues with the directories above.
    async fn drop_if_empty(&self, mut dir: Ino) -> Result<()> {
        while dir != Ino::ROOT {
            let Ok(inode) = self.names.tables().inode(dir) else { return Ok(()) };
            let Some((parent, name)) = inode.home.clone() else { return Ok(()) };
            if inode.object().is_some() || !self.names.tables().entries(dir, None, 1)?.is_empty() {
                return Ok(());
            }
            match self.probe(parent, &name).await {
                // A program has removed the parent directory meanwhile.
                Err(error) if error.errno() == libc::ENOENT => return Ok(()),
                probed => probed?,
            }
            if self.names.tables().entry(parent, &name)?.is_some() {
                return Ok(());
            }
            dir = parent;
        }
        Ok(())
    }
}

impl KnownState {
    /// Looks up a key, and repeats a look that is not valid because a program changed the name or its directory meanwhile: that
    /// change may have failed. `look` returns whether its directory stayed.
    pub(crate) async fn look_up_until_valid<'l>(
        &self,
        key: &ObjectKey,
        look: impl Fn(Moment) -> BoxFuture<'l, Result<bool>>,
    ) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            let looked_at = self.mount.moment();
            let is_valid = look(looked_at).await?;
            match self.names.visible_entry(key)? {
                Some((dir, name)) if !is_valid || !self.changes.is_valid_look(dir, &name, looked_at) => {
                    self.changes.wait_until_settled(dir, &name).await;
                    self.wait_until_settled(dir).await?;
                }
                None if !is_valid => {}
                _ => break,
            }
        }
        Ok(())
    }
}
