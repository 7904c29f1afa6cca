//! Keeps the namespace tables within their share of memory: what the bucket can tell again is dropped.

use meta::{Ino, Inode, Kind, Name, Op};

use crate::{Filesystem, Result};

/// Entries looked at in one step.
const BATCH: usize = 1024;

impl Filesystem {
    /// Evicts clean, unreferenced entries if the tables are beyond their share, down to three quarters of it.
    pub(crate) fn evict_if_needed(&self) -> Result<()> {
        let share = self.config.metadata_bytes();
        if self.names.engine().memory_bytes() <= share {
            return Ok(());
        }
        for dir in self.directories.all() {
            self.evict_directory(dir, share / 4 * 3)?;
            if self.names.engine().memory_bytes() <= share / 4 * 3 {
                break;
            }
        }
        Ok(())
    }

    fn evict_directory(&self, dir: Ino, goal_bytes: u64) -> Result<()> {
        let directory = self.directories.get(dir);
        let mut from: Option<Name> = None;
        loop {
            let entries = self.names.entries(dir, from.as_ref(), BATCH)?;
            let inos: Vec<Ino> = entries.iter().map(|(_, entry)| entry.ino).collect();
            let inodes = self.names.inodes(&inos)?;
            let ops: Vec<Op> = entries
                .iter()
                .zip(inodes)
                .filter(|(_, inode)| inode.as_ref().is_some_and(|inode| self.can_be_learned_again(inode)))
                .map(|((name, _), _)| Op::Evict { parent: dir, name: name.clone() })
                .collect();
            if !ops.is_empty() {
                directory.forget();
                self.names.commit_all(&self.ctx(), &ops)?;
            }
            from = entries.last().map(|(name, _)| name.clone());
            if entries.len() < BATCH || self.names.engine().memory_bytes() <= goal_bytes {
                return Ok(());
            }
        }
    }

    fn can_be_learned_again(&self, inode: &Inode) -> bool {
        inode.kind != Kind::Directory
            && inode.object().is_some()
            && !self.references.holds(inode.ino)
            && self.files.get(inode.ino).is_none()
            && !self.exports.contains(inode.ino)
    }
}
