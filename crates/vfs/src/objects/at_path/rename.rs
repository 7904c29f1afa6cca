//! Moving an object of a volume named by path to another key, as a rename through the mount does: it shows there at once, and
//! follows in the background.

use bytes::Bytes;
use meta::{Ino, Kind, Name};
use store::{ObjectKey, ObjectRef, Precondition, StoreError};

use super::about_key;
use crate::invalidation::Invalidation;
use crate::objects::Objects;
use crate::objects::errors::about;
use crate::ops::Asked;

/// Directory and name.
type Place = (Ino, Name);

impl Objects {
    pub(in crate::objects) async fn rename_at_path(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()));
        }
        let (old, new) = (self.full_key_to_read(&from.key)?, self.full_key(to)?);
        if let Some((source, target)) = self.ends(&old, &new).map_err(about(&from.key))? {
            let asked = Asked { source: from.etag.clone(), target: precondition };
            self.rename_name(from, (source, target), (&new, to), asked).await?;
            self.show(&old, true).await;
            return Ok(());
        }
        if !self.is_plain(&old).and_then(|plain| Ok(plain && self.is_plain(&new)?)).map_err(about(to))? {
            return store::rename_by_copy(self, from, to, precondition).await;
        }
        let source = ObjectRef { key: old.clone(), ..from.clone() };
        self.rename_object(&source, &new, precondition).await.map_err(|error| match &error {
            StoreError::NotFound(key) | StoreError::PreconditionFailed(key) if *key == old => {
                about_key(&from.key, error)
            }
            _ => about_key(to, error),
        })?;
        self.show(&new, false).await;
        self.show(&old, true).await;
        Ok(())
    }

    /// Both names, where the mount knows the file and the directory to which it goes, and can rename it.
    fn ends(&self, old: &ObjectKey, new: &ObjectKey) -> crate::Result<Option<(Place, Place)>> {
        let Some((dir, name, Some(inode))) = self.known(old)? else { return Ok(None) };
        let Some((to_dir, to_name, target)) = self.known(new)? else { return Ok(None) };
        let is_such = matches!(inode.kind, Kind::File | Kind::Symlink)
            && inode.nlink == 1
            && inode.object().is_some()
            && self.fs.is_shown(dir, &name, &inode)?;
        let may_go = match target {
            Some(target) => target.nlink == 1 && self.fs.is_shown(to_dir, &to_name, &target)?,
            // What lies beside a directory of that name is no name of the mount's own.
            None => self.fs.names.entry(to_dir, &to_name)?.is_none(),
        };
        Ok((is_such && may_go).then_some(((dir, name), (to_dir, to_name))))
    }

    async fn rename_name(
        &self,
        from: &ObjectRef,
        (source, target): (Place, Place),
        (new, to): (&ObjectKey, &ObjectKey),
        asked: Asked,
    ) -> store::Result<()> {
        let renamed = Box::pin(self.fs.rename_if(&source, &target, &asked)).await;
        renamed.map_err(|error| match error {
            crate::Error::Store(error @ StoreError::PreconditionFailed(_)) => match &error {
                StoreError::PreconditionFailed(key) if key == new => about_key(to, error),
                _ => about_key(&from.key, error),
            },
            error => about(&from.key)(error),
        })?;
        let (parent, name) = target;
        let name = Bytes::copy_from_slice(name.as_bytes());
        let news = vec![Invalidation::Entry { parent, name }, Invalidation::Inode(parent)];
        self.fs.invalidations.told(news).await;
        Ok(())
    }

    /// Whether what has a key is nothing but its object: no file that somebody has open, that has other names, or that lies
    /// elsewhere.
    fn is_plain(&self, full: &ObjectKey) -> crate::Result<bool> {
        match self.known(full)? {
            Some((dir, name, Some(inode))) => {
                Ok(self.unshown(full)?.is_none() && !self.matters(dir, &name, &inode)?)
            }
            _ => Ok(true),
        }
    }

    /// Nobody here does anything to either key meanwhile, and no look counts.
    async fn rename_object(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: Precondition,
    ) -> store::Result<()> {
        let _moves = self.fs.moves.read().await;
        let _claims = self.fs.claims.claim_both(&from.key, to).await;
        let _changing = (self.note(&from.key), self.note(to));
        self.fs.store.rename(from, to, precondition).await
    }
}
