//! Random ops that a program could cause through a mount.

use meta::codec::decode_dentry;
use meta::{
    AttrChanges, Dentry, Extent, Ino, Kind, Name, Namespace, Op, RenameHow, Stored, XattrHow, schema,
};
use store::{ETag, Entropy, ObjectKey};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A source of random ops of one client.
pub(super) struct Draw<'a> {
    pub(super) entropy: &'a Entropy,
    pub(super) names: &'a Namespace,
    /// Prefix of the keys of the client's objects.
    pub(super) prefix: &'a [u8],
    /// Whether several contents may be in one object.
    pub(super) has_packs: bool,
    pub(super) user: u32,
}

impl Draw<'_> {
    /// Draws an op; `None` if the namespace cannot be read or has no inode number left.
    pub(super) fn op(&self) -> Option<Op> {
        let entry = self.entry();
        let (parent, name) = match &entry {
            Some((at, _)) if self.below(4) > 0 => at.clone(),
            _ => (self.dir(), self.name()),
        };
        let ino = entry.map_or(Ino::ROOT, |(_, dentry)| dentry.ino);
        Some(match self.below(20) {
            0..=5 => return self.create(),
            6 => Op::Link { ino, parent: self.dir(), name: self.name() },
            7..=8 => Op::Unlink { parent, name, keep: false },
            9 => Op::Rmdir { parent, name },
            10..=12 => {
                let how =
                    [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][self.below(3) as usize];
                Op::Rename { from: (parent, name), to: (self.dir(), self.name()), how, keep: false }
            }
            13 => {
                let mode = Some([0o644, 0o700, 0o755, 0o2775][self.below(4) as usize]);
                Op::SetAttr { ino, changes: AttrChanges { mode, ..AttrChanges::default() } }
            }
            14 => {
                let value = vec![self.below(256) as u8; 3].into();
                Op::SetXattr { ino, name: b"user.x"[..].into(), value, how: XattrHow::Set }
            }
            _ => self.write(ino),
        })
    }

    fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    fn entry(&self) -> Option<((Ino, Name), Dentry)> {
        let range = schema::all_dentries();
        let (from, to) = range.bounds();
        let rows = self.names.engine().scan(from, to, 64).ok()?;
        let (key, row) = rows.get(self.below(rows.len().max(1) as u64) as usize)?;
        let at = (schema::ino_of(key).ok()?, schema::name_of(key).ok()?);
        Some((at, decode_dentry(&row.value).ok()?))
    }

    fn dir(&self) -> Ino {
        match self.entry() {
            Some((_, dentry)) if dentry.kind == Kind::Directory => dentry.ino,
            Some(((dir, _), _)) => dir,
            None => Ino::ROOT,
        }
    }

    fn name(&self) -> Name {
        let text = NAMES[self.below(NAMES.len() as u64) as usize];
        Name::new(text.as_bytes()).unwrap_or_else(|_| unreachable!("the names are valid"))
    }

    fn create(&self) -> Option<Op> {
        let parent = self.dir();
        let kind = [Kind::File, Kind::File, Kind::Directory, Kind::Symlink][self.below(4) as usize];
        Some(Op::Create {
            parent,
            name: self.name(),
            ino: self.names.allocate(parent, 1).pop()?,
            kind,
            mode: [0o644, 0o755, 0o2775, 0o600][self.below(4) as usize],
            umask: 0o022,
            uid: self.user,
            gid: self.user,
            rdev: 0,
            target: (kind == Kind::Symlink).then(|| "target".into()),
        })
    }

    /// Draws a content of up to six objects. More than four extents are in rows of their own.
    fn write(&self, ino: Ino) -> Op {
        let count = if self.below(5) == 0 { 6 } else { 1 };
        let content: Vec<Extent> = (0..count)
            .map(|at| Extent { offset: at * 10, len: 10, object: self.object(ino), object_offset: 0 })
            .collect();
        let ranges = vec![std::ops::Range { start: 0, end: u64::MAX }];
        Op::Splice { ino, ranges, content, size_bytes: count * 10, mtime: None }
    }

    fn object(&self, ino: Ino) -> Stored {
        let unique = self.entropy.next_u64();
        let name = match self.has_packs && self.below(2) == 0 {
            true => format!("pack-{:08x}", self.below(3)),
            false => format!("{:016x}-{unique:016x}", ino.0),
        };
        let key = ObjectKey::new([self.prefix, name.as_bytes()].concat()).ok();
        Stored { key, etag: ETag::provisional(unique), version: None, last_modified: None }
    }
}
