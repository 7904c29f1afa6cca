//! Renames on a bucket that other machines mount too.
//!
//! A mount takes leases on both paths, checks them in the bucket, renames as usual, and returns once the objects have arrived
//! at their new keys: of two mounts that rename the same file, the second finds that it is gone. The mover moves only objects
//! with the tags seen, so a lost lease costs at most a copy, and no data.

use meta::{Kind, Name, Origin, RenameHow};
use store::ObjectKey;

use super::{ATTEMPTS_MAX, DentryKey};
use crate::bucket::sharing::Sharing;
use crate::layout::object_key;
use crate::ops::rename::Renamer;
use crate::{Error, Result};

/// The error if the leases cannot be taken, or other clients keep changing the file.
const CONTENDED: Error =
    Error::new(libc::EBUSY, "other clients of the bucket are changing this path; try again");

impl Renamer {
    /// Renames a name while this mount holds the leases of both paths. EBUSY if it does not get them.
    pub(crate) async fn rename_shared(
        &self,
        sharing: &Sharing,
        origin: Origin,
        from: &DentryKey,
        to: &DentryKey,
        how: RenameHow,
    ) -> Result<()> {
        let (from_text, to_text) = (self.path_text(from)?, self.path_text(to)?);
        let renamed = Box::pin(async {
            for _ in 0..ATTEMPTS_MAX {
                futures_util::future::try_join(
                    self.discovery.probe(from.0, &from.1),
                    self.discovery.probe(to.0, &to.1),
                )
                .await?;
                if self.rename_and_arrive(sharing, origin, from, to, how).await? {
                    return Ok(());
                }
            }
            Err(CONTENDED)
        });
        sharing.leases.holding(&[&from_text, &to_text], renamed).await?.unwrap_or(Err(CONTENDED))
    }

    /// Renames and waits for the objects to arrive. Returns false if another client changed the file before its object moved.
    async fn rename_and_arrive(
        &self,
        sharing: &Sharing,
        origin: Origin,
        from: &DentryKey,
        to: &DentryKey,
        how: RenameHow,
    ) -> Result<bool> {
        let key = self.key_at(to)?;
        let arriving = key.as_ref().map(|key| sharing.track_arrival(key));
        self.rename_here(origin, from, to, how).await?;
        let is_directory =
            self.names.tables().entry(to.0, &to.1)?.is_some_and(|entry| entry.kind == Kind::Directory);
        match (is_directory, &key) {
            (true, _) => {
                let prefix =
                    self.mount.layout.directory(self.names.tables(), to.0)?.child_dir(to.1.as_bytes())?;
                self.mover()?.arrive_tree(prefix.as_bytes()).await?;
            }
            (false, Some(key)) => self.mover()?.arrive(key).await?,
            (false, None) => {}
        }
        Ok(!arriving.is_some_and(|arriving| arriving.is_void()))
    }

    /// Returns the key of a file with that name; `None` if the path cannot be a key.
    fn key_at(&self, (dir, name): &DentryKey) -> Result<Option<ObjectKey>> {
        let prefix = self.mount.layout.directory(self.names.tables(), *dir)?;
        Ok(object_key(&prefix, name.as_bytes()).ok())
    }

    /// Returns a path in the form that all mounts of the bucket use.
    fn path_text(&self, (dir, name): &DentryKey) -> Result<Vec<u8>> {
        let path = self.names.tables().path(*dir)?;
        let names: Vec<&[u8]> = path.iter().chain([name]).map(Name::as_bytes).collect();
        Ok(names.join(&b'/'))
    }
}
