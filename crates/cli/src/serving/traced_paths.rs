//! Paths of inodes, for traces. They are learned from the operations of the trace, so that each operation is reported with the path that
//! the inode had at that time.

use bytes::Bytes;
use fuse::{Operation, TracedOperation};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use vfs::{Filesystem, Ino};

/// Maximum number of inodes that are remembered.
const INODES_MAX: usize = 50_000;

/// Paths of inodes from the volume's root.
#[derive(Debug)]
pub(super) struct TracedPaths {
    fs: Arc<Filesystem>,
    /// The directory that the kernel knows as the root.
    root: Ino,
    /// The last path of each inode; `#` and its number if it had no name.
    by_ino: HashMap<u64, Arc<str>>,
    /// The inodes with a name, by path.
    by_path: BTreeMap<Arc<str>, u64>,
}

impl TracedPaths {
    pub(super) fn new(fs: Arc<Filesystem>, root: Ino) -> Self {
        Self { fs, root, by_ino: HashMap::new(), by_path: BTreeMap::new() }
    }

    /// Returns the path of an inode; `#` and its number if it has no name.
    pub(super) fn of_inode(&mut self, ino: u64) -> Arc<str> {
        // The kernel has a fixed number for the root of every mount.
        let ino = if ino == Ino::ROOT.0 { self.root.0 } else { ino };
        if let Some(path) = self.by_ino.get(&ino) {
            return Arc::clone(path);
        }
        let path = self.fs.admin().path_of_inode(Ino(ino));
        let text = |path: Bytes| Arc::from(String::from_utf8_lossy(&path));
        let path = path.map_or_else(|| Arc::from(format!("#{ino}")), text);
        self.insert(ino, &path);
        path
    }

    /// Returns the path of a name in a directory.
    pub(super) fn of_name(&mut self, (directory, name): (u64, &[u8])) -> Arc<str> {
        let (directory, name) = (self.of_inode(directory), String::from_utf8_lossy(name));
        match directory.is_empty() {
            true => name.into(),
            false => format!("{directory}/{name}").into(),
        }
    }

    /// Takes over what a successful operation has found or changed.
    pub(super) fn apply(&mut self, operation: &TracedOperation) {
        let subject = &operation.subject;
        if operation.errno != 0 {
            return;
        }
        match operation.operation {
            Operation::Rename => {
                let from = self.of_name((subject.ino, &subject.name));
                if let Some((directory, name)) = &subject.target {
                    let to = self.of_name((*directory, name));
                    self.rename(&from, &to);
                }
            }
            Operation::Unlink | Operation::RmDir => {
                // The inode keeps its last path, because it may be open.
                let path = self.of_name((subject.ino, &subject.name));
                self.by_path.remove(&path);
            }
            _ if operation.reply.ino != 0 && !subject.name.is_empty() => {
                let path = self.of_name((subject.ino, &subject.name));
                self.insert(operation.reply.ino, &path);
            }
            _ => {}
        }
    }

    fn insert(&mut self, ino: u64, path: &Arc<str>) {
        if self.by_ino.len() >= INODES_MAX {
            self.by_ino.clear();
            self.by_path.clear();
        }
        if let Some(old) = self.by_ino.insert(ino, Arc::clone(path))
            && old != *path
            && self.by_path.get(&old) == Some(&ino)
        {
            self.by_path.remove(&old);
        }
        self.by_path.insert(Arc::clone(path), ino);
    }

    /// Changes the path of a file, or of a directory and everything below it. A file that had the new path is forgotten, because it was
    /// replaced or exchanged: the volume is asked for its path at its next use.
    fn rename(&mut self, from: &Arc<str>, to: &Arc<str>) {
        if from == to {
            return;
        }
        for (path, ino) in self.at_or_below(to) {
            self.by_path.remove(&path);
            self.by_ino.remove(&ino);
        }
        for (path, ino) in self.at_or_below(from) {
            self.insert(ino, &format!("{to}{}", &path[from.len()..]).into());
        }
    }

    /// Returns the known paths of a file, or of a directory and everything below it.
    fn at_or_below(&self, path: &Arc<str>) -> Vec<(Arc<str>, u64)> {
        let itself = self.by_path.get_key_value(path);
        let below = format!("{path}/");
        let inside = self.by_path.range(Arc::<str>::from(below.as_str())..);
        let inside = inside.take_while(|(path, _)| path.starts_with(&below));
        itself.into_iter().chain(inside).map(|(path, ino)| (Arc::clone(path), *ino)).collect()
    }
}
