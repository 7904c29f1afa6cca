//! The key schema: the keys of all records.
//!
//! A key is a tag byte and big-endian fields, so keys sort by their fields and every family of records is one range. An inode's
//! *home* is its primary name, the one from which path naming derives the object key.
//!
//! | key | record | exists |
//! |---|---|---|
//! | `D` dir:8 name | dentry: inode number, type | per name; a directory's entries are one range, ordered by name |
//! | `E` ino:8 offset:8 | extent | for an inode with more than four extents; up to four are in the inode |
//! | `H` ino:8 dir:8 name | empty | per additional name of an inode, that is every name except its home |
//! | `I` ino:8 | inode | per inode |
//! | `N` | the first inode number that has not been leased | once |
//! | `O` ino:8 | empty | per orphan: an inode without names that is still open |
//! | `Q` | number of quotas | while a quota is set |
//! | `Q` ino:8 | limits and usage | per directory with a quota; the root's is the volume's |
//! | `R` ino:8 key | number of the inode's extents in the object with this key | per object of an inode whose extents have rows |
//! | `S` ino:8 | group | per set-group-id directory; a create depends on this record instead of the inode |
//! | `T` ino:8 | the directory whose quota counts this directory's entries | per directory in the tree of a quota, its top included |
//! | `W` ino:8 | number of the last change of the attributes | per inode whose attributes are newer than its object's headers |
//! | `X` ino:8 name | value of an extended attribute | per attribute |
//! | `Z` batch:8 | batch | per batch that is open, or that was merged and not forgotten |
//! | `Z` batch:8 index:8 | refused op | per op that a merge has refused and that was not resolved |
//!
//! A persistent engine keeps records of its own in the same table. Readers do not see them and commits cannot change them:
//!
//! | key | record | exists |
//! |---|---|---|
//! | `A` | format version, newest commit, start of the log | once |
//! | `Aj` | number of the newest journal record that has been applied | once, in an engine with a journal |
//! | `B` version:8 page:4 | ops of a run | per page of a run in the log |
//! | `C` consumer | cursor of a log consumer | per consumer |
//! | `L` seqno:8 nr:4 | an op | per op in the log that is not in a run |
//! | `L` seqno:8 ff:4 | version of a run, number and size of its ops | per run in the log |
//!
//! `K` is reserved for mappings from object keys to inodes, for keys that do not follow the path. Inode numbers are allocated in
//! ranges per directory ([`allocate`](crate::Namespace::allocate)), so the `I` records of one directory are close together and a
//! listing with attributes is two nearly sequential scans. `docs/decisions/0012-inode-placement.md` has the reasons, and
//! compares the cost with attributes embedded in dentries.

use crate::codec::DecodeError;
use crate::{BatchId, EngineError, Ino, KeyRange, Name, Seqno};
use std::ops::Range;
use store::ObjectKey;

const CONSUMER: u8 = b'C';
/// The first byte of the keys of dentries.
pub const DENTRY: u8 = b'D';
const EXTENT: u8 = b'E';
const HARD_LINK: u8 = b'H';
const HEAD: u8 = b'A';
const INODE: u8 = b'I';
const LOG: u8 = b'L';
const NEXT_INO: u8 = b'N';
const ORPHAN: u8 = b'O';
const QUOTA: u8 = b'Q';
const RUN_LOG: u8 = b'B';
const OBJECT_USES: u8 = b'R';
const SET_GROUP: u8 = b'S';
const TREE: u8 = b'T';
const WAITING_EXPORT: u8 = b'W';
const XATTR: u8 = b'X';
/// Greater than the tags of all records that a batch changes, so that its own record is the last one of its run.
const BATCH: u8 = b'Z';

/// Returns the key of an inode.
pub fn inode(ino: Ino) -> Vec<u8> {
    key_of_ino(INODE, ino, &[])
}

/// Returns the keys of all inodes.
pub fn inodes() -> KeyRange {
    family(INODE)
}

/// Returns the key of a dentry.
pub fn dentry(dir: Ino, name: &Name) -> Vec<u8> {
    key_of_ino(DENTRY, dir, name.as_bytes())
}

/// Returns the keys of a directory's dentries.
pub fn dentries(dir: Ino) -> KeyRange {
    range_of_ino(DENTRY, dir)
}

/// Returns the keys of all dentries.
pub fn all_dentries() -> KeyRange {
    family(DENTRY)
}

/// Returns the key of an extent.
pub fn extent(ino: Ino, offset: u64) -> Vec<u8> {
    key_of_ino(EXTENT, ino, &offset.to_be_bytes())
}

/// Returns the keys of an inode's extents.
pub fn extents(ino: Ino) -> KeyRange {
    range_of_ino(EXTENT, ino)
}

/// Returns the keys of an inode's extents that begin before a range, and of those that begin within. Of the first only the last
/// extent can overlap the range.
pub(crate) fn extents_around(ino: Ino, range: &Range<u64>) -> (KeyRange, KeyRange) {
    let (first, end) = (extent(ino, range.start), extent(ino, range.end));
    let before = KeyRange { from: extents(ino).from, to: first.clone() };
    (before, KeyRange { from: first, to: end })
}

/// Returns the keys of all extents.
pub fn all_extents() -> KeyRange {
    family(EXTENT)
}

/// Returns the key of the use count of an object by an inode: how many of the inode's extents are in the object.
pub fn object_uses(ino: Ino, object: &ObjectKey) -> Vec<u8> {
    key_of_ino(OBJECT_USES, ino, object.as_bytes())
}

/// Returns the keys of an inode's use counts.
pub fn objects_used(ino: Ino) -> KeyRange {
    range_of_ino(OBJECT_USES, ino)
}

/// Returns the keys of all use counts.
pub fn all_objects_used() -> KeyRange {
    family(OBJECT_USES)
}

/// Returns the key of an additional name of an inode.
pub fn hard_link(ino: Ino, dir: Ino, name: &Name) -> Vec<u8> {
    let mut key = key_of_ino(HARD_LINK, ino, &dir.0.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// Returns the keys of an inode's additional names.
pub fn hard_links(ino: Ino) -> KeyRange {
    range_of_ino(HARD_LINK, ino)
}

/// Returns the keys of all additional names.
pub fn all_hard_links() -> KeyRange {
    family(HARD_LINK)
}

/// Returns the key of the inode number counter.
pub fn next_ino() -> Vec<u8> {
    vec![NEXT_INO]
}

/// Returns the key of an orphan.
pub fn orphan(ino: Ino) -> Vec<u8> {
    key_of_ino(ORPHAN, ino, &[])
}

/// Returns whether a key is that of an orphan.
pub fn is_orphan(key: &[u8]) -> bool {
    key.first() == Some(&ORPHAN)
}

/// Returns the keys of all orphans.
pub fn orphans() -> KeyRange {
    family(ORPHAN)
}

/// Returns the key of the number of quotas, which exists while a quota is set.
pub fn quotas_set() -> Vec<u8> {
    vec![QUOTA]
}

/// Returns the key of a directory's quota. The root's quota is that of the volume.
pub fn quota(dir: Ino) -> Vec<u8> {
    key_of_ino(QUOTA, dir, &[])
}

/// Returns the keys of all quotas.
pub fn quotas() -> KeyRange {
    KeyRange { from: quota(Ino(0)), to: vec![QUOTA + 1] }
}

/// Returns the key of the tree in which a directory's entries are counted.
pub fn tree(dir: Ino) -> Vec<u8> {
    key_of_ino(TREE, dir, &[])
}

/// Returns the keys of the tree records of all directories in trees with a quota.
pub fn trees() -> KeyRange {
    family(TREE)
}

/// Returns the key of a set-group-id directory's group.
pub fn set_group(dir: Ino) -> Vec<u8> {
    key_of_ino(SET_GROUP, dir, &[])
}

/// Returns the keys of the groups of all set-group-id directories.
pub fn set_groups() -> KeyRange {
    family(SET_GROUP)
}

/// Returns the key of an inode's waiting export.
pub fn waiting_export(ino: Ino) -> Vec<u8> {
    key_of_ino(WAITING_EXPORT, ino, &[])
}

/// Returns the keys of all waiting exports.
pub fn waiting_exports() -> KeyRange {
    family(WAITING_EXPORT)
}

/// Returns the key of an extended attribute.
pub fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    key_of_ino(XATTR, ino, name)
}

/// Returns the keys of an inode's extended attributes.
pub fn xattrs(ino: Ino) -> KeyRange {
    range_of_ino(XATTR, ino)
}

/// Returns the keys of all extended attributes.
pub fn all_xattrs() -> KeyRange {
    family(XATTR)
}

/// Returns the key of a batch.
pub fn batch(id: BatchId) -> Vec<u8> {
    key_of_ino(BATCH, Ino(id.0), &[])
}

/// Returns the keys of all batches and of their refused ops.
pub fn batches() -> KeyRange {
    family(BATCH)
}

/// Returns whether a key is that of a batch or of a refused op. The number in it is not that of an inode.
pub fn is_of_batch(key: &[u8]) -> bool {
    key.first() == Some(&BATCH)
}

/// Returns the key of a refused op of a batch.
pub fn refused_op(batch: BatchId, index: u64) -> Vec<u8> {
    key_of_ino(BATCH, Ino(batch.0), &index.to_be_bytes())
}

/// Returns the keys of the refused ops of a batch.
pub fn refused_ops(batch: BatchId) -> KeyRange {
    KeyRange { from: refused_op(batch, 0), to: range_of_ino(BATCH, Ino(batch.0)).to }
}

/// Returns the batch, and the index of the refused op, in a key of the family of batches.
pub fn batch_of(key: &[u8]) -> Result<(BatchId, Option<u64>), DecodeError> {
    let index = if key.len() > 9 { Some(number_at(key, 9)?) } else { None };
    Ok((BatchId(number_at(key, 1)?), index))
}

/// Returns the key of a persistent engine's head.
pub fn head() -> Vec<u8> {
    vec![HEAD]
}

/// Returns the key of the number of the newest journal record that a persistent engine has applied.
pub fn journal() -> Vec<u8> {
    vec![HEAD, b'j']
}

/// Returns the key of a log consumer's cursor.
pub fn consumer(name: &str) -> Vec<u8> {
    [&[CONSUMER], name.as_bytes()].concat()
}

/// Returns the keys of the cursors of all log consumers.
pub fn consumers() -> KeyRange {
    family(CONSUMER)
}

/// Returns the key of an op in the log; `nr` is the index of the op in its commit.
pub fn log_record(seqno: Seqno, nr: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(13);
    key.push(LOG);
    key.extend_from_slice(&seqno.0.to_be_bytes());
    key.extend_from_slice(&nr.to_be_bytes());
    key
}

/// Returns the key of a run in the log.
pub fn logged_run(seqno: Seqno) -> Vec<u8> {
    log_record(seqno, u32::MAX)
}

/// Returns whether the key of a log record is that of a run.
pub fn is_logged_run(key: &[u8]) -> bool {
    key.first() == Some(&LOG) && key.get(9..) == Some(&[0xff; 4])
}

/// Returns the key of a page of ops of the run whose records have this version.
pub fn run_log_page(version: Seqno, page: u32) -> Vec<u8> {
    key_of_ino(RUN_LOG, Ino(version.0), &page.to_be_bytes())
}

/// Returns the keys of the ops of the commits after `after`, up to and including `to`.
pub fn log_records(after: Seqno, to: Seqno) -> KeyRange {
    let end = |seqno: Seqno| match seqno.0.checked_add(1) {
        Some(next) => log_record(Seqno(next), 0),
        None => vec![LOG + 1],
    };
    KeyRange { from: end(after), to: end(to) }
}

/// Returns whether a key belongs to a persistent engine's own records.
pub fn is_kept_by_engines(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(HEAD | RUN_LOG | CONSUMER | LOG)))
}

/// Fails for a key of a persistent engine's own records, which neither commits nor runs may write.
pub fn check_writable(key: &[u8]) -> Result<(), EngineError> {
    match is_kept_by_engines(key) {
        true => {
            let text = format!("the key '{}' is reserved for the engine", key.escape_ascii());
            Err(EngineError::Unavailable(text))
        }
        false => Ok(()),
    }
}

/// Returns the commit in the key of an op in the log.
pub fn seqno_of(key: &[u8]) -> Result<Seqno, DecodeError> {
    Ok(Seqno(number_at(key, 1)?))
}

/// Returns the consumer's name in the key of a cursor.
pub fn consumer_of(key: &[u8]) -> Result<&str, DecodeError> {
    let name = key.get(1..).ok_or(DecodeError::Truncated)?;
    str::from_utf8(name).map_err(|_| DecodeError::Field("a consumer's name that is not UTF-8"))
}

/// Returns whether every change of the record also changes the inode whose number is in the key.
pub fn changes_with_inode(key: &[u8]) -> bool {
    let tag = key.first().copied().unwrap_or_default();
    key.len() >= 9
        && matches!(tag, DENTRY | EXTENT | HARD_LINK | INODE | OBJECT_USES | ORPHAN | SET_GROUP | XATTR)
}

/// Returns whether ops read the records of a key's family only under conditions of their commits, or only for what never changes in a record.
/// So an op that reads an old record does no harm. Extents, for example, are read under the condition of their inode.
pub fn is_read_under_condition(key: &[u8]) -> bool {
    matches!(key, [QUOTA] | [DENTRY | INODE | ORPHAN | SET_GROUP | TREE | WAITING_EXPORT | XATTR, ..])
}

/// Returns the inode number in a key of any family whose keys begin with one.
pub fn ino_of(key: &[u8]) -> Result<Ino, DecodeError> {
    Ok(Ino(number_at(key, 1)?))
}

/// Returns the name in a dentry's key.
pub fn name_of(key: &[u8]) -> Result<Name, DecodeError> {
    name_at(key, 9)
}

/// Returns the offset in an extent's key, in bytes.
pub fn offset_of(key: &[u8]) -> Result<u64, DecodeError> {
    number_at(key, 9)
}

/// Returns the object's key in the key of a use count.
pub fn object_of(key: &[u8]) -> Result<ObjectKey, DecodeError> {
    let bytes = key.get(9..).ok_or(DecodeError::Truncated)?;
    ObjectKey::try_from(bytes).map_err(|_| DecodeError::Field("an invalid object key"))
}

/// Returns the directory and the name in the key of an additional name.
pub fn link_of(key: &[u8]) -> Result<(Ino, Name), DecodeError> {
    Ok((Ino(number_at(key, 9)?), name_at(key, 17)?))
}

/// Returns the attribute's name in the key of an extended attribute.
pub fn xattr_of(key: &[u8]) -> Result<&[u8], DecodeError> {
    key.get(9..).ok_or(DecodeError::Truncated)
}

/// Returns a key of a family whose keys begin with an inode number.
fn key_of_ino(tag: u8, ino: Ino, rest: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + rest.len());
    key.push(tag);
    key.extend_from_slice(&ino.0.to_be_bytes());
    key.extend_from_slice(rest);
    key
}

/// Returns the range of an inode's keys in a family.
fn range_of_ino(tag: u8, ino: Ino) -> KeyRange {
    let to = match ino.0.checked_add(1) {
        Some(next) => key_of_ino(tag, Ino(next), &[]),
        None => vec![tag + 1],
    };
    KeyRange { from: key_of_ino(tag, ino, &[]), to }
}

/// Returns the range of all keys of a family.
fn family(tag: u8) -> KeyRange {
    KeyRange { from: vec![tag], to: vec![tag + 1] }
}

fn number_at(key: &[u8], at: usize) -> Result<u64, DecodeError> {
    let bytes = key.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).ok_or(DecodeError::Truncated)?;
    Ok(u64::from_be_bytes(bytes))
}

fn name_at(key: &[u8], at: usize) -> Result<Name, DecodeError> {
    let bytes = key.get(at..).ok_or(DecodeError::Truncated)?;
    Name::new(bytes).map_err(|_| DecodeError::Field("an invalid name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dentries_of_a_directory_are_one_range_ordered_by_name() {
        let range = dentries(Ino(7));
        let a = dentry(Ino(7), &Name::new(b"a").unwrap());
        let high = dentry(Ino(7), &Name::new(&[0xff; 255]).unwrap());
        assert!(a < high && range.contains(&a) && range.contains(&high));
        assert!(!range.contains(&dentry(Ino(8), &Name::new(&[1]).unwrap())));
        assert!(dentries(Ino(u64::MAX)).contains(&dentry(Ino(u64::MAX), &Name::new(&[0xff]).unwrap())));
    }

    #[test]
    fn the_ops_of_a_commit_are_one_range() {
        let range = log_records(Seqno(6), Seqno(7));
        assert!(range.contains(&log_record(Seqno(7), 0)) && range.contains(&log_record(Seqno(7), u32::MAX)));
        assert!(
            !range.contains(&log_record(Seqno(6), u32::MAX)) && !range.contains(&log_record(Seqno(8), 0))
        );
        assert!(log_records(Seqno(0), Seqno(u64::MAX)).contains(&log_record(Seqno(u64::MAX), 0)));
    }

    #[test]
    fn a_run_is_the_last_log_record_of_its_commit() {
        assert!(is_logged_run(&logged_run(Seqno(7))) && !is_logged_run(&log_record(Seqno(7), 0)));
        assert!(log_records(Seqno(6), Seqno(7)).contains(&logged_run(Seqno(7))));
    }

    #[test]
    fn own_records_of_an_engine_are_recognised() {
        assert!(
            [head(), journal(), consumer("c"), log_record(Seqno(1), 0), run_log_page(Seqno(1), 0)]
                .iter()
                .all(|key| is_kept_by_engines(key))
        );
        assert!(![next_ino(), inode(Ino(1)), Vec::new()].iter().any(|key| is_kept_by_engines(key)));
    }

    #[test]
    fn fields_of_keys_are_decoded() {
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
