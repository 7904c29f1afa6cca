//! Files with many extents: the cost of changes, released objects, and records of earlier versions.

use crate::fixture::{Fixture, context};
use crate::properties::table;
use meta::codec::{decode_inode, encode_inode};
use meta::{
    AttrChanges, Commit, Content, Engine, EngineError, Extent, Ino, KeyRange, MemoryEngine, Op, Reader, Rows,
    Staged, Stored, Versioned, namespace, schema,
};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{ETag, ObjectKey};

const CHUNK: u64 = 4096;

fn stored(key: &str) -> Stored {
    let key = Some(ObjectKey::try_from(key).unwrap());
    Stored { key, etag: ETag::new("tag"), version: None, last_modified: None }
}

fn chunk(number: u64, key: &str) -> Extent {
    Extent { offset: number * CHUNK, len: CHUNK, object: stored(key), object_offset: 0 }
}

/// Creates a file that consists of one object per chunk.
fn chunked(fs: &Fixture, chunks: u64) -> Ino {
    let ino = fs.file(Ino::ROOT, "f");
    let content = (0..chunks).map(|number| chunk(number, &format!("chunk-{number}"))).collect();
    fs.apply(Op::Publish { ino, base: None, content, size_bytes: chunks * CHUNK, mtime: None }).unwrap();
    ino
}

fn splice(ino: Ino, extent: Extent, size_bytes: u64) -> Op {
    let ranges = vec![extent.offset..extent.end()];
    Op::Splice { ino, ranges, content: vec![extent], size_bytes, mtime: None }
}

/// A reader that counts the records read through it.
struct Counting<'a>(&'a MemoryEngine, AtomicUsize);

impl Counting<'_> {
    fn counted<T>(&self, found: T, records: impl Fn(&T) -> usize) -> Result<T, EngineError> {
        self.1.fetch_add(records(&found), Ordering::Relaxed);
        Ok(found)
    }
}

impl Reader for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.counted(self.0.get(key)?, |_| 1)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.counted(self.0.multi_get(keys)?, Vec::len)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.counted(self.0.scan(from, to, limit)?, Vec::len)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.counted(self.0.last(range)?, |_| 1)
    }
}

/// A change of one chunk or of attributes used to read and write all extents of the file, which took 1.3 s for 256,000 extents.
#[test]
fn the_cost_of_a_change_does_not_depend_on_the_number_of_extents() {
    let costs = |chunks: u64| {
        let fs = Fixture::new();
        let ino = chunked(&fs, chunks);
        let middle = chunks / 2;
        let attributes = AttrChanges { mode: Some(0o600), ..AttrChanges::default() };
        let cut = AttrChanges { size_bytes: Some((chunks - 1) * CHUNK), ..AttrChanges::default() };
        let ops = [
            splice(ino, chunk(middle, "new"), chunks * CHUNK),
            splice(ino, Extent { offset: middle * CHUNK + 9, len: 9, ..chunk(0, "delta") }, chunks * CHUNK),
            Op::SetAttr { ino, changes: attributes },
            Op::SetAttr { ino, changes: cut },
        ];
        ops.map(|op| {
            let reader = Counting(&fs.engine, AtomicUsize::new(0));
            let mut txn = Staged::new(&reader);
            namespace::apply(&mut txn, &context(99), &op).unwrap();
            let commit = txn.into_commit();
            let written = commit.puts.len() + commit.deletes.len();
            (reader.1.load(Ordering::Relaxed), written)
        })
    };
    let (few, many) = (costs(16), costs(4000));
    assert_eq!(few, many);
    assert!(few.iter().all(|(read, written)| *read <= 12 && *written <= 8), "{few:?}");
}

#[test]
fn an_object_is_released_with_its_last_extent() {
    let fs = Fixture::new();
    let ino = chunked(&fs, 16);
    let size_bytes = 16 * CHUNK;
    let released = |op| fs.apply(op).unwrap().released;
    let key = |name: &str| vec![ObjectKey::try_from(name).unwrap()];
    let middle = Extent { offset: 3 * CHUNK + 9, len: 9, ..chunk(0, "delta") };
    assert_eq!(released(splice(ino, middle, size_bytes)), [], "two extents of the chunk are left");
    let head = Extent { offset: 3 * CHUNK, len: 9, ..chunk(0, "head") };
    assert_eq!(released(splice(ino, head, size_bytes)), [], "one extent of the chunk is left");
    let tail = Extent { offset: 3 * CHUNK + 18, len: CHUNK - 18, ..chunk(0, "tail") };
    assert_eq!(released(splice(ino, tail, size_bytes)), key("chunk-3"));
    assert_eq!(released(splice(ino, chunk(7, "chunk-8"), size_bytes)), key("chunk-7"));
    assert_eq!(released(splice(ino, chunk(8, "new"), size_bytes)), [], "chunk 7 is in the same object");
    let cut = AttrChanges { size_bytes: Some(10 * CHUNK), ..AttrChanges::default() };
    assert_eq!(released(Op::SetAttr { ino, changes: cut }).len(), 6);
    let name = crate::fixture::name("f");
    assert_eq!(released(Op::Unlink { parent: Ino::ROOT, name: name.clone(), keep: true }), []);
    assert_eq!(released(Op::Purge { ino }).len(), 12);
}

/// Two extents at the path key may be in two states of the object there. The inode kept the first one after its extent was replaced.
#[test]
fn the_summary_names_the_first_extent_at_the_path_key() {
    let fs = Fixture::new();
    let ino = fs.file(Ino::ROOT, "f");
    let at_path = |version: &str| Stored { key: None, version: Some(version.into()), ..stored("unused") };
    let mut content: Vec<_> = (0..9).map(|number| chunk(number, &format!("chunk-{number}"))).collect();
    content[1].object = at_path("v1");
    content[4].object = at_path("v2");
    fs.apply(Op::Publish { ino, base: None, content, size_bytes: 9 * CHUNK, mtime: None }).unwrap();
    let object_after = |extent| {
        let inode = fs.apply(splice(ino, extent, 9 * CHUNK)).unwrap().inode.unwrap();
        let Content::Rows(summary) = inode.content else { panic!("no rows") };
        summary.object
    };
    let start = Extent { offset: CHUNK, len: 9, ..chunk(0, "start") };
    assert_eq!(object_after(start), at_path("v1"), "the rest of the first one is left");
    assert_eq!(object_after(chunk(7, "other")), at_path("v1"));
    assert_eq!(object_after(chunk(1, "whole")), at_path("v2"));
    assert_eq!(object_after(chunk(4, "last")), stored("chunk-0"), "none is at the path key");
}

/// Tables written by commit 77752b7 have inodes without a summary of their extent rows, and no use counts.
#[test]
fn a_record_without_summary_is_read_and_gets_one_when_the_content_changes() {
    let fs = Fixture::new();
    let ino = chunked(&fs, 6);
    let inode = fs.namespace.inode(ino).unwrap();
    let Content::Rows(summary) = &inode.content else { panic!("no rows") };
    let earlier = meta::Summary { has_counted_uses: false, ..summary.clone() };
    let record = encode_inode(&meta::Inode { content: Content::Rows(earlier.clone()), ..inode.clone() });
    assert_eq!((record[0], decode_inode(ino, &record).unwrap().unsummed), (1, 6));
    let uses = table(&*fs.engine).into_iter().map(|(key, _)| key).filter(|key| key[0] == b'R');
    let puts = vec![(schema::inode(ino), record.into())];
    fs.engine.commit(Commit { puts, deletes: uses.collect(), ..Commit::default() }).unwrap();

    let found = fs.namespace.inode(ino).unwrap();
    assert_eq!(found.content, Content::Rows(earlier));
    assert_eq!(fs.namespace.inodes(&[ino]).unwrap(), [Some(found.clone())]);
    assert_eq!(fs.namespace.content_of(&found).unwrap().len(), 6);
    let changes = AttrChanges { mode: Some(0o600), ..AttrChanges::default() };
    fs.apply(Op::SetAttr { ino, changes }).unwrap();
    assert_eq!(fs.namespace.inode(ino).unwrap().content, found.content);
    let applied = fs.apply(splice(ino, chunk(2, "new"), 6 * CHUNK)).unwrap();
    assert_eq!(applied.released, [ObjectKey::try_from("chunk-2").unwrap()]);
    let Content::Rows(after) = applied.inode.unwrap().content else { panic!("no rows") };
    assert!(after.has_counted_uses && after.extents == 6);
}

#[test]
fn content_of_an_outdated_inode_is_refused() {
    let fs = Fixture::new();
    let ino = chunked(&fs, 6);
    let before = fs.namespace.inode(ino).unwrap();
    assert_eq!(fs.namespace.content_of(&before).unwrap().len(), 6);
    fs.apply(splice(ino, chunk(2, "new"), 6 * CHUNK)).unwrap();
    assert_eq!(fs.namespace.content_of(&before), Err(meta::FsError::StaleBase));
}
