//! Renaming where other machines mount the bucket too.
//!
//! Who has the leases on both paths looks at the bucket, renames as always, and returns when the objects have arrived: of two
//! mounts that rename the same file the second finds that it is gone. The mover moves nothing but what was seen, so that a
//! lease that was lost costs a copy at most, and nobody's bytes.

use meta::{Kind, Name, RenameHow};
use store::ObjectKey;

use super::{ATTEMPTS_MAX, Place};
use crate::bucket::sharing::Sharing;
use crate::layout::object_key;
use crate::{Error, Filesystem, Result};

const TAKEN: Error = Error::new(libc::EBUSY, "other mounts of the bucket rename it all the time");

impl Filesystem {
    pub(super) async fn rename_shared(
        &self,
        sharing: &Sharing,
        from: &Place,
        to: &Place,
        how: RenameHow,
    ) -> Result<()> {
        let (from_text, to_text) = (self.path_text(from)?, self.path_text(to)?);
        let renamed = Box::pin(async {
            for _ in 0..ATTEMPTS_MAX {
                futures_util::future::try_join(self.probe(from.0, &from.1), self.probe(to.0, &to.1)).await?;
                if self.rename_and_arrive(sharing, from, to, how).await? {
                    return Ok(());
                }
            }
            Err(TAKEN)
        });
        sharing.leases.holding(&[&from_text, &to_text], renamed).await?.unwrap_or(Err(TAKEN))
    }

    /// False if somebody else changed the file before its object moved.
    async fn rename_and_arrive(
        &self,
        sharing: &Sharing,
        from: &Place,
        to: &Place,
        how: RenameHow,
    ) -> Result<bool> {
        let key = self.key_at(to)?;
        let arriving = key.as_ref().map(|key| sharing.track_arrival(key));
        self.rename_here(from, to, how).await?;
        let is_directory = self.names.entry(to.0, &to.1)?.is_some_and(|entry| entry.kind == Kind::Directory);
        match (is_directory, &key) {
            (true, _) => {
                let prefix = self.layout.directory(&self.names, to.0)?.child_dir(to.1.as_bytes())?;
                self.mover()?.arrive_tree(prefix.as_bytes()).await?;
            }
            (false, Some(key)) => self.mover()?.arrive(key).await?,
            (false, None) => {}
        }
        Ok(!arriving.is_some_and(|arriving| arriving.is_void()))
    }

    /// The key of a file with that name, if there can be one.
    fn key_at(&self, (dir, name): &Place) -> Result<Option<ObjectKey>> {
        let prefix = self.layout.directory(&self.names, *dir)?;
        Ok(object_key(&prefix, name.as_bytes()).ok())
    }

    /// A path as all mounts of the bucket have it.
    fn path_text(&self, (dir, name): &Place) -> Result<Vec<u8>> {
        let path = self.names.path(*dir)?;
        let names: Vec<&[u8]> = path.iter().chain([name]).map(Name::as_bytes).collect();
        Ok(names.join(&b'/'))
    }
}
