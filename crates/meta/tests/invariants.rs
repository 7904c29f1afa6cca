//! The check of the invariants: each one is broken, and found.

use crate::fixture::{Fixture, name};
use meta::codec::{decode_inode, encode_dentry, encode_inode, encode_number};
use meta::{Commit, Dentry, Engine, Extent, Ino, Inode, Kind, Op, Reader, Stored, invariants, schema};
use std::collections::BTreeSet;
use store::{ETag, ObjectKey};

/// A namespace with records of most families.
struct Volume {
    fixture: Fixture,
    dir: Ino,
    file: Ino,
    linked: Ino,
    orphan: Ino,
}

impl Volume {
    fn new() -> Self {
        let fixture = Fixture::new();
        let dir = fixture.dir(Ino::ROOT, "dir");
        let file = fixture.file(dir, "file");
        let linked = fixture.file(dir, "linked");
        fixture.apply(Op::Link { ino: linked, parent: Ino::ROOT, name: name("other") }).unwrap();
        let orphan = fixture.file(dir, "removed");
        fixture.unlink(dir, "removed", true).unwrap();
        Self { fixture, dir, file, linked, orphan }
    }

    /// Changes records without regard to the invariants.
    fn change(&self, puts: Vec<(Vec<u8>, Vec<u8>)>, deletes: Vec<Vec<u8>>) {
        let puts = puts.into_iter().map(|(key, value)| (key, value.into())).collect();
        self.fixture.engine.commit(Commit { puts, deletes, ..Commit::default() }).unwrap();
    }

    fn inode(&self, ino: Ino) -> Inode {
        let found = self.fixture.engine.get(&schema::inode(ino)).unwrap().unwrap();
        decode_inode(ino, &found.value).unwrap().inode
    }

    fn change_inode(&self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        let mut inode = self.inode(ino);
        change(&mut inode);
        self.change(vec![(schema::inode(ino), encode_inode(&inode))], vec![]);
    }

    /// Returns the numbers of the broken invariants.
    fn broken(&self) -> BTreeSet<u32> {
        let found = invariants::fsck(&*self.fixture.engine).unwrap();
        assert!(found.is_sorted_by_key(|violation| violation.number), "{found:?}");
        found.into_iter().map(|violation| violation.number).collect()
    }
}

fn file_dentry(ino: Ino) -> Vec<u8> {
    encode_dentry(Dentry { ino, kind: Kind::File })
}

/// Breaks a volume, and expects these invariants to be broken.
fn assert_broken(expected: &[u32], change: impl FnOnce(&Volume)) {
    let volume = Volume::new();
    assert_eq!(volume.broken(), BTreeSet::new());
    change(&volume);
    assert_eq!(volume.broken(), expected.iter().copied().collect(), "{expected:?}");
}

#[test]
fn each_violation_is_found() {
    let stray = Ino(77);
    assert_broken(&[1, 3, 10], |volume| volume.change(vec![], vec![schema::inode(Ino::ROOT)]));
    assert_broken(&[2, 6], |volume| volume.change(vec![], vec![schema::inode(volume.file)]));
    assert_broken(&[2, 4], |volume| volume.change_inode(volume.file, |file| file.kind = Kind::Directory));
    assert_broken(&[2, 6], |volume| {
        volume.change(vec![(schema::dentry(volume.dir, &name("more")), file_dentry(stray))], vec![]);
    });
    assert_broken(&[3, 4, 6], |volume| {
        volume.change(
            vec![(schema::dentry(volume.file, &name("in a file")), file_dentry(volume.file))],
            vec![],
        );
    });
    assert_broken(&[4], |volume| volume.change_inode(volume.file, |file| file.nlink = 7));
    assert_broken(&[4], |volume| volume.change_inode(volume.dir, |dir| dir.nlink = 3));
    assert_broken(&[5, 6], |volume| {
        volume.change_inode(volume.file, |file| file.home = Some((volume.dir, name("elsewhere"))));
    });
    assert_broken(&[4, 5], |volume| {
        volume.change(vec![], vec![schema::dentry(volume.dir, &name("file"))]);
    });
    assert_broken(&[6], |volume| {
        volume.change(vec![], vec![schema::hard_link(volume.linked, Ino::ROOT, &name("other"))]);
    });
    assert_broken(&[6], |volume| {
        volume.change(vec![(schema::hard_link(volume.linked, volume.dir, &name("none")), vec![])], vec![]);
    });
    assert_broken(&[7], |volume| volume.change(vec![], vec![schema::orphan(volume.orphan)]));
    assert_broken(&[7], |volume| volume.change(vec![(schema::orphan(stray), vec![])], vec![]));
    assert_broken(&[8], |volume| volume.change_inode(volume.dir, |dir| dir.size_bytes = 5));
    assert_broken(&[9], |volume| {
        let object = Stored {
            key: Some(ObjectKey::try_from("k").unwrap()),
            etag: ETag::new("e"),
            version: None,
            last_modified: None,
        };
        let row = meta::codec::encode_extent(&Extent { offset: 0, len: 5, object, object_offset: 0 });
        volume.change(vec![(schema::extent(volume.file, 0), row)], vec![]);
    });
    assert_broken(&[11], |volume| {
        volume.change(vec![(schema::set_group(volume.dir), encode_number(5))], vec![]);
    });
    assert_broken(&[12], |volume| volume.change(vec![(schema::xattr(stray, b"user.a"), vec![])], vec![]));
    assert_broken(&[13], |volume| {
        volume.change(vec![(schema::next_ino(), encode_number(volume.orphan.0))], vec![]);
    });
    assert_broken(&[14], |volume| volume.change(vec![(b"W\0".to_vec(), vec![])], vec![]));
    assert_broken(&[14, 15], |volume| {
        let access = schema::xattr(volume.file, meta::acl::ACCESS);
        volume.change(vec![(access, b"no list".to_vec())], vec![]);
        let minimal = [&2u32.to_le_bytes()[..], &entry(1, 6), &entry(4, 4), &entry(0x20, 4)].concat();
        volume.change(vec![(schema::xattr(volume.linked, meta::acl::ACCESS), minimal)], vec![]);
    });
    assert_broken(&[16], |volume| {
        volume.change(vec![(schema::tree(volume.dir), encode_number(volume.dir.0))], vec![]);
    });
    assert_broken(&[17], |volume| {
        volume.change(vec![(schema::waiting_export(stray), encode_number(1))], vec![]);
    });
    assert_broken(&[18], |volume| {
        let uses = schema::object_uses(volume.file, &ObjectKey::try_from("k").unwrap());
        volume.change(vec![(uses, encode_number(1))], vec![]);
    });
}

/// An entry of an access list: a tag, permissions, and no id.
fn entry(tag: u16, permissions: u16) -> [u8; 8] {
    let ([t, u], [p, q]) = (tag.to_le_bytes(), permissions.to_le_bytes());
    [t, u, p, q, 0xff, 0xff, 0xff, 0xff]
}

/// Each of two directories is in the other one. Only the way to the root is wrong.
#[test]
fn a_cycle_of_directories_is_found() {
    let volume = Volume::new();
    let (a, b) = (volume.fixture.dir(volume.dir, "a"), volume.fixture.dir(volume.dir, "b"));
    let dentry = |ino| encode_dentry(Dentry { ino, kind: Kind::Directory });
    let deletes = ["a", "b"].map(|text| schema::dentry(volume.dir, &name(text)));
    let puts = vec![(schema::dentry(b, &name("a")), dentry(a)), (schema::dentry(a, &name("b")), dentry(b))];
    volume.change(puts, deletes.to_vec());
    volume.change_inode(volume.dir, |dir| dir.nlink -= 2);
    for (ino, parent, text) in [(a, b, "a"), (b, a, "b")] {
        volume.change_inode(ino, |inode| {
            inode.nlink += 1;
            inode.home = Some((parent, name(text)));
        });
    }
    let found = invariants::fsck(&*volume.fixture.engine).unwrap();
    let numbers: Vec<u32> = found.iter().map(|violation| violation.number).collect();
    assert_eq!(numbers, [10, 10], "{found:?}");
}

/// Some of very many wrong names are compared one by one, and the others are reported together.
#[test]
fn very_many_violations_are_not_all_described() {
    let volume = Volume::new();
    let texts: Vec<String> = (0..1500).map(|number| format!("file {number}")).collect();
    let inodes: Vec<Ino> = texts
        .iter()
        .map(|text| {
            let ino = volume.fixture.namespace.allocate(volume.dir, 1)[0];
            let home = Some((volume.dir, name(text)));
            let inode = Inode { ino, home, ..volume.inode(volume.file) };
            volume.change(vec![(schema::inode(ino), encode_inode(&inode))], vec![]);
            ino
        })
        .collect();
    let found = invariants::fsck(&*volume.fixture.engine).unwrap();
    let of = |number| found.iter().filter(|violation| violation.number == number).count();
    assert!((64..1500).contains(&of(5)), "{}", of(5));
    assert!(found.iter().any(|violation| violation.what.contains("further groups")), "{found:?}");
    let puts = inodes.iter().zip(&texts);
    let puts = puts.map(|(ino, text)| (schema::dentry(volume.dir, &name(text)), file_dentry(*ino)));
    volume.change(puts.collect(), vec![]);
    assert_eq!(volume.broken(), BTreeSet::new());
}
