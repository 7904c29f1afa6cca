//! Tags of objects of a volume named by inode.

use store::{ObjectKey, Tags};

use super::{ATTEMPTS_MAX, busy, is_race};
use crate::objects::Objects;
use crate::objects::description::Kept;
use crate::objects::errors::named;
use crate::objects::etag::Given;

impl Objects {
    pub(in crate::objects) fn tags_named(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.steadily(key, || {
            let inode = self.must_find(key)?;
            Ok(Kept::read(&self.fs.names, inode.ino).map_err(named(key))?.tags())
        })
    }

    pub(in crate::objects) async fn set_tags_named(&self, key: &ObjectKey, tags: &Tags) -> store::Result<()> {
        let _claim = self.fs.claims.claim(&self.claimed(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let (ino, before, given) = self.steadily(key, || {
                let inode = self.must_find(key)?;
                let (meta, before) = self.meta_of(key, &inode).map_err(named(key))?;
                let given = (!inode.is_dir()).then(|| Given::keeping(&meta.object.etag, &inode));
                Ok((inode.ino, before, given))
            })?;
            let mut kept = before.with_tags(tags)?;
            kept.record.given = given;
            let ops = kept.ops_over(ino, &before)?;
            match self.fs.names.commit_together(&self.fs.ctx(), &ops) {
                Ok(_) => return Ok(()),
                Err(error) if is_race(&error) => {}
                Err(error) => return Err(named(key)(error)),
            }
        }
        Err(busy())
    }
}
