//! Verdicts on single ops. `crates/cli/tests` compares random ops with the kernel's verdicts.

use super::*;
use crate::{AttrChanges, LogCap, MemoryEngine, Moment, Namespace, OpContext, Origin, RenameHow, XattrHow};
use std::sync::Arc;

const NOW: Timestamp = Timestamp(7);
const OWNER: u32 = 1000;
const GROUP: u32 = 100;

fn caller(uid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid: uid, groups: groups.into() }
}

/// A namespace to which the superuser adds inodes.
struct World(Namespace);

impl World {
    fn new() -> Self {
        let engine = Arc::new(MemoryEngine::new(LogCap::default()));
        Self(Namespace::new(engine, &context()).unwrap())
    }

    fn create(&self, parent: Ino, name: &str, kind: Kind, mode: u16, uid: u32, gid: u32) -> Ino {
        let ino = self.0.allocate(parent, 1)[0];
        let (name, target, umask, rdev) = (self::name(name), None, 0, 0);
        self.0
            .commit(&context(), &Op::Create { parent, name, ino, kind, mode, umask, uid, gid, rdev, target })
            .unwrap();
        ino
    }

    fn authorize(&self, caller: &Caller, op: &Op) -> Result<Op> {
        authorize(&**self.0.engine(), caller, NOW, op)
    }
}

fn context() -> OpContext {
    OpContext { now: NOW, at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn unlink(parent: Ino) -> Op {
    Op::Unlink { parent, name: name("f"), keep: false }
}

fn chmod(ino: Ino, mode: u16) -> Op {
    Op::SetAttr { ino, changes: AttrChanges { mode: Some(mode), ..AttrChanges::default() } }
}

#[test]
fn only_writers_of_a_directory_remove_its_entries_and_a_sticky_directory_protects_them() {
    let world = World::new();
    let dir = world.create(Ino::ROOT, "d", Kind::Directory, 0o1777, OWNER, GROUP);
    world.create(dir, "f", Kind::File, 0o666, 2000, 2000);
    assert!(world.authorize(&caller(OWNER, &[]), &unlink(dir)).is_ok());
    assert!(world.authorize(&caller(2000, &[]), &unlink(dir)).is_ok());
    assert_eq!(world.authorize(&caller(3000, &[2000]), &unlink(dir)), Err(AccessError::NotPermitted));
    world.0.commit(&context(), &chmod(dir, 0o755)).unwrap();
    assert_eq!(world.authorize(&caller(2000, &[]), &unlink(dir)), Err(AccessError::Denied));
    assert!(world.authorize(&caller(0, &[]), &unlink(dir)).is_ok());
}

#[test]
fn every_directory_above_must_be_searchable() {
    let world = World::new();
    let closed = world.create(Ino::ROOT, "closed", Kind::Directory, 0o700, OWNER, GROUP);
    let open = world.create(closed, "open", Kind::Directory, 0o777, OWNER, GROUP);
    let file = world.create(open, "f", Kind::File, 0o666, 2000, 2000);
    assert_eq!(world.authorize(&caller(2000, &[]), &chmod(file, 0o600)), Err(AccessError::Denied));
    world.0.commit(&context(), &Op::Link { ino: file, parent: Ino::ROOT, name: name("second") }).unwrap();
    assert!(world.authorize(&caller(2000, &[]), &chmod(file, 0o600)).is_ok(), "its second name is reachable");
}

#[test]
fn set_group_id_needs_membership() {
    let world = World::new();
    let file = world.create(Ino::ROOT, "f", Kind::File, 0o644, OWNER, GROUP);
    let granted = world.authorize(&caller(OWNER, &[GROUP]), &chmod(file, 0o2755)).unwrap();
    assert_eq!(granted, chmod(file, 0o2755));
    let stripped = world.authorize(&caller(OWNER, &[]), &chmod(file, 0o2755)).unwrap();
    assert_eq!(stripped, chmod(file, 0o755));
}

#[test]
fn nobody_creates_files_of_others() {
    let world = World::new();
    world.0.commit(&context(), &chmod(Ino::ROOT, 0o777)).unwrap();
    let create =
        |uid, gid| Op::CreateOrphan { parent: Ino::ROOT, ino: Ino(99), mode: 0o644, umask: 0, uid, gid };
    assert!(world.authorize(&caller(OWNER, &[GROUP]), &create(OWNER, GROUP)).is_ok());
    assert_eq!(world.authorize(&caller(OWNER, &[]), &create(OWNER, GROUP)), Err(AccessError::NotPermitted));
    assert_eq!(world.authorize(&caller(OWNER, &[]), &create(0, OWNER)), Err(AccessError::NotPermitted));
}

#[test]
fn an_acl_names_users_and_groups_within_its_mask() {
    let world = World::new();
    let file = world.create(Ino::ROOT, "f", Kind::File, 0o640, OWNER, GROUP);
    // u::rw-, u:2000:rw-, g::r--, g:300:-w-, m::rw-, o::---
    let entries = [
        (1, 6, u32::MAX),
        (2, 6, 2000),
        (4, 4, u32::MAX),
        (8, 2, 300),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(permissions));
        value.extend(u32::to_le_bytes(id));
    }
    let set = Op::SetXattr { ino: file, name: acl::ACCESS.into(), value: value.into(), how: XattrHow::Set };
    assert_eq!(world.authorize(&caller(2000, &[]), &set), Err(AccessError::NotPermitted));
    world.0.commit(&context(), &set).unwrap();
    let write = Op::Splice { ino: file, ranges: Vec::new(), content: Vec::new(), size_bytes: 0, mtime: None };
    for (caller, may_write) in [
        (caller(2000, &[]), true),
        (caller(3000, &[GROUP]), false),
        (caller(3000, &[GROUP, 300]), true),
        (caller(3000, &[]), false),
    ] {
        assert_eq!(world.authorize(&caller, &write).is_ok(), may_write, "{caller:?}");
    }
}

#[test]
fn a_directory_moves_to_another_parent_only_for_those_who_may_write_to_it() {
    let world = World::new();
    world.0.commit(&context(), &chmod(Ino::ROOT, 0o777)).unwrap();
    let target = world.create(Ino::ROOT, "t", Kind::Directory, 0o777, OWNER, GROUP);
    world.create(Ino::ROOT, "d", Kind::Directory, 0o755, OWNER, GROUP);
    let rename = |to| Op::Rename {
        from: (Ino::ROOT, name("d")),
        to: (to, name("e")),
        how: RenameHow::Replace,
        keep: false,
    };
    assert!(world.authorize(&caller(2000, &[]), &rename(Ino::ROOT)).is_ok());
    assert_eq!(world.authorize(&caller(2000, &[]), &rename(target)), Err(AccessError::Denied));
    assert!(world.authorize(&caller(OWNER, &[]), &rename(target)).is_ok());
}

/// The checks took directories of more than 4096 levels, which a namespace can have, for a cycle.
#[test]
fn deep_directories_are_no_cycle() {
    let world = World::new();
    world.0.commit(&context(), &chmod(Ino::ROOT, 0o777)).unwrap();
    let deepest =
        (0..5000).fold(Ino::ROOT, |dir, _| world.create(dir, "d", Kind::Directory, 0o777, OWNER, GROUP));
    assert!(
        world
            .authorize(&caller(2000, &[]), &chmod(deepest, 0o700))
            .is_err_and(|error| error == AccessError::NotPermitted)
    );
    assert!(world.authorize(&caller(OWNER, &[]), &chmod(deepest, 0o700)).is_ok());
}
