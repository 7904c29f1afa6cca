//! The two schemas, with the records that Tenon writes.

use crate::stores::{Key, Store};
use meta::codec::{decode_dentry, decode_inode, encode_dentry, encode_inode};
use meta::{Content, Dentry, Extent, Ino, Inode, Kind, Name, Stored, schema};
use std::collections::HashMap;
use store::{ETag, Timestamp};

/// A directory: its number, and where it is named.
#[derive(Clone)]
pub struct Dir {
    pub ino: Ino,
    pub parent: Ino,
    pub name: Name,
}

pub trait Schema {
    fn name(&self) -> &'static str;
    fn make_dir(&mut self, parent: &Dir, name: Name) -> Dir;
    fn make_file(&mut self, dir: &Dir, name: Name) -> Ino;
    /// Names with attributes; their number.
    fn list(&self, dir: &Dir) -> usize;
    fn lookup(&self, dir: &Dir, name: &Name) -> Inode;
    fn by_number(&self, ino: Ino) -> Inode;
    fn publish(&mut self, dir: &Dir, name: &Name, size_bytes: u64);
    fn rename(&mut self, from: (&Dir, &Name), to: (&Dir, &Name));
    fn settle(&mut self);
}

/// How inode numbers are handed out.
pub enum Numbers {
    /// In ranges per directory.
    PerDirectory,
    /// One after the other.
    InTurn,
}

fn new_inode(ino: Ino, kind: Kind) -> Inode {
    let time = Timestamp(1_767_268_800_000_000_000 + ino.0 as i64 * 1000);
    let object = Stored {
        key: None,
        etag: ETag::new("d41d8cd98f00b204e9800998ecf8427e"),
        version: None,
        last_modified: Some(time),
    };
    let extent = Extent { offset: 0, len: 0, object, object_offset: 0 };
    Inode {
        ino,
        kind,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        nlink: 1,
        rdev: 0,
        size_bytes: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        home: None,
        content: if kind == Kind::File { Content::Inline(vec![extent]) } else { Content::EMPTY },
        target: None,
        exact: true,
        observed_at: time,
    }
}

fn touch(inode: &mut Inode) {
    inode.mtime.0 += 1000;
    inode.ctime = inode.mtime;
}

/// `D|dir|name` → number and kind; `I|number` → attributes.
pub struct Separate<S> {
    store: S,
    numbers: Numbers,
    next: u64,
    open: HashMap<Ino, (u64, u64)>,
}

impl<S: Store> Separate<S> {
    pub fn new(mut store: S, numbers: Numbers) -> Self {
        let root = encode_inode(&new_inode(Ino::ROOT, Kind::Directory));
        store.write(vec![(schema::inode(Ino::ROOT), Some(root))]);
        Self { store, numbers, next: 2, open: HashMap::new() }
    }

    fn number(&mut self, dir: Ino) -> Ino {
        if let Numbers::InTurn = self.numbers {
            self.next += 1;
            return Ino(self.next);
        }
        let range = self.open.entry(dir).or_insert((0, 16));
        if range.0 % range.1 == 0 {
            range.1 *= 2;
            self.next = (self.next / range.1 + 1) * range.1;
            *range = (self.next, range.1);
            self.next += range.1;
        }
        range.0 += 1;
        Ino(range.0 - 1)
    }

    fn inode(&self, ino: Ino) -> Inode {
        let record = self.store.get(&schema::inode(ino)).expect("an inode");
        decode_inode(ino, &record).expect("an inode record").inode
    }

    fn touched(&self, ino: Ino) -> (Key, Option<Vec<u8>>) {
        let mut inode = self.inode(ino);
        touch(&mut inode);
        (schema::inode(ino), Some(encode_inode(&inode)))
    }

    fn make(&mut self, dir: &Dir, name: Name, kind: Kind) -> Ino {
        let ino = self.number(dir.ino);
        assert!(self.store.get(&schema::dentry(dir.ino, &name)).is_none());
        let inode = Inode { home: Some((dir.ino, name.clone())), ..new_inode(ino, kind) };
        let parent = self.touched(dir.ino);
        self.store.write(vec![
            (schema::dentry(dir.ino, &name), Some(encode_dentry(Dentry { ino, kind }))),
            (schema::inode(ino), Some(encode_inode(&inode))),
            parent,
        ]);
        ino
    }

    fn dentry(&self, dir: &Dir, name: &Name) -> Dentry {
        decode_dentry(&self.store.get(&schema::dentry(dir.ino, name)).expect("a dentry"))
            .expect("a dentry record")
    }
}

impl<S: Store> Schema for Separate<S> {
    fn name(&self) -> &'static str {
        match self.numbers {
            Numbers::PerDirectory => "separate, numbers per directory",
            Numbers::InTurn => "separate, numbers in turn",
        }
    }

    fn make_dir(&mut self, parent: &Dir, name: Name) -> Dir {
        let ino = self.make(parent, name.clone(), Kind::Directory);
        Dir { ino, parent: parent.ino, name }
    }

    fn make_file(&mut self, dir: &Dir, name: Name) -> Ino {
        self.make(dir, name, Kind::File)
    }

    fn list(&self, dir: &Dir) -> usize {
        let range = schema::dentries(dir.ino);
        let rows = self.store.scan(&range.from, &range.to);
        let inos: Vec<Ino> = rows.iter().map(|(_, row)| decode_dentry(row).expect("a dentry").ino).collect();
        let (Some(first), Some(last)) = (inos.iter().min(), inos.iter().max()) else { return 0 };
        // Numbers that lie close together are read as a range, others one by one.
        if last.0 - first.0 < 4 * inos.len() as u64 {
            let near = self.store.scan(&schema::inode(*first), &schema::inode(Ino(last.0 + 1)));
            let decoded = |(key, row): &(Key, Vec<u8>)| {
                decode_inode(schema::ino_of(key).expect("a number"), row).expect("an inode").inode.ino
            };
            let near: HashMap<Ino, ()> = near.iter().map(|row| (decoded(row), ())).collect();
            return inos.iter().filter(|ino| near.contains_key(ino)).count();
        }
        inos.iter().map(|ino| self.inode(*ino)).count()
    }

    fn lookup(&self, dir: &Dir, name: &Name) -> Inode {
        self.inode(self.dentry(dir, name).ino)
    }

    fn by_number(&self, ino: Ino) -> Inode {
        self.inode(ino)
    }

    fn publish(&mut self, dir: &Dir, name: &Name, size_bytes: u64) {
        let mut inode = self.lookup(dir, name);
        inode.size_bytes = size_bytes;
        touch(&mut inode);
        self.store.write(vec![(schema::inode(inode.ino), Some(encode_inode(&inode)))]);
    }

    fn rename(&mut self, from: (&Dir, &Name), to: (&Dir, &Name)) {
        let dentry = self.dentry(from.0, from.1);
        assert!(self.store.get(&schema::dentry(to.0.ino, to.1)).is_none());
        let inode = Inode { home: Some((to.0.ino, to.1.clone())), ..self.inode(dentry.ino) };
        let parents = [self.touched(from.0.ino), self.touched(to.0.ino)];
        let mut batch = vec![
            (schema::dentry(from.0.ino, from.1), None),
            (schema::dentry(to.0.ino, to.1), Some(encode_dentry(dentry))),
            (schema::inode(inode.ino), Some(encode_inode(&inode))),
        ];
        batch.extend(parents);
        self.store.write(batch);
    }

    fn settle(&mut self) {
        self.store.settle();
    }
}

/// `D|dir|name` → number and attributes. `R|number` → directory and name: the kernel asks by number.
pub struct Embedded<S> {
    store: S,
    next: u64,
}

const ROOT_NAME: &[u8] = b"root";

impl<S: Store> Embedded<S> {
    pub fn new(store: S) -> Self {
        let mut embedded = Self { store, next: 2 };
        let root = new_inode(Ino::ROOT, Kind::Directory);
        let key = schema::dentry(Ino(0), &Name::new(ROOT_NAME).expect("a name"));
        embedded.store.write(vec![(key, Some(Self::record(&root)))]);
        embedded
    }

    fn record(inode: &Inode) -> Vec<u8> {
        let mut record = inode.ino.0.to_be_bytes().to_vec();
        record.extend(encode_inode(inode));
        record
    }

    fn decode(record: &[u8]) -> Inode {
        let (number, rest) = record.split_at(8);
        let ino = Ino(u64::from_be_bytes(number.try_into().expect("8 bytes")));
        decode_inode(ino, rest).expect("an inode record").inode
    }

    fn reverse(ino: Ino) -> Key {
        let mut key = schema::inode(ino);
        key[0] = b'R';
        key
    }

    fn place(dir: Ino, name: &Name) -> Vec<u8> {
        schema::dentry(dir, name)
    }

    fn read(&self, key: &[u8]) -> Inode {
        Self::decode(&self.store.get(key).expect("a dentry"))
    }

    fn touched(&self, dir: &Dir) -> (Key, Option<Vec<u8>>) {
        let key = Self::place(dir.parent, &dir.name);
        let mut inode = self.read(&key);
        touch(&mut inode);
        (key, Some(Self::record(&inode)))
    }

    fn make(&mut self, dir: &Dir, name: &Name, kind: Kind) -> Ino {
        self.next += 1;
        let (ino, key) = (Ino(self.next), Self::place(dir.ino, name));
        assert!(self.store.get(&key).is_none());
        let parent = self.touched(dir);
        let record = Self::record(&new_inode(ino, kind));
        self.store.write(vec![(Self::reverse(ino), Some(key.clone())), (key, Some(record)), parent]);
        ino
    }
}

impl<S: Store> Schema for Embedded<S> {
    fn name(&self) -> &'static str {
        "embedded"
    }

    fn make_dir(&mut self, parent: &Dir, name: Name) -> Dir {
        let ino = self.make(parent, &name, Kind::Directory);
        Dir { ino, parent: parent.ino, name }
    }

    fn make_file(&mut self, dir: &Dir, name: Name) -> Ino {
        self.make(dir, &name, Kind::File)
    }

    fn list(&self, dir: &Dir) -> usize {
        let range = schema::dentries(dir.ino);
        self.store.scan(&range.from, &range.to).iter().map(|(_, row)| Self::decode(row)).count()
    }

    fn lookup(&self, dir: &Dir, name: &Name) -> Inode {
        self.read(&Self::place(dir.ino, name))
    }

    fn by_number(&self, ino: Ino) -> Inode {
        self.read(&self.store.get(&Self::reverse(ino)).expect("a place"))
    }

    fn publish(&mut self, dir: &Dir, name: &Name, size_bytes: u64) {
        let key = Self::place(dir.ino, name);
        let mut inode = self.read(&key);
        inode.size_bytes = size_bytes;
        touch(&mut inode);
        self.store.write(vec![(key, Some(Self::record(&inode)))]);
    }

    fn rename(&mut self, from: (&Dir, &Name), to: (&Dir, &Name)) {
        let (old, new) = (Self::place(from.0.ino, from.1), Self::place(to.0.ino, to.1));
        let inode = self.read(&old);
        assert!(self.store.get(&new).is_none());
        let parents = [self.touched(from.0), self.touched(to.0)];
        let mut batch = vec![
            (old, None),
            (new.clone(), Some(Self::record(&inode))),
            (Self::reverse(inode.ino), Some(new)),
        ];
        batch.extend(parents);
        self.store.write(batch);
    }

    fn settle(&mut self) {
        self.store.settle();
    }
}
