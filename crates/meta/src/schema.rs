//! The key schema: which record has which key.
//!
//! A key is a tag byte and big-endian fields, so byte order is field order and every family is one range:
//!
//! | key | record | exists |
//! |---|---|---|
//! | `D` dir:8 name | dentry: inode number, kind | per name; a directory's entries are one range, in name order |
//! | `E` ino:8 offset:8 | extent | for an inode with more than four extents; up to four are in the inode |
//! | `H` ino:8 dir:8 name | empty | per further name of an inode with several: every name but its home |
//! | `I` ino:8 | inode | per inode |
//! | `N` | the first inode number that nobody has reserved | once |
//! | `O` ino:8 | empty | per orphan: an inode without names that somebody has open |
//! | `Q` | how many quotas are set | while any is |
//! | `Q` ino:8 | limits and usage | per directory with a quota; the root's is the volume's |
//! | `R` ino:8 key | how many extents of the inode are in the object of this key | per object of an inode whose extents have rows |
//! | `S` ino:8 | group | per set-group-id directory: what is created there depends on this and not on the inode |
//! | `T` ino:8 | the directory whose quota counts this one's entries | per directory in such a tree, itself included |
//! | `W` ino:8 | how often it was changed since it was exported last | per inode whose object's headers are older than its attributes |
//! | `X` ino:8 name | value of an extended attribute | per attribute |
//!
//! A persistent engine keeps its own records in the same table. Readers do not see them and commits cannot touch them:
//!
//! | key | record | exists |
//! |---|---|---|
//! | `A` | format version, newest commit, where the log begins | once |
//! | `C` consumer | how far a consumer of the log is | per consumer |
//! | `L` seqno:8 nr:4 | an op | per op of the log |
//!
//! `K` is reserved for bindings of keys to inodes where a key does not follow the path. Inode numbers are handed out in ranges per
//! directory ([`allocate`](crate::Namespace::allocate)), so the `I` records of one directory lie together and a
//! listing with attributes is two nearly sequential scans. Why it is so, and what it costs beside attributes
//! embedded in dentries, is in `docs/decisions/0012-inode-placement.md`.

use crate::codec::DecodeError;
use crate::{Ino, KeyRange, Name, Seqno};
use store::ObjectKey;

const CONSUMER: u8 = b'C';
const DENTRY: u8 = b'D';
const EXTENT: u8 = b'E';
const HARD_LINK: u8 = b'H';
const HEAD: u8 = b'A';
const INODE: u8 = b'I';
const LOG: u8 = b'L';
const NEXT_INO: u8 = b'N';
const ORPHAN: u8 = b'O';
const QUOTA: u8 = b'Q';
const OBJECT_USES: u8 = b'R';
const SET_GROUP: u8 = b'S';
const TREE: u8 = b'T';
const WAITING_EXPORT: u8 = b'W';
const XATTR: u8 = b'X';

/// The key of an inode.
pub fn inode(ino: Ino) -> Vec<u8> {
    of_ino(INODE, ino, &[])
}

/// The keys of all inodes.
pub fn inodes() -> KeyRange {
    family(INODE)
}

/// The key of a dentry.
pub fn dentry(dir: Ino, name: &Name) -> Vec<u8> {
    of_ino(DENTRY, dir, name.as_bytes())
}

/// The keys of a directory's dentries.
pub fn dentries(dir: Ino) -> KeyRange {
    all_of_ino(DENTRY, dir)
}

/// The keys of all dentries.
pub fn all_dentries() -> KeyRange {
    family(DENTRY)
}

/// The key of an extent.
pub fn extent(ino: Ino, offset: u64) -> Vec<u8> {
    of_ino(EXTENT, ino, &offset.to_be_bytes())
}

/// The keys of an inode's extents.
pub fn extents(ino: Ino) -> KeyRange {
    all_of_ino(EXTENT, ino)
}

/// The keys of all extents.
pub fn all_extents() -> KeyRange {
    family(EXTENT)
}

/// The key of the number of an inode's extents that are in an object.
pub fn object_uses(ino: Ino, object: &ObjectKey) -> Vec<u8> {
    of_ino(OBJECT_USES, ino, object.as_bytes())
}

/// The keys of the uses of objects by an inode.
pub fn objects_used(ino: Ino) -> KeyRange {
    all_of_ino(OBJECT_USES, ino)
}

/// The keys of all uses of objects.
pub fn all_objects_used() -> KeyRange {
    family(OBJECT_USES)
}

/// The key of a further name of an inode.
pub fn hard_link(ino: Ino, dir: Ino, name: &Name) -> Vec<u8> {
    let mut key = of_ino(HARD_LINK, ino, &dir.0.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// The keys of an inode's further names.
pub fn hard_links(ino: Ino) -> KeyRange {
    all_of_ino(HARD_LINK, ino)
}

/// The keys of all further names.
pub fn all_hard_links() -> KeyRange {
    family(HARD_LINK)
}

/// The key of the inode number counter.
pub fn next_ino() -> Vec<u8> {
    vec![NEXT_INO]
}

/// The key of an orphan.
pub fn orphan(ino: Ino) -> Vec<u8> {
    of_ino(ORPHAN, ino, &[])
}

/// The keys of all orphans.
pub fn orphans() -> KeyRange {
    family(ORPHAN)
}

/// The key of the number of quotas, which exists while any is set.
pub fn quotas_set() -> Vec<u8> {
    vec![QUOTA]
}

/// The key of a directory's quota; the root's is the volume's.
pub fn quota(dir: Ino) -> Vec<u8> {
    of_ino(QUOTA, dir, &[])
}

/// The keys of all quotas.
pub fn quotas() -> KeyRange {
    KeyRange { from: quota(Ino(0)), to: vec![QUOTA + 1] }
}

/// The key of the tree that a directory's entries are counted in.
pub fn tree(dir: Ino) -> Vec<u8> {
    of_ino(TREE, dir, &[])
}

/// The keys of all directories in trees with a quota.
pub fn trees() -> KeyRange {
    family(TREE)
}

/// The key of a set-group-id directory's group.
pub fn set_group(dir: Ino) -> Vec<u8> {
    of_ino(SET_GROUP, dir, &[])
}

/// The keys of all set-group-id directories.
pub fn set_groups() -> KeyRange {
    family(SET_GROUP)
}

/// The key of an inode's waiting export.
pub fn waiting_export(ino: Ino) -> Vec<u8> {
    of_ino(WAITING_EXPORT, ino, &[])
}

/// The keys of all waiting exports.
pub fn waiting_exports() -> KeyRange {
    family(WAITING_EXPORT)
}

/// The key of an extended attribute.
pub fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    of_ino(XATTR, ino, name)
}

/// The keys of an inode's extended attributes.
pub fn xattrs(ino: Ino) -> KeyRange {
    all_of_ino(XATTR, ino)
}

/// The keys of all extended attributes.
pub fn all_xattrs() -> KeyRange {
    family(XATTR)
}

/// The key of a persistent engine's head.
pub fn head() -> Vec<u8> {
    vec![HEAD]
}

/// The key of the number of the newest journal record that a persistent engine has applied.
pub fn journal() -> Vec<u8> {
    vec![HEAD, b'j']
}

/// The key of a log consumer's cursor.
pub fn consumer(name: &str) -> Vec<u8> {
    [&[CONSUMER], name.as_bytes()].concat()
}

/// The keys of all log consumers.
pub fn consumers() -> KeyRange {
    family(CONSUMER)
}

/// The key of an op in the log: the `nr`th of its commit.
pub fn log_record(seqno: Seqno, nr: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.push(LOG);
    key.extend_from_slice(&seqno.0.to_be_bytes());
    key.extend_from_slice(&nr.to_be_bytes());
    key
}

/// The keys of the ops that were committed after one commit and not after another.
pub fn log_records(after: Seqno, to: Seqno) -> KeyRange {
    let end = |seqno: Seqno| match seqno.0.checked_add(1) {
        Some(next) => log_record(Seqno(next), 0),
        None => vec![LOG + 1],
    };
    KeyRange { from: end(after), to: end(to) }
}

/// The families that a persistent engine keeps to itself, ascending.
pub fn kept_by_engines() -> [KeyRange; 3] {
    [family(HEAD), family(CONSUMER), family(LOG)]
}

/// Whether a key is of a family that a persistent engine keeps to itself.
pub fn is_kept_by_engines(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(HEAD | CONSUMER | LOG)))
}

/// The commit in the key of an op in the log.
pub fn seqno_of(key: &[u8]) -> Result<Seqno, DecodeError> {
    Ok(Seqno(number_at(key, 1)?))
}

/// The consumer in the key of a cursor.
pub fn consumer_of(key: &[u8]) -> Result<&str, DecodeError> {
    let name = key.get(1..).ok_or(DecodeError::Truncated)?;
    str::from_utf8(name).map_err(|_| DecodeError::Field("a consumer's name that is no text"))
}

/// The inode number in a key of any family that has one.
pub fn ino_of(key: &[u8]) -> Result<Ino, DecodeError> {
    Ok(Ino(number_at(key, 1)?))
}

/// The name in a dentry's key.
pub fn name_of(key: &[u8]) -> Result<Name, DecodeError> {
    name_at(key, 9)
}

/// The offset in an extent's key, in bytes.
pub fn offset_of(key: &[u8]) -> Result<u64, DecodeError> {
    number_at(key, 9)
}

/// The object in the key of its uses.
pub fn object_of(key: &[u8]) -> Result<ObjectKey, DecodeError> {
    let bytes = key.get(9..).ok_or(DecodeError::Truncated)?;
    ObjectKey::try_from(bytes).map_err(|_| DecodeError::Field("bytes that cannot be a key"))
}

/// Directory and name in the key of a further name.
pub fn link_of(key: &[u8]) -> Result<(Ino, Name), DecodeError> {
    Ok((Ino(number_at(key, 9)?), name_at(key, 17)?))
}

/// The attribute's name in the key of an extended attribute.
pub fn xattr_of(key: &[u8]) -> Result<&[u8], DecodeError> {
    key.get(9..).ok_or(DecodeError::Truncated)
}

fn of_ino(tag: u8, ino: Ino, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + rest.len());
    key.push(tag);
    key.extend_from_slice(&ino.0.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

fn all_of_ino(tag: u8, ino: Ino) -> KeyRange {
    let to = match ino.0.checked_add(1) {
        Some(next) => of_ino(tag, Ino(next), &[]),
        None => vec![tag + 1],
    };
    KeyRange { from: of_ino(tag, ino, &[]), to }
}

fn family(tag: u8) -> KeyRange {
    KeyRange { from: vec![tag], to: vec![tag + 1] }
}

fn number_at(key: &[u8], at: usize) -> Result<u64, DecodeError> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).ok_or(DecodeError::Truncated)?;
    Ok(u64::from_be_bytes(bytes))
}

fn name_at(key: &[u8], at: usize) -> Result<Name, DecodeError> {
    let bytes = key.get(at..).ok_or(DecodeError::Truncated)?;
    Name::new(bytes).map_err(|_| DecodeError::Field("a name that no directory can hold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_range_in_name_order() {
        let range = dentries(Ino(7));
        let a = dentry(Ino(7), &Name::new(b"a").unwrap());
        let high = dentry(Ino(7), &Name::new(&[0xff; 255]).unwrap());
        assert!(a < high && range.contains(&a) && range.contains(&high));
        assert!(!range.contains(&dentry(Ino(8), &Name::new(&[1]).unwrap())));
        assert!(dentries(Ino(u64::MAX)).contains(&dentry(Ino(u64::MAX), &Name::new(&[0xff]).unwrap())));
    }

    #[test]
    fn a_commit_is_one_range_of_the_log() {
        let range = log_records(Seqno(6), Seqno(7));
        assert!(range.contains(&log_record(Seqno(7), 0)) && range.contains(&log_record(Seqno(7), u32::MAX)));
        assert!(
            !range.contains(&log_record(Seqno(6), u32::MAX)) && !range.contains(&log_record(Seqno(8), 0))
        );
        assert!(log_records(Seqno(0), Seqno(u64::MAX)).contains(&log_record(Seqno(u64::MAX), 0)));
    }

    #[test]
    fn an_engine_keeps_its_own_families_to_itself() {
        assert!(
            [head(), journal(), consumer("c"), log_record(Seqno(1), 0)]
                .iter()
                .all(|key| is_kept_by_engines(key))
        );
        assert!(![next_ino(), inode(Ino(1)), Vec::new()].iter().any(|key| is_kept_by_engines(key)));
    }

    #[test]
    fn keys_say_what_they_are_of() {
        let name = Name::new(b"x y").unwrap();
        assert_eq!(name_of(&dentry(Ino(7), &name)).unwrap(), name);
        assert_eq!(ino_of(&dentry(Ino(7), &name)).unwrap(), Ino(7));
        assert_eq!(offset_of(&extent(Ino(7), 99)).unwrap(), 99);
        assert_eq!(link_of(&hard_link(Ino(7), Ino(3), &name)).unwrap(), (Ino(3), name));
        assert_eq!(xattr_of(&xattr(Ino(7), b"user.a")).unwrap(), b"user.a");
        assert_eq!(consumer_of(&consumer("events")).unwrap(), "events");
        assert_eq!(seqno_of(&log_record(Seqno(9), 2)).unwrap(), Seqno(9));
        assert!(ino_of(b"I123").is_err() && name_of(b"D").is_err());
    }
}
