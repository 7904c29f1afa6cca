//! Processes observations of single keys, from events, conflicts, or changes through Tenon's S3 endpoint.
//!
//! Level-triggered like all of `reconcile`, which they end in: late, lost and repeated observations do no harm.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meta::{Ino, Moment, Name};
use store::{ObjectKey, ObjectMeta};

use crate::Result;
use crate::bucket::discovery::Discovery;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;

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
            false => self.observe(key, observed, looked_at).await,
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

    /// Reconciles names with an observation of a key.
    pub(crate) async fn observe(
        &self,
        key: &ObjectKey,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        let Some(known) = self.names.known_path(key)? else { return Ok(()) };
        match &known.next {
            Some(name) if !known.is_last => {
                self.observe_below(known.dir, name, observed.is_some(), looked_at).await?
            }
            Some(name) => self.observe_object(known.dir, name, observed, looked_at).await?,
            None => self.observe_directory(known.dir, observed, looked_at).await?,
        }
        if observed.is_none() {
            self.drop_if_empty(known.dir).await?;
        }
        Ok(())
    }

    /// Processes a change below a directory that is not known.
    async fn observe_below(&self, dir: Ino, name: &Name, exists: bool, looked_at: Moment) -> Result<()> {
        let is_file = self.names.tables().entry(dir, name)?.is_some();
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let seen = headers::implicit_directory(self.mount.now(), looked_at, &self.mount.defaults, false);
        match exists {
            // The name was a file's until now.
            true if is_file => self.probe(dir, name).await?,
            true if self
                .reconciler
                .reconcile_visible_name((dir, &prefix), name, Some(seen), looked_at)
                .await? => {}
            _ => self.known.forget_listing(dir, name),
        }
        Ok(())
    }

    /// Processes an observation of the object that a known directory has under a name.
    async fn observe_object(
        &self,
        dir: Ino,
        name: &Name,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let shown = self.names.visible_name(dir, name)?;
        if observed.is_some() && self.known.is_missing_since(dir, &shown, looked_at)? {
            return Ok(());
        }
        if let Some(entry) = self.names.tables().entry(dir, &shown)? {
            self.metadata.cache().forget(entry.ino);
            if let Some(meta) = observed {
                self.exports.adopt_stored(entry.ino, meta, looked_at)?;
            }
        }
        let seen = observed.map(|meta| headers::observed(meta, false, &self.mount.defaults, looked_at));
        if !self.reconciler.reconcile_visible_name((dir, &prefix), &shown, seen, looked_at).await? {
            self.known.distrust(dir, &shown);
        }
        Ok(())
    }

    /// Processes an observation of a directory's marker.
    async fn observe_directory(
        &self,
        dir: Ino,
        observed: Option<&ObjectMeta>,
        looked_at: Moment,
    ) -> Result<()> {
        let inode = self.names.tables().inode(dir)?;
        let Some((parent, name)) = inode.home else { return Ok(()) };
        let seen = match observed {
            Some(meta) => headers::observed(meta, true, &self.mount.defaults, looked_at),
            None => headers::implicit_directory(inode.mtime, looked_at, &self.mount.defaults, true),
        };
        let prefix = self.mount.layout.directory(self.names.tables(), parent)?;
        if !self.reconciler.reconcile_visible_name((parent, &prefix), &name, Some(seen), looked_at).await? {
            self.known.distrust(parent, &name);
        }
        Ok(())
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
    /// Looks up a key, and repeats the look if a program changed the name meanwhile: that change may have failed.
    pub(crate) async fn look_up_until_valid<'l>(
        &self,
        key: &ObjectKey,
        look: impl Fn(Moment) -> BoxFuture<'l, Result<()>>,
    ) -> Result<()> {
        let mut looked_at = self.mount.moment();
        look(looked_at).await?;
        for _ in 1..LOOKS_MAX {
            let Some((dir, name)) = self.names.visible_entry(key)? else { break };
            if self.changes.is_valid_look(dir, &name, looked_at) {
                break;
            }
            self.changes.wait_until_settled(dir, &name).await;
            looked_at = self.mount.moment();
            look(looked_at).await?;
        }
        Ok(())
    }
}
