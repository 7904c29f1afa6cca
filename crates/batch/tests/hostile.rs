//! Batches that do not come from the library: their checksums are right, and their ops or rows are forged.
//!
//! Each class has many mutants of random batches. A mutant may be rejected, or single ops of it refused. What is accepted keeps the rules:
//! only the user's own inodes are new, nothing changes that the user may not change, and the tables are the effect of the logged ops.

use crate::fixture::{AT, Ops, USER, Volume, context, copy_dir, name, values};
use crate::forged_rows::mutants;
use batch::{JobOptions, MergeError, Proof, Rejected, SealedBatch};
use meta::codec::{append_to_log_page, decode_inode, decode_log_page};
use meta::{
    AttrChanges, Effect, Extent, Ino, Kind, MemoryEngine, Moment, Name, Op, OpContext, OpRecord, Origin,
    Refreshed, RenameHow, Stored, Value, XattrHow, schema,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Bound;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{ETag, Entropy, ObjectKey, Timestamp};

const MAGIC_BYTES: u64 = 8;

/// A sealed batch of random ops, all of which succeed, over a volume.
pub(crate) struct Original {
    pub(crate) volume: Volume<MemoryEngine>,
    pub(crate) batch: PathBuf,
    lease: Range<Ino>,
    pub(crate) ops: Vec<(OpContext, Op)>,
    pub(crate) rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Original {
    pub(crate) fn new(seed: u64) -> Self {
        let volume = Volume::in_memory();
        let base = volume.create(USER, volume.home, "base", Kind::Directory, 0o755);
        volume.create(USER, base, "f", Kind::File, 0o644);
        let (mut job, lease) = volume.begin("job", JobOptions::default());
        let mut source = Ops::new(seed, USER, &[volume.home, base]);
        for step in 0..40 {
            let op = source.next(|dir| job.allocate(dir).unwrap());
            let context = context(USER, 200 + step);
            if crate::fixture::is_permitted(&job, context.now, &op) && job.apply(&context, &op).is_ok() {
                source.succeeded(&op);
            }
        }
        let batch = job.seal().unwrap().dir().to_owned();
        let ops = read_ops(&batch.join("ops"));
        let rows = read_rows(&batch.join("rows.sst"));
        Self { volume, batch, lease, ops, rows }
    }

    /// Merges a copy of the batch with these ops and rows into a copy of the volume. Returns the copy, and the result.
    pub(crate) fn merge(
        &self,
        ops: &[(OpContext, Op)],
        rows: &[(Vec<u8>, Vec<u8>)],
        proof: Proof,
    ) -> (MemoryEngine, Result<batch::Merged, MergeError>) {
        self.merge_files(&self.volume.engine, proof, |dir| {
            write_ops(&dir.join("ops"), ops);
            write_rows(&dir.join("rows.sst"), rows);
        })
    }

    /// Merges a copy of the batch, whose files are changed before, into a copy of an engine. Returns the copy, and the result.
    pub(crate) fn merge_files(
        &self,
        engine: &MemoryEngine,
        proof: Proof,
        change: impl FnOnce(&Path),
    ) -> (MemoryEngine, Result<batch::Merged, MergeError>) {
        let folder = tempfile::tempdir_in(self.volume.folder.path()).unwrap();
        let dir = folder.path().join("batch");
        copy_dir(&self.batch, &dir);
        change(&dir);
        let engine = engine.fork();
        let sealed = SealedBatch::open(&dir).unwrap();
        let merged = self.volume.merge_into(&engine, &sealed, &self.lease, proof);
        (engine, merged)
    }

    /// Asserts that a volume after a merge has nothing that the user may not do.
    pub(crate) fn assert_sound(&self, engine: &MemoryEngine, what: &str) {
        let before: BTreeMap<Vec<u8>, Value> = values(&*self.volume.engine).into_iter().collect();
        let after: BTreeMap<Vec<u8>, Value> = values(engine).into_iter().collect();
        for (key, value) in after.iter().filter(|(key, _)| key[0] == b'I') {
            let ino = schema::ino_of(key).unwrap();
            let inode = decode_inode(ino, value).unwrap().inode;
            if !before.contains_key(key) {
                assert!(self.lease.contains(&ino), "{what}: the new inode {ino} was not leased");
                assert_eq!((inode.uid, inode.gid), (USER, USER), "{what}: a new inode belongs to the user");
                assert!(inode.observed_at.nanos <= AT.nanos, "{what}: a moment in the future");
                assert!(inode.ctime <= Timestamp(1_000_000), "{what}: a time in the future");
            }
        }
        for ino in [self.volume.foreign, self.volume.foreign_file] {
            let key = schema::inode(ino);
            assert_eq!(before.get(&key), after.get(&key), "{what}: an inode of others has changed");
        }
        let names = |state: &BTreeMap<Vec<u8>, Value>| {
            let range = schema::dentries(self.volume.foreign);
            state
                .range(range.from..range.to)
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&before), names(&after), "{what}: a directory of others has changed");
        assert_eq!(meta::invariants::fsck(engine).unwrap(), vec![], "{what}");
    }
}

fn read_ops(path: &Path) -> Vec<(OpContext, Op)> {
    let mut frames = log::FrameReader::new(File::open(path).unwrap(), MAGIC_BYTES).unwrap();
    let mut pages = Vec::new();
    while let log::NextFrame::Frame(page) = frames.next().unwrap() {
        // A mark is no page.
        if page != [0] {
            pages.push(page.to_vec());
        }
    }
    let records = pages[1..].iter().flat_map(|page| decode_log_page(page).unwrap());
    records.map(|record| (record.context, record.op)).collect()
}

/// Replaces the ops of a log, with right checksums.
fn write_ops(path: &Path, ops: &[(OpContext, Op)]) {
    let mut page = Vec::new();
    for (context, op) in ops {
        // Effects in the log of a batch are not believed. Only the inodes in them can have an op refused.
        let effect = Effect { refreshed: Refreshed::Content, ..Effect::default() };
        append_to_log_page(&mut page, &OpRecord { context: *context, op: op.clone(), effect });
    }
    write_page(path, &page);
}

/// Replaces the pages of a log by one, with a right checksum; by none if it is empty.
pub(crate) fn write_page(path: &Path, page: &[u8]) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..36]).unwrap();
    if !page.is_empty() {
        let file = File::options().read(true).write(true).open(path).unwrap();
        log::FrameWriter::new(file, 36).append(page).unwrap();
    }
}

pub(crate) fn read_rows(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let source = bytes::Bytes::from(fs::read(path).unwrap());
    let table = Arc::new(sst::Table::open(source, 0, Arc::new(sst::Cache::new(1 << 20))).unwrap());
    let mut cursor = table.scan(Bound::Unbounded);
    let mut rows = Vec::new();
    while cursor.advance().unwrap() {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
    }
    rows
}

pub(crate) fn write_rows(path: &Path, rows: &[(Vec<u8>, Vec<u8>)]) {
    let mut writer = sst::Writer::new(Vec::new(), sst::Options::default());
    rows.iter().for_each(|(key, value)| writer.add(key, value).unwrap());
    fs::write(path, writer.finish().unwrap().0).unwrap();
}

/// Forges the ops of a batch.
type Forge = fn(&Original, &Entropy, &mut Vec<(OpContext, Op)>);

fn at(entropy: &Entropy, ops: &[(OpContext, Op)]) -> usize {
    entropy.below(ops.len() as u64) as usize
}

/// Inserts an op at a random place, with a context of the batch.
fn insert(entropy: &Entropy, ops: &mut Vec<(OpContext, Op)>, op: Op) {
    let at = entropy.below(ops.len() as u64 + 1) as usize;
    ops.insert(at, (context(USER, 500), op));
}

fn any_name(entropy: &Entropy) -> Name {
    name(["a", "b", "new", "secret"][entropy.below(4) as usize])
}

pub(crate) fn stored() -> Extent {
    let key = ObjectKey::try_from(&b"others/object"[..]).unwrap();
    let object = Stored { key: Some(key), etag: ETag::new("etag"), version: None, last_modified: None };
    Extent { offset: 0, len: 1, object, object_offset: 0 }
}

fn new_file(ino: Ino, parent: Ino, entropy: &Entropy) -> Op {
    crate::fixture::create(USER, parent, &format!("x{}", entropy.below(1000)), ino, Kind::File, 0o644)
}

const FORGERIES: &[(&str, Forge)] = &[
    ("an op is dropped", |_, entropy, ops| {
        let at = at(entropy, ops);
        ops.remove(at);
    }),
    ("an op is repeated", |_, entropy, ops| {
        let op = ops[at(entropy, ops)].clone();
        ops.insert(at(entropy, ops), op);
    }),
    ("two ops are exchanged", |_, entropy, ops| {
        let (one, other) = (at(entropy, ops), at(entropy, ops));
        ops.swap(one, other);
    }),
    ("an owner is forged", |_, entropy, ops| {
        let at = at(entropy, ops);
        if let Op::Create { uid, gid, .. } = &mut ops[at].1 {
            (*uid, *gid) = if entropy.below(2) == 0 { (0, *gid) } else { (*uid, 0) };
        } else {
            ops[at].0.uid = 0;
        }
    }),
    ("an owner is given away", |original, entropy, ops| {
        let changes = AttrChanges { uid: Some(0), mode: Some(0o4755), ..AttrChanges::default() };
        insert(entropy, ops, Op::SetAttr { ino: original.volume.home, changes });
    }),
    ("a set-id bit of another group is set", |original, entropy, ops| {
        let ino = Ino(original.lease.end.0 - 1);
        let op = crate::fixture::create(USER, original.volume.foreign, "x", ino, Kind::File, 0o6755);
        insert(entropy, ops, op);
    }),
    ("a number outside of the lease", |original, entropy, ops| {
        let outside =
            [original.lease.end.0, original.lease.start.0 - 1, original.volume.foreign_file.0, 1, 0];
        let ino = Ino(outside[entropy.below(5) as usize]);
        insert(entropy, ops, new_file(ino, original.volume.home, entropy));
    }),
    ("a name of a foreign inode", |original, entropy, ops| {
        let ino = original.volume.foreign_file;
        insert(entropy, ops, Op::Link { ino, parent: original.volume.home, name: any_name(entropy) });
    }),
    ("an entry of a foreign directory", |original, entropy, ops| {
        let ino = Ino(original.lease.end.0 - 1);
        insert(entropy, ops, new_file(ino, original.volume.foreign, entropy));
        let from = (original.volume.foreign, name("secret"));
        let to = (original.volume.home, any_name(entropy));
        insert(entropy, ops, Op::Rename { from, to, how: RenameHow::Replace, keep: false });
        insert(
            entropy,
            ops,
            Op::Unlink { parent: original.volume.foreign, name: name("secret"), keep: false },
        );
    }),
    ("a foreign inode is changed", |original, entropy, ops| {
        let ino =
            [original.volume.foreign_file, original.volume.foreign, Ino::ROOT][entropy.below(3) as usize];
        let changes = AttrChanges { mode: Some(0o777), ..AttrChanges::default() };
        insert(entropy, ops, Op::SetAttr { ino, changes });
        let value = vec![1].into();
        insert(entropy, ops, Op::SetXattr { ino, name: b"user.x"[..].into(), value, how: XattrHow::Set });
        insert(entropy, ops, Op::Publish { ino, base: None, content: vec![], size_bytes: 7, mtime: None });
    }),
    ("a cycle of directories", |original, entropy, ops| {
        let (one, other) = (Ino(original.lease.end.0 - 2), Ino(original.lease.end.0 - 1));
        let home = original.volume.home;
        let dir =
            |parent, text: &str, ino| crate::fixture::create(USER, parent, text, ino, Kind::Directory, 0o755);
        let below = (other, any_name(entropy));
        ops.push((context(USER, 500), dir(home, "one", one)));
        ops.push((context(USER, 500), dir(one, "other", other)));
        let how = RenameHow::Replace;
        ops.push((context(USER, 500), Op::Rename { from: (home, name("one")), to: below, how, keep: false }));
    }),
    ("a forged time, moment or origin", |_, entropy, ops| {
        let at = at(entropy, ops);
        match entropy.below(5) {
            0 => ops[at].0.now = Timestamp(i64::MAX),
            1 => ops[at].0.now = Timestamp(0),
            2 => ops[at].0.at = Moment { mount: u64::MAX, nanos: 1 },
            3 => ops[at].0.origin = Origin::FrontEnd,
            _ => ops[at].0.at.nanos += 1,
        }
    }),
    ("an op that no user asks for", |original, entropy, ops| {
        let (parent, ino) = (original.volume.home, Ino(original.lease.end.0 - 1));
        let foreign_file = original.volume.foreign_file;
        let forged = match entropy.below(8) {
            0 => Op::Lease { from: original.lease.end, to: Ino(original.lease.end.0 + 7) },
            1 => Op::Evict { parent: original.volume.foreign, name: name("secret") },
            2 => Op::SetQuota { dir: parent, limits: None },
            3 => Op::Purge { ino: foreign_file },
            4 => Op::AwaitExport { ino: foreign_file },
            5 => Op::CreateOrphan { parent, ino, mode: 0o644, umask: 0, uid: USER, gid: USER },
            6 => Op::HandOn { ino: foreign_file, parent, name: any_name(entropy) },
            _ => Op::Unlink { parent, name: any_name(entropy), keep: true },
        };
        insert(entropy, ops, forged);
    }),
    ("extents in objects of others", |original, entropy, ops| {
        let ino = Ino(original.lease.end.0 - 1);
        ops.push((context(USER, 500), new_file(ino, original.volume.home, entropy)));
        let content = vec![stored()];
        ops.push((
            context(USER, 500),
            match entropy.below(2) {
                0 => Op::Publish { ino, base: None, content, size_bytes: 1, mtime: None },
                _ => Op::Splice {
                    ino,
                    ranges: std::iter::once(0..1).collect(),
                    content,
                    size_bytes: 1,
                    mtime: None,
                },
            },
        ));
    }),
];

/// A batch that its rows prove is accepted whatever its ops are, since they are not read.
#[test]
fn forged_ops_are_never_accepted() {
    let mut proven_by_rows = 0;
    for (class, forge) in FORGERIES {
        let (mut rejected, mut refused) = (0, 0);
        for seed in 0..mutants().max(300).div_ceil(25) as u64 {
            let original = Original::new(seed);
            let (expected, merged) = original.merge(&original.ops, &original.rows, Proof::Replay);
            assert_eq!(merged.unwrap().accepted as usize, original.ops.len(), "the original is accepted");
            original.assert_sound(&expected, "the original");
            let expected = values(&expected);
            let entropy = Entropy::new(seed);
            for number in 0..25 {
                let mut ops = original.ops.clone();
                forge(&original, &entropy, &mut ops);
                let proof = if number % 5 == 0 { Proof::Reduced } else { Proof::Replay };
                let (engine, merged) = original.merge(&ops, &original.rows, proof);
                original.assert_sound(&engine, class);
                match merged {
                    Err(MergeError::Rejected(_)) => rejected += 1,
                    Err(error) => panic!("{class}: {error}"),
                    Ok(merged) if !merged.refused.is_empty() => refused += 1,
                    Ok(merged) => {
                        assert_eq!(values(&engine), expected, "{class}: accepted with another effect");
                        proven_by_rows += usize::from(merged.proof == Some(Proof::Reduced));
                    }
                }
            }
        }
        assert!(rejected + refused > 100, "{class}: {rejected} rejected, {refused} refused");
    }
    assert!(proven_by_rows > 50, "{proven_by_rows} batches were proven by their rows");
}

/// Rows that are forged reject the batch, or have no effect.
#[test]
fn forged_rows_are_never_accepted() {
    let (mut rejected, mut without_effect) = (0, 0);
    for seed in 0..40 {
        let original = Original::new(seed);
        let expected = values(&original.merge(&original.ops, &original.rows, Proof::Replay).0);
        let entropy = Entropy::new(seed);
        for _ in 0..40 {
            let mut rows = original.rows.clone();
            let at = entropy.below(rows.len() as u64) as usize;
            match entropy.below(5) {
                0 => drop(rows.remove(at)),
                1 => {
                    let byte = entropy.below(rows[at].1.len() as u64) as usize;
                    rows[at].1[byte] ^= 1 << entropy.below(8);
                }
                2 => {
                    let key = schema::dentry(original.volume.home, &any_name(&entropy));
                    let dentry = meta::Dentry { ino: original.volume.foreign_file, kind: Kind::File };
                    rows.retain(|(found, _)| *found != key);
                    rows.push((key, [&[1], &meta::codec::encode_dentry(dentry)[..]].concat()));
                }
                3 => {
                    let key = schema::inode(original.volume.foreign_file);
                    rows.push((key, rows[at].1.clone()));
                }
                _ => rows.push((vec![b'Z'; 1 + entropy.below(20) as usize], vec![0])),
            }
            rows.sort();
            let (engine, merged) = original.merge(&original.ops, &rows, Proof::Replay);
            match merged {
                Err(MergeError::Rejected(Rejected::Rows | Rejected::Engine(_))) => {
                    assert_eq!(values(&engine), values(&*original.volume.engine));
                    rejected += 1;
                }
                Err(error) => panic!("{error}"),
                Ok(_) => {
                    assert_eq!(values(&engine), expected);
                    without_effect += 1;
                }
            }
        }
    }
    assert!(rejected > 1000, "{rejected} rejected, {without_effect} without effect");
}

/// A batch of another user, or with the lease of another batch, is rejected.
#[test]
fn terms_come_from_the_server() {
    let original = Original::new(3);
    let batch = SealedBatch::open(&original.batch).unwrap();
    let scratch = original.volume.folder.path();
    let terms = crate::fixture::terms(&original.lease);
    let mut forged = vec![terms.clone(); 4];
    forged[0].caller.uid = 0;
    forged[1].lease = batch::begin(&original.volume.namespace, &context(0, 3), Ino::ROOT).unwrap().lease;
    forged[2].at.nanos += 1;
    forged[3].times = Timestamp(0)..=Timestamp(10);
    for terms in &forged {
        let merged = batch::merge(&*original.volume.engine, &batch, terms, scratch, Proof::Replay);
        assert!(matches!(merged, Err(MergeError::Rejected(_))), "{merged:?}");
    }
    let merged = batch::merge(&*original.volume.engine, &batch, &terms, scratch, Proof::Replay).unwrap();
    assert_eq!(merged.accepted as usize, original.ops.len());
}
