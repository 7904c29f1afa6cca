//! POSIX access control lists, in the format of the two extended attributes through which Linux passes them.
//!
//! Owns the relation between ACL and mode and the permissions that an ACL grants, by the rules of acl(5). On a mount the kernel checks
//! permissions itself, with the ACLs that it reads.
//!
//! Invariants: an ACL that is equivalent to a mode is stored as the mode only; in a stored ACL the entries of the owner, the mask
//! (the owning group if there is no mask) and others equal the nine lower bits of the mode.

use crate::Inode;
use crate::access::Caller;
use bytes::Bytes;

/// The extended attribute that holds the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The extended attribute of a directory that holds the default ACL, which new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The version of the attributes' format (`POSIX_ACL_XATTR_VERSION` in `linux/posix_acl_xattr.h`).
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The bits of a mode that an ACL determines too.
const RWX_ALL: u16 = 0o777;

/// The kind of an entry. The numbers are those of `linux/posix_acl.h`; the entries of an ACL ascend by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

/// An entry of an ACL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// Read 4, write 2, execute 1.
    permissions: u16,
    /// The id of a named user or group. Other entries keep the value they were parsed with.
    id: u32,
}

/// A valid ACL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// Returns whether `name` is an extended attribute that holds an ACL.
    pub fn is_name(name: &[u8]) -> bool {
        name == ACCESS || name == DEFAULT
    }

    /// Parses an attribute's value. Returns `None` if the bytes are not an ACL or a required entry is missing.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (version, entries) = value.split_first_chunk::<HEADER_BYTES>()?;
        if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY_BYTES != 0 {
            return None;
        }
        let entries = entries.chunks_exact(ENTRY_BYTES).map(Entry::parse).collect::<Option<Vec<_>>>()?;
        let acl = Self(entries);
        acl.is_valid().then_some(acl)
    }

    /// Encodes the ACL as an attribute's value.
    pub fn to_value(&self) -> Bytes {
        let entries = self.0.iter().flat_map(|entry| entry.to_bytes());
        VERSION.to_le_bytes().into_iter().chain(entries).collect()
    }

    /// Returns whether the ACL is equivalent to a mode.
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// Returns `mode` with the permissions that the ACL gives to the owner, the group class and others.
    pub fn on_mode(&self, mode: u16) -> u16 {
        let classes = self.0.iter().map(|entry| match self.mode_shift(entry) {
            Some(shift) => entry.permissions << shift,
            None => 0,
        });
        mode & !RWX_ALL | classes.fold(0, |all, class| all | class)
    }

    /// Returns the ACL after a change of the mode. The mode's group class becomes the mask.
    pub fn with_mode(&self, mode: u16) -> Self {
        self.map_entries(|entry, shift| Entry {
            permissions: shift.map_or(entry.permissions, |shift| mode >> shift & 7),
            ..entry
        })
    }

    /// Returns the access ACL of a file that is created with `mode` in a directory with this default ACL: only permissions that
    /// both grant.
    pub fn inherited(&self, mode: u16) -> Self {
        self.map_entries(|entry, shift| Entry {
            permissions: entry.permissions & shift.map_or(7, |shift| mode >> shift & 7),
            ..entry
        })
    }

    /// Returns whether the ACL grants the wanted permissions to a caller who does not own the inode (`posix_acl_permission`).
    pub(crate) fn grants(&self, caller: &Caller, inode: &Inode, wanted: u16) -> bool {
        let has_wanted = |entry: &Entry| entry.permissions & wanted == wanted;
        let mask = self.0.iter().find(|entry| entry.tag == Tag::Mask);
        let is_masked_in = |entry: &Entry| has_wanted(entry) && mask.is_none_or(has_wanted);
        if let Some(named) = self.0.iter().find(|entry| entry.tag == Tag::User && entry.id == caller.uid) {
            return is_masked_in(named);
        }
        let applies = |entry: &&Entry| match entry.tag {
            Tag::OwningGroup => caller.is_in(inode.gid),
            Tag::Group => caller.is_in(entry.id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(applies).peekable();
        if groups.peek().is_some() {
            return groups.any(is_masked_in);
        }
        self.0.iter().any(|entry| entry.tag == Tag::Others && has_wanted(entry))
    }

    /// Returns a list whose entries `change` makes: it gets each entry, and the shift of the mode bits that the entry
    /// stands for, if any.
    fn map_entries(&self, change: impl Fn(Entry, Option<u16>) -> Entry) -> Self {
        Self(self.0.iter().map(|entry| change(*entry, self.mode_shift(entry))).collect())
    }

    /// Returns by how many bits an entry's permissions are shifted in a mode; `None` for entries that a mode does not show.
    fn mode_shift(&self, entry: &Entry) -> Option<u16> {
        match entry.tag {
            Tag::Owner => Some(6),
            Tag::Mask => Some(3),
            Tag::Others => Some(0),
            Tag::OwningGroup if self.0.iter().all(|entry| entry.tag != Tag::Mask) => Some(3),
            Tag::User | Tag::OwningGroup | Tag::Group => None,
        }
    }

    /// Returns whether the entries ascend, with owner, owning group and others exactly once, and with a mask if a user or group
    /// is named.
    fn is_valid(&self) -> bool {
        let count = |tag: Tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let has_named_entries = count(Tag::User) + count(Tag::Group) > 0;
        self.0.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::OwningGroup, Tag::Others].iter().all(|tag| count(*tag) == 1)
            && count(Tag::Mask) <= 1
            && (count(Tag::Mask) == 1 || !has_named_entries)
    }
}

impl Entry {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let tag = match u16_at(0)? {
            0x01 => Tag::Owner,
            0x02 => Tag::User,
            0x04 => Tag::OwningGroup,
            0x08 => Tag::Group,
            0x10 => Tag::Mask,
            0x20 => Tag::Others,
            _ => return None,
        };
        let permissions = u16_at(2)?;
        let id = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        (permissions <= 7).then_some(Self { tag, permissions, id })
    }

    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let [t0, t1] = (self.tag as u16).to_le_bytes();
        let [p0, p1] = self.permissions.to_le_bytes();
        let [i0, i1, i2, i3] = self.id.to_le_bytes();
        [t0, t1, p0, p1, i0, i1, i2, i3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// `u::rw-,u:1000:rwx,g::r--,m::rwx,o::---`
    fn extended() -> Acl {
        let entries =
            [(1, 6, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
        Acl::parse(&value(&entries)).unwrap()
    }

    #[test]
    fn the_mask_is_the_group_class_of_the_mode() {
        let acl = extended();
        assert_eq!(Acl::parse(&acl.to_value()), Some(acl.clone()));
        assert_eq!((acl.on_mode(0o4644), acl.is_minimal()), (0o4670, false));
        let changed = acl.with_mode(0o751);
        assert_eq!(changed.on_mode(0), 0o751);
        assert_eq!(changed.0[2].permissions, 4, "the owning group keeps its entry");
    }

    #[test]
    fn inherited_permissions_are_granted_by_both_acl_and_mode() {
        let made = extended().inherited(0o666);
        assert_eq!((made.on_mode(0), made.0[1].permissions), (0o660, 7));
        let minimal = Acl::parse(&value(&[(1, 7, 0), (4, 5, 0), (0x20, 5, 0)])).unwrap();
        assert!(minimal.is_minimal());
        assert_eq!(minimal.inherited(0o770).on_mode(0), 0o750);
        let masked = Acl::parse(&value(&[(1, 7, 0), (4, 5, 0), (0x10, 1, 0), (0x20, 5, 0)])).unwrap();
        assert!(!masked.is_minimal() && masked.on_mode(0) == 0o715);
    }

    #[test]
    fn invalid_acls_are_rejected() {
        let (owner, group, others) = ((1, 7, 0), (4, 5, 0), (0x20, 5, 0));
        for bad in [
            value(&[]),
            value(&[owner, group]),
            value(&[group, owner, others]),
            value(&[owner, (2, 7, 5), group, others]),
            value(&[owner, owner, group, others]),
            value(&[(1, 8, 0), group, others]),
            value(&[owner, group, (0x40, 5, 0)]),
            [value(&[owner, group, others]), vec![0]].concat(),
            [3u32.to_le_bytes().as_slice(), &value(&[owner, group, others])[4..]].concat(),
            b"2".to_vec(),
        ] {
            assert_eq!(Acl::parse(&bad), None, "{bad:?}");
        }
    }
}
