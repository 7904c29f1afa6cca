//! Random jobs that leave only new inodes.

use crate::fixture::{USER, Volume, context, create, name};
use batch::{JobOptions, PrivateNamespace, SealedBatch};
use meta::{AttrChanges, Ino, Kind, MemoryEngine, Op, RenameHow, XattrHow, acl};
use std::ops::Range;
use store::{Entropy, Timestamp};

/// A job of a user that leaves only new inodes, and its volume.
pub(crate) struct Job {
    volume: Volume<MemoryEngine>,
    job: PrivateNamespace,
    lease: Range<Ino>,
    entropy: Entropy,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
    now: i64,
}

impl Job {
    pub(crate) fn new(seed: u64) -> Self {
        let volume = Volume::in_memory();
        let entropy = Entropy::new(seed);
        let mode = [0o755, 0o2775, 0o1777][entropy.below(3) as usize];
        let base = volume.create(USER, volume.home, "base", Kind::Directory, mode);
        // Anyone may create files in it, but only the superuser may set its times.
        let open = volume.create(0, Ino::ROOT, "open", Kind::Directory, 0o1777);
        let everyone = AttrChanges { mode: Some(0o1777), ..AttrChanges::default() };
        volume.namespace.commit(&context(0, 3), &Op::SetAttr { ino: open, changes: everyone }).unwrap();
        let (job, lease) = volume.begin("job", JobOptions::default());
        let dirs = vec![volume.home, base, open];
        Self { volume, job, lease, entropy, dirs, files: Vec::new(), now: 200 }
    }

    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }

    /// Applies an op if the user may, and returns whether it has succeeded.
    fn apply(&mut self, op: &Op) -> bool {
        self.now += self.below(3) as i64;
        let context = context(USER, self.now);
        crate::fixture::is_permitted(&self.job, context.now, op) && self.job.apply(&context, op).is_ok()
    }

    pub(crate) fn act(&mut self) {
        let parent = self.dirs[self.below(self.dirs.len())];
        let text = format!("n{}", self.below(1000));
        match self.below(10) {
            0..=3 => {
                let kind = [Kind::File, Kind::File, Kind::Directory, Kind::Symlink][self.below(4)];
                let mode = [0o644, 0o600, 0o2755, 0o444][self.below(4)];
                let ino = self.job.allocate(parent).unwrap();
                if self.apply(&create(USER, parent, &text, ino, kind, mode)) {
                    if kind == Kind::Directory { self.dirs.push(ino) } else { self.files.push(ino) }
                }
            }
            4 => self.create_under_temporary_name(parent, &text),
            5 => {
                let ino = self.job.allocate(parent).unwrap();
                let passing = name("passing");
                if self.apply(&create(USER, parent, "passing", ino, Kind::File, 0o600)) {
                    assert!(self.apply(&Op::Unlink { parent, name: passing, keep: false }));
                }
            }
            _ if self.files.is_empty() => {}
            6 => {
                let ino = self.files[self.below(self.files.len())];
                self.apply(&Op::Link { ino, parent, name: name(&text) });
            }
            7 => {
                let (ino, value) = (self.new_inode(), vec![self.below(256) as u8].into());
                let xattr = format!("user.{}", self.below(3)).into_bytes().into();
                self.apply(&Op::SetXattr { ino, name: xattr, value, how: XattrHow::Set });
            }
            8 => {
                let ino = self.new_inode();
                let is_dir = self.dirs.contains(&ino);
                let name = if is_dir && self.below(2) == 0 { acl::DEFAULT } else { acl::ACCESS };
                let value = acl_with_a_user([4, 5, 6, 7][self.below(4)]).into();
                self.apply(&Op::SetXattr { ino, name: name.into(), value, how: XattrHow::Set });
            }
            _ => {
                let (ino, is_file) = (self.new_inode(), self.below(2) == 0);
                let changes = AttrChanges {
                    mode: (self.below(2) == 0).then_some([0o500, 0o755, 0o640][self.below(3)]),
                    mtime: (self.below(2) == 0).then_some(Timestamp(self.now - 100)),
                    size_bytes: (is_file && self.files.contains(&ino)).then_some(self.below(9000) as u64),
                    ..AttrChanges::default()
                };
                self.apply(&Op::SetAttr { ino, changes });
            }
        }
    }

    fn create_under_temporary_name(&mut self, parent: Ino, text: &str) {
        let ino = self.job.allocate(parent).unwrap();
        if self.apply(&create(USER, parent, "temporary", ino, Kind::File, 0o644)) {
            let (from, to) = ((parent, name("temporary")), (parent, name(text)));
            let rename = Op::Rename { from: from.clone(), to, how: RenameHow::NoReplace, keep: false };
            if self.apply(&rename) {
                self.files.push(ino);
            } else {
                assert!(self.apply(&Op::Unlink { parent: from.0, name: from.1, keep: false }));
            }
        }
    }

    /// Returns a new file or directory.
    fn new_inode(&self) -> Ino {
        let dirs = &self.dirs[3..];
        match self.below(self.files.len() + dirs.len()) {
            at if at < self.files.len() => self.files[at],
            at => dirs[at - self.files.len()],
        }
    }

    pub(crate) fn seal(self) -> (Volume<MemoryEngine>, SealedBatch, Range<Ino>) {
        (self.volume, self.job.seal().unwrap(), self.lease)
    }
}

/// Returns an ACL with an entry of a user.
fn acl_with_a_user(permissions: u8) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, permissions.into(), 7),
        (4, 4, u32::MAX),
        (16, 7, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        value.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        value.extend(id.to_le_bytes());
    }
    value
}
