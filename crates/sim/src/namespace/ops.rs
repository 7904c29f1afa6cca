//! Random ops from a seed, with a bias towards existing entries.

use meta::codec::decode_dentry;
use meta::namespace::read_inode;
use meta::{
    AttrChanges, Dentry, Extent, Ino, Kind, MemoryEngine, Moment, Name, Namespace, Observed, Op, Reader,
    RenameHow, Stored, XattrHow, schema,
};
use store::{ETag, Entropy, ObjectKey, Timestamp};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const ETAGS: [&str; 3] = ["d41d8cd98f00b204e9800998ecf8427e", "0123456789abcdef0123456789abcdef-9", "odd"];

/// Keys of objects that are not at the path key of their file.
const OBJECT_KEYS: [&str; 3] = ["chunk-a", "chunk-b", "chunk-c"];

/// The key of a directory entry: its directory and its name.
type DentryKey = (Ino, Name);

/// A source of random ops.
#[derive(Debug)]
pub struct OpSource {
    entropy: Entropy,
}

/// The inputs for an op: the existing entries, and the time of the commit.
struct OpDraw<'a> {
    entropy: &'a Entropy,
    tables: &'a MemoryEngine,
    namespace: &'a Namespace,
    now: Timestamp,
}

impl OpSource {
    /// Makes a source for a seed.
    pub fn new(seed: u64) -> Self {
        Self { entropy: Entropy::new(seed) }
    }

    /// Draws the next op for a namespace with these tables. `now` is the time of its commit.
    pub fn op(&self, tables: &MemoryEngine, namespace: &Namespace, now: Timestamp) -> Op {
        OpDraw { entropy: &self.entropy, tables, namespace, now }.op()
    }
}

/// Returns the moment that corresponds to a time, for a namespace whose clock is never changed.
pub fn moment(now: Timestamp) -> Moment {
    Moment { mount: 1, nanos: u64::try_from(now.0).unwrap_or(0) }
}

impl OpDraw<'_> {
    fn op(&self) -> Op {
        let (parent, name) = self.likely_dentry();
        match self.below(21) {
            0..=4 => self.create(),
            5..=6 => self.import(),
            7 if self.below(4) > 0 => Op::Link { ino: self.ino(), parent, name },
            7 => self.promote_link(),
            8..=9 => Op::Unlink { parent, name, keep: self.flip_coin() },
            10 => Op::Rmdir { parent, name },
            11..=13 => self.rename(),
            14 => Op::SetAttr { ino: self.ino(), changes: self.changes() },
            15 => self.xattr(),
            16 if self.flip_coin() => self.publish(),
            16 => self.splice(),
            17 => Op::Refresh { ino: self.ino(), seen: self.observed() },
            18 if self.flip_coin() => {
                Op::Vanish { parent, name, looked_at: self.moment(), keep: self.flip_coin() }
            }
            18 => Op::Evict { parent, name },
            19 if self.flip_coin() => Op::AwaitExport { ino: self.ino() },
            19 => self.exported(),
            _ => Op::Purge { ino: self.orphan() },
        }
    }

    fn below(&self, bound: usize) -> usize {
        self.entropy.below(bound as u64) as usize
    }

    fn flip_coin(&self) -> bool {
        self.below(2) == 0
    }

    /// Draws an existing entry, if there is one.
    fn entry(&self) -> Option<(DentryKey, Dentry)> {
        let range = schema::all_dentries();
        let (from, to) = range.bounds();
        let rows = self.tables.scan(from, to, usize::MAX).ok()?;
        let (key, row) = rows.get(self.below(rows.len().max(1)))?;
        let dentry_key = (schema::ino_of(key).ok()?, schema::name_of(key).ok()?);
        Some((dentry_key, decode_dentry(&row.value).ok()?))
    }

    /// Draws a key that in most cases has an entry.
    fn likely_dentry(&self) -> DentryKey {
        match self.entry() {
            Some((dentry_key, _)) if self.below(5) > 0 => dentry_key,
            _ => (self.ino(), self.name()),
        }
    }

    /// Draws an inode that in most cases is a directory.
    fn dir(&self) -> Ino {
        match self.entry() {
            Some((_, dentry)) if dentry.kind == Kind::Directory => dentry.ino,
            Some(((dir, _), _)) if self.flip_coin() => dir,
            Some((_, dentry)) if self.below(8) == 0 => dentry.ino,
            _ => Ino::ROOT,
        }
    }

    fn ino(&self) -> Ino {
        match self.entry() {
            Some((_, dentry)) if self.below(8) > 0 => dentry.ino,
            _ if self.flip_coin() => self.orphan(),
            _ => Ino::ROOT,
        }
    }

    /// Draws the end of an export, half of the time of the change that waits for one.
    fn exported(&self) -> Op {
        let ino = self.ino();
        let waiting = self.namespace.waiting_export(ino).ok().flatten();
        let drawn = self.below(4) as u64;
        Op::Exported { ino, change: waiting.filter(|_| self.flip_coin()).unwrap_or(drawn) }
    }

    /// Draws an op that makes a link the primary one; in most cases the inode has that link.
    fn promote_link(&self) -> Op {
        match self.entry() {
            Some(((parent, name), dentry)) => Op::HandOn { ino: dentry.ino, parent, name },
            None => Op::HandOn { ino: self.ino(), parent: Ino::ROOT, name: self.name() },
        }
    }

    /// Returns an orphan, or an inode number that does not exist.
    fn orphan(&self) -> Ino {
        let range = schema::orphans();
        let (from, to) = range.bounds();
        let rows = self.tables.scan(from, to, 1).unwrap_or_default();
        rows.first().and_then(|(key, _)| schema::ino_of(key).ok()).unwrap_or(Ino(u64::MAX))
    }

    fn name(&self) -> Name {
        let mut text = NAMES[self.below(NAMES.len())].as_bytes().to_vec();
        loop {
            match Name::new(&text) {
                Ok(name) => return name,
                Err(_) => text.push(b'_'),
            }
        }
    }

    fn kind(&self) -> Kind {
        match self.below(10) {
            0..=4 => Kind::Directory,
            5..=7 => Kind::File,
            8 => Kind::Symlink,
            _ => Kind::Socket,
        }
    }

    fn mode(&self) -> u16 {
        self.below(0o10000) as u16
    }

    fn create(&self) -> Op {
        let (parent, kind) = (self.dir(), self.kind());
        Op::Create {
            parent,
            name: self.name(),
            ino: self.namespace.allocate(parent, 1)[0],
            kind,
            mode: self.mode(),
            uid: self.below(3) as u32,
            gid: self.below(3) as u32,
            umask: 0,
            rdev: 0,
            target: (kind == Kind::Symlink).then(|| "elsewhere".into()),
        }
    }

    fn import(&self) -> Op {
        let parent = self.dir();
        let ino = self.namespace.allocate(parent, 1)[0];
        Op::Import { parent, name: self.name(), ino, seen: self.observed() }
    }

    fn rename(&self) -> Op {
        let how = match self.below(6) {
            0 => RenameHow::NoReplace,
            1 => RenameHow::Exchange,
            _ => RenameHow::Replace,
        };
        let to = if self.flip_coin() { self.likely_dentry() } else { (self.dir(), self.name()) };
        Op::Rename { from: self.likely_dentry(), to, how, keep: self.flip_coin() }
    }

    fn changes(&self) -> AttrChanges {
        AttrChanges {
            mode: self.flip_coin().then(|| self.mode()),
            uid: self.flip_coin().then_some(7),
            gid: self.flip_coin().then_some(8),
            size_bytes: (self.below(4) == 0).then(|| self.entropy.below(60)),
            atime: self.flip_coin().then_some(self.now),
            mtime: self.flip_coin().then_some(Timestamp(self.now.0 - 3)),
        }
    }

    fn xattr(&self) -> Op {
        let name = if self.flip_coin() { "user.a" } else { "user.b" };
        let (ino, name) = (self.ino(), name.as_bytes().into());
        if self.below(3) == 0 {
            return Op::RemoveXattr { ino, name };
        }
        Op::SetXattr {
            ino,
            name,
            value: self.entropy.next_u64().to_be_bytes().to_vec().into(),
            how: XattrHow::Set,
        }
    }

    fn stored(&self) -> Stored {
        Stored {
            key: None,
            etag: ETag::new(ETAGS[self.below(ETAGS.len())]),
            version: None,
            last_modified: self.flip_coin().then_some(self.now),
        }
    }

    /// Draws the object of an extent: at the path key, possibly in different versions, or at a key of its own.
    fn extent_object(&self) -> Stored {
        let key = self.flip_coin().then(|| OBJECT_KEYS[self.below(OBJECT_KEYS.len())]);
        Stored { key: key.and_then(|key| ObjectKey::try_from(key).ok()), ..self.stored() }
    }

    fn publish(&self) -> Op {
        let (content, size_bytes) = self.content();
        let ino = self.ino();
        let known = self.etag_of(ino);
        let base = if self.below(4) > 0 { known } else { Some(self.stored().etag) };
        Op::Publish { ino, base, content, size_bytes, mtime: self.flip_coin().then_some(self.now) }
    }

    fn splice(&self) -> Op {
        let (content, end) = self.content();
        let ranges = content.iter().map(|extent| extent.offset..extent.end()).collect();
        let size_bytes = end + self.entropy.below(60);
        Op::Splice {
            ino: self.ino(),
            ranges,
            content,
            size_bytes,
            mtime: self.flip_coin().then_some(self.now),
        }
    }

    /// Draws up to six extents, and returns them with their end. More than four extents are stored in rows of their own.
    fn content(&self) -> (Vec<Extent>, u64) {
        let mut end = 0;
        let mut content = Vec::new();
        for _ in 0..self.below(7) {
            let (offset, len) = (end + self.entropy.below(3), 1 + self.entropy.below(20));
            content.push(Extent { offset, len, object: self.extent_object(), object_offset: 0 });
            end = offset + len;
        }
        (content, end)
    }

    /// Returns the etag of an inode's current object.
    fn etag_of(&self, ino: Ino) -> Option<ETag> {
        let inode = read_inode(self.tables, ino).ok()??;
        inode.object().map(|object| object.etag.clone())
    }

    fn observed(&self) -> Observed {
        let kind = self.kind();
        Observed {
            kind,
            size_bytes: self.entropy.below(90),
            object: (self.below(3) > 0).then(|| self.stored()),
            mode: self.mode(),
            uid: 5,
            gid: 5,
            rdev: 0,
            atime: self.now,
            mtime: Timestamp(self.now.0 - 1),
            ctime: self.now,
            btime: Timestamp(self.now.0 - 2),
            target: None,
            exact: self.flip_coin(),
            looked_at: self.moment(),
        }
    }

    /// Draws the time of an observation: now, or before recent changes.
    fn moment(&self) -> Moment {
        moment(if self.below(4) > 0 { self.now } else { Timestamp(self.now.0 - 1_000) })
    }
}
