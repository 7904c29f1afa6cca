//! Tags of objects of a volume named by inode.

use meta::Origin;
use store::{ObjectKey, Tags};

use super::{ATTEMPTS_MAX, is_race, too_many_races};
use crate::objects::description::ObjectDescription;
use crate::objects::directory_objects::InodeObjects;
use crate::objects::errors::namespace_error_about;
use crate::objects::etag::AssignedEtag;

impl InodeObjects {
    pub(in crate::objects) fn tags_named(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.retry_while_replaced(key, || {
            let inode = self.find_or_fail(key)?;
            Ok(ObjectDescription::read(self.fs.names.tables(), inode.ino)
                .map_err(namespace_error_about(key))?
                .tags())
        })
    }

    pub(in crate::objects) async fn set_tags_named(&self, key: &ObjectKey, tags: &Tags) -> store::Result<()> {
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.key_to_lock(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let (ino, before, given) = self.retry_while_replaced(key, || {
                let inode = self.find_or_fail(key)?;
                let (meta, before) = self.meta_of(key, &inode).map_err(namespace_error_about(key))?;
                let given = (!inode.is_dir()).then(|| AssignedEtag::preserving(&meta.object.etag, &inode));
                Ok((inode.ino, before, given))
            })?;
            let mut description = before.with_tags(tags)?;
            description.record.given = given;
            let ops = description.replacement_ops(ino, &before)?;
            match self.fs.names.commit_together(Origin::Other, &ops) {
                Ok(_) => return Ok(()),
                Err(error) if is_race(&error) => {}
                Err(error) => return Err(namespace_error_about(key)(error)),
            }
        }
        Err(too_many_races())
    }
}
