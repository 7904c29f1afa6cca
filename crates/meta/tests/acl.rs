//! Access control lists and their relation to modes.

use crate::fixture::{Fixture, name};
use meta::acl::{ACCESS, Acl, DEFAULT};
use meta::{AttrChanges, FsError, Ino, Inode, Kind, Op, XattrHow};

const ROOT: Ino = Ino::ROOT;

/// Encodes an ACL with entries for owner, user 1000, owning group, mask and others.
fn extended(owner: u8, user: u8, group: u8, mask: u8, others: u8) -> Vec<u8> {
    let entry = |tag: u8, permissions: u8, id: u32| {
        [vec![tag, 0, permissions, 0], id.to_le_bytes().to_vec()].concat()
    };
    let entries = [
        entry(1, owner, u32::MAX),
        entry(2, user, 1000),
        entry(4, group, u32::MAX),
        entry(16, mask, u32::MAX),
        entry(32, others, u32::MAX),
    ];
    [vec![2, 0, 0, 0], entries.concat()].concat()
}

fn minimal(owner: u8, group: u8, others: u8) -> Vec<u8> {
    let all = extended(owner, 0, group, 0, others);
    [&all[..12], &all[20..28], &all[36..]].concat()
}

impl Fixture {
    fn set_acl(&self, ino: Ino, name: &[u8], value: Vec<u8>) -> Result<Inode, FsError> {
        let op = Op::SetXattr { ino, name: name.into(), value: value.into(), how: XattrHow::Set };
        self.apply(op).map(|applied| applied.inode.unwrap())
    }

    fn acl(&self, ino: Ino, name: &[u8]) -> Option<Vec<u8>> {
        self.namespace.xattr(ino, name).ok().map(|value| value.to_vec())
    }

    fn chmod(&self, ino: Ino, mode: u16) {
        let changes = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
        self.apply(Op::SetAttr { ino, changes }).unwrap();
    }

    fn make_under(&self, parent: Ino, text: &str, kind: Kind, mode: u16, umask: u16) -> Inode {
        let ino = self.namespace.allocate(parent, 1)[0];
        let (uid, gid, rdev, target) = (1000, 100, 0, (kind == Kind::Symlink).then(|| "there".into()));
        let op = Op::Create { parent, name: name(text), ino, kind, mode, umask, uid, gid, rdev, target };
        self.apply(op).unwrap().inode.unwrap()
    }
}

#[test]
fn mode_and_acl_agree() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    fs.chmod(file, 0o4644);
    assert_eq!(fs.set_acl(file, ACCESS, extended(6, 7, 4, 7, 0)).unwrap().mode, 0o4670);
    fs.chmod(file, 0o751);
    assert_eq!(fs.acl(file, ACCESS), Some(extended(7, 7, 4, 5, 1)));
    assert_eq!(fs.set_acl(file, ACCESS, minimal(6, 4, 4)).unwrap().mode, 0o644);
    assert_eq!(fs.acl(file, ACCESS), None, "the ACL is equivalent to the mode");
    assert_eq!(fs.namespace.xattrs(file).unwrap().len(), 0);
    let wrong = fs.set_acl(file, ACCESS, b"not an ACL".to_vec());
    assert!(matches!(wrong, Err(FsError::Invalid(_))));
    let wrong = fs.set_acl(file, DEFAULT, minimal(7, 5, 5));
    assert!(matches!(wrong, Err(FsError::Invalid(_))), "a file cannot have a default ACL");
}

#[test]
fn a_default_acl_replaces_the_umask() {
    let fs = Fixture::new();
    assert_eq!(fs.make_under(ROOT, "plain", Kind::File, 0o666, 0o22).mode, 0o644);
    assert_eq!(fs.make_under(ROOT, "link", Kind::Symlink, 0o777, 0o77).mode, 0o777);
    let dir = fs.dir(ROOT, "d");
    fs.set_acl(dir, DEFAULT, extended(7, 7, 5, 7, 0)).unwrap();
    assert_eq!(
        fs.namespace.inode(dir).unwrap().mode,
        0o755,
        "a default ACL does not change the directory's mode"
    );
    let file = fs.make_under(dir, "f", Kind::File, 0o666, 0o77);
    assert_eq!((file.mode, fs.acl(file.ino, ACCESS)), (0o660, Some(extended(6, 7, 5, 6, 0))));
    let below = fs.make_under(dir, "d", Kind::Directory, 0o777, 0o77);
    assert_eq!(below.mode, 0o770);
    assert_eq!(fs.acl(below.ino, DEFAULT), fs.acl(dir, DEFAULT));
    assert_eq!(fs.make_under(dir, "l", Kind::Symlink, 0o777, 0o77).mode, 0o777);
    fs.set_acl(dir, DEFAULT, minimal(7, 0, 0)).unwrap();
    let private = fs.make_under(dir, "p", Kind::Fifo, 0o666, 0);
    assert_eq!((private.mode, fs.acl(private.ino, ACCESS)), (0o600, None));
}

#[test]
fn acls_are_removed_with_their_inode() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    fs.set_acl(file, ACCESS, extended(6, 6, 6, 6, 6)).unwrap();
    fs.apply(Op::RemoveXattr { ino: file, name: ACCESS.into() }).unwrap();
    assert_eq!((fs.acl(file, ACCESS), fs.namespace.inode(file).unwrap().mode), (None, 0o666));
    let list = Acl::parse(&extended(6, 6, 6, 6, 6)).unwrap();
    assert!(!list.is_minimal());
}
