//! Tags of objects of a volume named by inode.

use meta::Origin;
use store::{ObjectKey, Tags};

use super::{ATTEMPTS_MAX, NamedObjects, too_many_races, unless_raced};
use crate::objects::description::ObjectDescription;
use crate::objects::errors::namespace_error_about;
use crate::objects::etag::AssignedEtag;

impl NamedObjects {
    pub(super) fn tags(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.keys.retry_while_replaced(key, || {
            let inode = self.keys.find_or_fail(key)?;
            Ok(ObjectDescription::read(self.fs.names.tables(), inode.ino)
                .map_err(namespace_error_about(key))?
                .tags())
        })
    }

    pub(super) async fn set_tags(&self, key: &ObjectKey, tags: &Tags) -> store::Result<()> {
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.directory.key_to_lock(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let (ino, before, given) = self.keys.retry_while_replaced(key, || {
                let inode = self.keys.find_or_fail(key)?;
                let (meta, before) = self.keys.meta_of(key, &inode).map_err(namespace_error_about(key))?;
                let given = (!inode.is_dir()).then(|| AssignedEtag::preserving(&meta.object.etag, &inode));
                Ok((inode.ino, before, given))
            })?;
            let mut description = before.with_tags(tags)?;
            description.record.given = given;
            let ops = description.replacement_ops(ino, &before)?;
            if unless_raced(key, self.fs.names.commit_together(Origin::Other, &ops))?.is_some() {
                return Ok(());
            }
        }
        Err(too_many_races())
    }
}
