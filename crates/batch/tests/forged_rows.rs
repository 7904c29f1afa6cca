//! Batches whose rows are forged, with right checksums, against the reduced proof.
//!
//! A mutant that is accepted is judged by its logged ops: the user may carry out each of them, and together they make the tables. A mutant
//! that no permitted ops could have made must be rejected. `TENON_MUTANTS` is the number of mutants of each class.

use crate::fixture::{USER, Volume, assert_permitted, copy_dir, name, values};
use crate::hostile::{read_rows, stored, write_rows};
use crate::job::Job;
use batch::{MergeError, Merged, Proof, SealedBatch};
use meta::codec::{decode_inode, encode_dentry, encode_inode, encode_number};
use meta::{Content, Dentry, Engine, Ino, Inode, Kind, MemoryEngine, Moment, Op, Reader, schema};
use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::path::PathBuf;
use store::{Entropy, Timestamp};

type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// A batch that the reduced proof accepts.
struct Original {
    volume: Volume<MemoryEngine>,
    batch: PathBuf,
    lease: Range<Ino>,
    rows: RowMap,
    /// The new files and directories with their records.
    files: Vec<Inode>,
    dirs: Vec<Inode>,
}

impl Original {
    /// Returns the batch of a seed, if it has files and directories.
    fn new(seed: u64) -> Option<Self> {
        let mut job = Job::new(seed);
        (0..60).for_each(|_| job.act());
        let (volume, batch, lease) = job.seal();
        let batch = batch.dir().to_owned();
        let rows: RowMap = read_rows(&batch.join("rows.sst")).into_iter().collect();
        let inode = |(key, row): (&Vec<u8>, &Vec<u8>)| {
            let ino = schema::ino_of(key).unwrap();
            let is_new = key[0] == b'I' && row[0] == 1 && lease.contains(&ino);
            is_new.then(|| decode_inode(ino, &row[1..]).unwrap().inode)
        };
        let (dirs, others): (Vec<_>, Vec<_>) = rows.iter().filter_map(inode).partition(Inode::is_dir);
        let files: Vec<_> = others.into_iter().filter(|inode| inode.kind == Kind::File).collect();
        let is_rich = dirs.len() > 1 && !files.is_empty();
        is_rich.then_some(Self { volume, batch, lease, rows, files, dirs })
    }

    /// Merges a copy of the batch with these rows into a copy of the volume. Returns the copy, and the result.
    fn merge(&self, rows: &RowMap) -> (MemoryEngine, Result<Merged, MergeError>) {
        let folder = tempfile::tempdir_in(self.volume.folder.path()).unwrap();
        let dir = folder.path().join("batch");
        copy_dir(&self.batch, &dir);
        let rows: Vec<_> = rows.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
        write_rows(&dir.join("rows.sst"), &rows);
        let engine = self.volume.engine.fork();
        let sealed = SealedBatch::open(&dir).unwrap();
        let merged = self.volume.merge_into(&engine, &sealed, &self.lease, Proof::Reduced);
        (engine, merged)
    }

    /// Asserts that a merge has refused nothing, and logged what [`assert_permitted`] allows.
    fn assert_permitted(&self, merged: &MemoryEngine, what: &str) {
        for logged in merged.log_after(self.volume.engine.head(), usize::MAX).unwrap() {
            assert!(!matches!(logged.op, Op::SetRefusedOp { .. }), "{what}: {:?}", logged.op);
        }
        assert_permitted(&self.volume.engine, merged, what);
    }
}

fn put(value: Vec<u8>) -> Vec<u8> {
    [vec![1], value].concat()
}

fn one_of<'a, T>(entropy: &Entropy, of: &'a [T]) -> &'a T {
    &of[entropy.below(of.len() as u64) as usize]
}

/// Changes the claimed record of a new file or directory.
fn forge_inode(rows: &mut RowMap, inode: &Inode, change: impl FnOnce(&mut Inode)) {
    let mut inode = inode.clone();
    change(&mut inode);
    rows.insert(schema::inode(inode.ino), put(encode_inode(&inode)));
}

fn forge_dentry(rows: &mut RowMap, parent: Ino, text: &str, ino: Ino, kind: Kind) {
    rows.insert(schema::dentry(parent, &name(text)), put(encode_dentry(Dentry { ino, kind })));
}

/// Moves the claimed name of a new inode.
fn move_name(rows: &mut RowMap, inode: &Inode, parent: Ino, text: &str) {
    let (home, old) = inode.home.clone().unwrap();
    rows.remove(&schema::dentry(home, &old));
    forge_dentry(rows, parent, text, inode.ino, inode.kind);
    forge_inode(rows, inode, |inode| inode.home = Some((parent, name(text))));
}

/// Forges rows so that no permitted ops could have made them.
type Forge = fn(&Original, &Entropy, &mut RowMap);

const FORGERIES: &[(&str, Forge)] = &[
    ("an owner", |original, entropy, rows| {
        forge_inode(rows, one_of(entropy, &original.files), |inode| {
            inode.uid = entropy.below(USER.into()) as u32
        });
    }),
    ("a group, with the set-group-id bit", |original, entropy, rows| {
        forge_inode(rows, one_of(entropy, &original.files), |inode| {
            inode.gid = entropy.below(USER.into()) as u32;
            inode.mode |= 0o2010;
        });
    }),
    ("a device", |original, entropy, rows| {
        let file = one_of(entropy, &original.files);
        forge_inode(rows, file, |inode| {
            (inode.kind, inode.rdev) = (Kind::BlockDevice, 1 + entropy.below(99) as u32)
        });
        let (parent, name) = file.home.clone().unwrap();
        let dentry = Dentry { ino: file.ino, kind: Kind::BlockDevice };
        rows.insert(schema::dentry(parent, &name), put(encode_dentry(dentry)));
    }),
    ("a dentry to a foreign inode", |original, entropy, rows| {
        let (ino, kind) = *one_of(
            entropy,
            &[
                (original.volume.foreign_file, Kind::File),
                (original.volume.foreign, Kind::Directory),
                (Ino::ROOT, Kind::Directory),
            ],
        );
        forge_dentry(rows, one_of(entropy, &original.dirs).ino, "forged", ino, kind);
    }),
    ("a foreign inode that comes to a new name", |original, entropy, rows| {
        let ino = original.volume.foreign_file;
        let found = original.volume.engine.get(&schema::inode(ino)).unwrap().unwrap();
        let inode = decode_inode(ino, &found.value).unwrap().inode;
        forge_dentry(rows, one_of(entropy, &original.dirs).ino, "forged", ino, Kind::File);
        let home = Some((one_of(entropy, &original.dirs).ino, name("forged")));
        forge_inode(rows, &inode, |inode| (inode.home, inode.uid) = (home, USER));
    }),
    ("an entry of a foreign directory", |original, entropy, rows| {
        move_name(rows, one_of(entropy, &original.files), original.volume.foreign, "forged");
    }),
    ("an entry of a directory that does not exist", |original, entropy, rows| {
        let ino = Ino(original.lease.end.0 - 1 - entropy.below(1000));
        move_name(rows, one_of(entropy, &original.files), ino, "forged");
    }),
    ("a cycle of directories", |original, entropy, rows| {
        let one = one_of(entropy, &original.dirs);
        let other = one_of(entropy, &original.dirs);
        move_name(rows, one, other.ino, "one");
        if other.ino != one.ino {
            move_name(rows, other, one.ino, "other");
        }
    }),
    ("an extent in an object of others", |original, entropy, rows| {
        forge_inode(rows, one_of(entropy, &original.files), |inode| {
            inode.size_bytes = inode.size_bytes.max(1);
            inode.content = Content::of(&[stored()], inode.size_bytes);
        });
    }),
    ("an inode number that was not leased", |original, entropy, rows| {
        let file = one_of(entropy, &original.files);
        let ino =
            *one_of(entropy, &[original.lease.end, Ino(original.lease.start.0 - 1), Ino(0), Ino(u64::MAX)]);
        forge_dentry(rows, original.volume.home, "forged", ino, Kind::File);
        let home = Some((original.volume.home, name("forged")));
        forge_inode(rows, file, |inode| (inode.ino, inode.home) = (ino, home));
    }),
    ("an inode of the snapshot is replaced", |original, entropy, rows| {
        let ino = *one_of(
            entropy,
            &[original.volume.foreign_file, original.volume.foreign, original.volume.home, Ino::ROOT],
        );
        forge_inode(rows, one_of(entropy, &original.files), |inode| inode.ino = ino);
    }),
    ("a merge into a foreign inode", |original, entropy, rows| {
        let key = schema::inode(*one_of(
            entropy,
            &[original.volume.foreign_file, original.volume.foreign, Ino::ROOT],
        ));
        let (links, time) = (entropy.below(3) as i32 - 1, 300 + entropy.below(100) as i64);
        rows.insert(key, [&[2], &links.to_le_bytes()[..], &time.to_le_bytes(), &time.to_le_bytes()].concat());
    }),
    ("a link count", |original, entropy, rows| {
        let inodes = if entropy.below(2) == 0 { &original.files } else { &original.dirs };
        forge_inode(rows, one_of(entropy, inodes), |inode| inode.nlink += 1 + entropy.below(9) as u32);
    }),
    ("a type of a dentry", |original, entropy, rows| {
        let file = one_of(entropy, &original.files);
        let (parent, name) = file.home.clone().unwrap();
        let kind = *one_of(entropy, &[Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket]);
        rows.insert(schema::dentry(parent, &name), put(encode_dentry(Dentry { ino: file.ino, kind })));
    }),
    ("a second dentry of an inode", |original, entropy, rows| {
        let inodes = if entropy.below(2) == 0 { &original.files } else { &original.dirs };
        let inode = one_of(entropy, inodes);
        forge_dentry(rows, one_of(entropy, &original.dirs).ino, "forged", inode.ino, inode.kind);
    }),
    ("a dentry is missing", |original, entropy, rows| {
        let inodes = if entropy.below(2) == 0 { &original.files } else { &original.dirs };
        let (parent, name) = one_of(entropy, inodes).home.clone().unwrap();
        rows.remove(&schema::dentry(parent, &name)).unwrap();
    }),
    ("an inode is missing", |original, entropy, rows| {
        let inodes = if entropy.below(2) == 0 { &original.files } else { &original.dirs };
        rows.remove(&schema::inode(one_of(entropy, inodes).ino)).unwrap();
    }),
    ("a time or moment that was not granted", |original, entropy, rows| {
        forge_inode(rows, one_of(entropy, &original.files), |inode| match entropy.below(4) {
            0 => inode.btime = Timestamp(2_000_000 + entropy.below(99) as i64),
            1 => inode.ctime = Timestamp(i64::MAX - entropy.below(99) as i64),
            2 => inode.ctime = Timestamp(entropy.below(99) as i64),
            _ => inode.observed_at = Moment { mount: u64::MAX, nanos: entropy.below(99) },
        });
    }),
    ("a record that batches do not have", |original, entropy, rows| {
        let ino = one_of(entropy, &original.files).ino;
        let key = match entropy.below(7) {
            0 => schema::next_ino(),
            1 => schema::quotas_set(),
            2 => schema::quota(ino),
            3 => schema::tree(original.volume.home),
            4 => schema::orphan(ino),
            5 => schema::waiting_export(ino),
            _ => schema::set_group(ino),
        };
        rows.insert(key, put(encode_number(1 + entropy.below(1000))));
    }),
    ("an extended attribute that only the superuser can set", |original, entropy, rows| {
        let ino = one_of(entropy, &original.files).ino;
        let name: &[u8] =
            [&b"security.capability"[..], b"trusted.overlay", b"system.x"][entropy.below(3) as usize];
        rows.insert(schema::xattr(ino, name), put(vec![entropy.below(256) as u8]));
    }),
    ("an attribute of an inode of the snapshot", |original, entropy, rows| {
        let ino = *one_of(entropy, &[original.volume.foreign_file, original.volume.foreign, Ino::ROOT]);
        rows.insert(schema::xattr(ino, b"user.x"), put(vec![entropy.below(256) as u8]));
    }),
    ("a name of the snapshot is replaced", |original, entropy, rows| {
        move_name(
            rows,
            one_of(entropy, &original.files),
            Ino::ROOT,
            ["home", "root", "open"][entropy.below(3) as usize],
        );
    }),
    ("a name of the snapshot is removed", |original, entropy, rows| {
        let (parent, text) = *one_of(
            entropy,
            &[(original.volume.foreign, "secret"), (Ino::ROOT, "root"), (Ino::ROOT, "home")],
        );
        rows.insert(schema::dentry(parent, &name(text)), vec![0]);
    }),
    ("an inode of the snapshot is removed", |original, entropy, rows| {
        let ino = *one_of(entropy, &[original.volume.foreign_file, original.volume.foreign, Ino::ROOT]);
        rows.insert(schema::inode(ino), vec![0]);
    }),
];

#[expect(clippy::disallowed_methods, reason = "the number of mutants is that of the run")]
pub(crate) fn mutants() -> usize {
    env::var("TENON_MUTANTS").map_or(100, |text| text.parse().unwrap())
}

/// Visits originals and their sources of randomness, for the given number of mutants.
fn for_each_mutant(mutants: usize, mut visit: impl FnMut(&Original, &Entropy)) {
    /// Mutants of each original.
    const MUTANTS_EACH: usize = 50;
    let originals = (0..).filter_map(Original::new).take(mutants.div_ceil(MUTANTS_EACH));
    for (original, seed) in originals.zip(0..) {
        let (engine, merged) = original.merge(&original.rows);
        assert_eq!(merged.unwrap().proof, Some(Proof::Reduced), "the original is accepted");
        original.assert_permitted(&engine, "the original");
        let entropy = Entropy::new(seed);
        (0..MUTANTS_EACH).for_each(|_| visit(&original, &entropy));
    }
}

/// Right checksums and keys in order bring every mutant to the semantic check.
#[test]
fn forged_rows_are_rejected() {
    for (class, forge) in FORGERIES {
        let mut rejected = 0;
        for_each_mutant(mutants(), |original, entropy| {
            let mut rows = original.rows.clone();
            forge(original, entropy, &mut rows);
            assert_ne!(rows, original.rows, "{class}");
            let (engine, merged) = original.merge(&rows);
            match merged {
                Err(MergeError::Rejected(_)) => rejected += 1,
                other => panic!("{class}: {other:?}"),
            }
            assert_eq!(values(&engine), values(&*original.volume.engine), "{class}");
        });
        assert!(rejected >= mutants(), "{class}: {rejected} mutants");
    }
}

/// Any change of bytes, and any row that is lost, copied or exchanged. A mutant that is accepted is another batch of the same user.
#[test]
fn mutated_rows_make_permitted_ops_or_are_rejected() {
    let (mut rejected, mut accepted) = (0, 0);
    for_each_mutant(10 * mutants(), |original, entropy| {
        let mut rows = original.rows.clone();
        let keys: Vec<Vec<u8>> = rows.keys().cloned().collect();
        let (one, other) = (one_of(entropy, &keys), one_of(entropy, &keys));
        match entropy.below(5) {
            0 => drop(rows.remove(one)),
            1 => {
                let row = rows[one].clone();
                rows.insert(other.clone(), row);
            }
            2 => {
                let row = rows.remove(one).unwrap();
                let mut key = one.clone();
                key[entropy.below(one.len() as u64) as usize] ^= 1 << entropy.below(8);
                rows.insert(key, row);
            }
            _ => {
                let row = rows.get_mut(one).unwrap();
                let at = entropy.below(row.len() as u64) as usize;
                row[at] = row[at].wrapping_add(1 + entropy.below(255) as u8);
            }
        }
        let (engine, merged) = original.merge(&rows);
        match merged {
            Err(MergeError::Rejected(_)) => {
                assert_eq!(values(&engine), values(&*original.volume.engine));
                rejected += 1;
            }
            Err(error) => panic!("{error}"),
            Ok(_) => {
                original.assert_permitted(&engine, "a mutant");
                accepted += 1;
            }
        }
    });
    assert!(rejected > accepted && accepted > 0, "{rejected} rejected, {accepted} accepted");
}
