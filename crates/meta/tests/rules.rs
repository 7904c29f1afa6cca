//! The rules of each op, one by one.

use crate::fixture::{Fixture, name};
use meta::{FsError, Ino, Kind, Op, RenameHow};

const ROOT: Ino = Ino::ROOT;

#[test]
fn a_new_namespace_has_a_root() {
    let fs = Fixture::new();
    let root = fs.namespace.inode(ROOT).unwrap();
    assert_eq!((root.kind, root.mode, root.uid, root.nlink), (Kind::Directory, 0o755, 1000, 2));
    assert!(fs.namespace.path(ROOT).unwrap().is_empty());
    assert!(fs.names(ROOT).is_empty());
}

#[test]
fn create_makes_an_inode_and_touches_its_directory() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    assert_eq!(fs.namespace.inode(ROOT).unwrap().nlink, 3);
    let file = fs.file(dir, "f");
    assert_eq!(fs.namespace.inode(dir).unwrap().mtime, fs.now());
    assert_eq!(fs.namespace.path(file).unwrap(), [name("d"), name("f")]);
    assert_eq!(fs.make(dir, "f", Kind::File, 0).unwrap_err(), FsError::Exists);
    assert_eq!(fs.make(file, "x", Kind::File, 0).unwrap_err(), FsError::NotDirectory);
    assert_eq!(fs.make(Ino(999), "x", Kind::File, 0).unwrap_err(), FsError::NotFound);
    assert_eq!(fs.make(dir, "s", Kind::Symlink, 0o777).unwrap().size_bytes, 6);
}

#[test]
fn unlink_removes_or_orphans() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    let applied = fs.unlink(ROOT, "f", false).unwrap();
    assert_eq!(applied.removed.unwrap().ino, file);
    assert_eq!(fs.namespace.inode(file), Err(FsError::NotFound));

    let open = fs.file(ROOT, "g");
    let applied = fs.unlink(ROOT, "g", true).unwrap();
    assert!(applied.orphaned && applied.removed.unwrap().home.is_some());
    assert!(fs.namespace.inode(open).unwrap().is_orphan());
    assert_eq!(fs.namespace.orphans(None, 10).unwrap(), [open]);
    fs.apply(Op::Purge { ino: open }).unwrap();
    assert_eq!(fs.namespace.inode(open), Err(FsError::NotFound));
    assert_eq!(fs.apply(Op::Purge { ino: open }).unwrap_err(), FsError::NotFound);
}

#[test]
fn rename_replaces_and_moves_homes() {
    let fs = Fixture::new();
    let (a, b) = (fs.dir(ROOT, "a"), fs.dir(ROOT, "b"));
    let file = fs.file(a, "f");
    let old = fs.file(b, "g");
    let applied = fs.rename((a, "f"), (b, "g"), RenameHow::Replace).unwrap();
    assert_eq!(applied.removed.unwrap().ino, old);
    assert_eq!(fs.namespace.path(file).unwrap(), [name("b"), name("g")]);
    assert_eq!(fs.find(a, "f"), None);
    fs.rename((ROOT, "b"), (a, "b"), RenameHow::Replace).unwrap();
    assert_eq!(fs.namespace.path(file).unwrap(), [name("a"), name("b"), name("g")]);
    assert_eq!(fs.namespace.inode(ROOT).unwrap().nlink, 3);
}

#[test]
fn rename_refuses_what_posix_refuses() {
    let fs = Fixture::new();
    let (a, b) = (fs.dir(ROOT, "a"), fs.dir(ROOT, "b"));
    let below = fs.dir(a, "below");
    fs.file(b, "f");
    fs.file(ROOT, "g");
    let fails = |from, to, how| fs.rename(from, to, how).unwrap_err();
    assert_eq!(fails((ROOT, "a"), (below, "x"), RenameHow::Replace), FsError::CrossesItself);
    assert_eq!(fails((ROOT, "a"), (a, "x"), RenameHow::Replace), FsError::CrossesItself);
    assert_eq!(fails((ROOT, "a"), (ROOT, "b"), RenameHow::Replace), FsError::NotEmpty);
    assert_eq!(fails((a, "below"), (ROOT, "a"), RenameHow::Replace), FsError::NotEmpty);
    assert_eq!(fails((ROOT, "g"), (ROOT, "a"), RenameHow::Replace), FsError::IsDirectory);
    assert_eq!(fails((ROOT, "a"), (ROOT, "g"), RenameHow::Replace), FsError::NotDirectory);
    assert_eq!(fails((ROOT, "g"), (b, "f"), RenameHow::NoReplace), FsError::Exists);
    assert_eq!(fails((ROOT, "g"), (b, "x"), RenameHow::Exchange), FsError::NotFound);
    assert_eq!(fails((ROOT, "x"), (b, "x"), RenameHow::Replace), FsError::NotFound);
    assert_eq!(fails((ROOT, "a"), (below, "x"), RenameHow::Exchange), FsError::NotFound);
    assert_eq!(fails((ROOT, "a"), (a, "below"), RenameHow::Exchange), FsError::CrossesItself);
}
