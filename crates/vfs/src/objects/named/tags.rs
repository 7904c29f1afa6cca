//! Tags of objects of a volume named by inode.

use store::{ObjectKey, Tags};

use crate::objects::Objects;
use crate::objects::description::Kept;
use crate::objects::errors::named;

impl Objects {
    pub(in crate::objects) fn tags_named(&self, key: &ObjectKey) -> store::Result<Tags> {
        self.steadily(key, || {
            let inode = self.must_find(key)?;
            Ok(Kept::read(&self.fs.names, inode.ino).map_err(named(key))?.tags())
        })
    }

    pub(in crate::objects) async fn set_tags_named(&self, key: &ObjectKey, tags: &Tags) -> store::Result<()> {
        let _claim = self.fs.claims.claim(&self.claimed(key)).await;
        let inode = self.must_find(key)?;
        let before = Kept::read(&self.fs.names, inode.ino).map_err(named(key))?;
        let ops = before.with_tags(tags)?.ops_over(inode.ino, &before)?;
        self.fs.names.commit_together(&self.fs.ctx(), &ops).map_err(named(key))?;
        Ok(())
    }
}
