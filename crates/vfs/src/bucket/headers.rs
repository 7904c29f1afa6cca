//! POSIX attributes in object headers.
//!
//! Written: the AWS dialect, which FSx for Lustre, DataSync and S3 File Gateway share (`file-permissions` as octal type and
//! mode, `file-owner`, `file-group`, `file-mtime` and `file-atime` in nanoseconds with the suffix `ns`).
//!
//! Also read: s3fs (`mode`, `uid`, `gid`, `mtime`, `atime`), rclone (`mtime` as decimal seconds; with `--metadata` also `mode`
//! in octal and times as RFC 3339), gcsfuse (`gcsfuse_mtime` as RFC 3339, symlink markers), goofys and geesefs (like s3fs,
//! symlink targets).
//!
//! Refuses to guess: a value that does not parse counts as absent.

use bytes::Bytes;
use meta::{Inode, Kind, Moment, Observed};
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use store::{Attributes, ETag, ListedObject, ObjectMeta, ObjectRef, Timestamp};

use crate::attr::type_bits;
use crate::bucket::metadata;
use crate::layout::stored;

const PERMISSIONS: &str = "file-permissions";
const OWNER: &str = "file-owner";
const GROUP: &str = "file-group";
const MTIME: &str = "file-mtime";
const ATIME: &str = "file-atime";
/// Tenon's own header: the device number of a character or block device, in decimal.
const RDEV: &str = "file-rdev";

/// Names of user metadata that Tenon writes.
const WRITTEN: [&str; 6] = [PERMISSIONS, OWNER, GROUP, MTIME, ATIME, RDEV];

/// Marks an object whose body is the target of a symbolic link (Google's standard, which gcsfuse writes).
const LINK_MARK: &str = "goog-reserved-file-is-symlink";
/// Headers with the target of a symbolic link: of older gcsfuse versions, and of geesefs (percent-encoded).
const LINK_TARGETS: [&str; 2] = ["gcsfuse_symlink_target", "--symlink-target"];

/// Further names of user metadata that other programs use for POSIX attributes.
const READ: [&str; 13] = [
    "mode",
    "uid",
    "gid",
    "rdev",
    "mtime",
    "atime",
    "gcsfuse_mtime",
    LINK_MARK,
    LINK_TARGETS[0],
    LINK_TARGETS[1],
    "ctime",
    "btime",
    "file-acl",
];

/// Returns whether user metadata of this name is a POSIX attribute in any dialect, including those that Tenon does not
/// interpret.
pub(crate) fn is_posix(name: &str) -> bool {
    WRITTEN.contains(&name) || READ.contains(&name)
}

/// Maximum mode, with the type bits.
const MODE_MAX: u32 = 0o177_777;

/// Mask of the permission bits in a mode.
const PERMISSION_BITS: u32 = 0o7777;

/// Attributes of objects whose headers have none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) file_mode: u16,
    pub(crate) dir_mode: u16,
}

/// Returns `attributes` with the inode's POSIX attributes set, as far as there is space. Other headers are kept.
pub(crate) fn with_posix(mut attributes: Attributes, inode: &Inode) -> Attributes {
    attributes.user.retain(|name, _| !WRITTEN.contains(&name.as_str()));
    let nanos = |time: Timestamp| format!("{}ns", time.0);
    attributes.user.extend([
        (PERMISSIONS.to_owned(), format!("{:07o}", type_bits(inode.kind) | u32::from(inode.mode))),
        (OWNER.to_owned(), inode.uid.to_string()),
        (GROUP.to_owned(), inode.gid.to_string()),
        (MTIME.to_owned(), nanos(inode.mtime)),
        (ATIME.to_owned(), nanos(inode.atime)),
    ]);
    if inode.rdev != 0 {
        attributes.user.insert(RDEV.to_owned(), inode.rdev.to_string());
    }
    // If space is short, headers of other programs are kept: this mount knows the POSIX attributes without their headers.
    for name in [REPLACES, COPY_OF, ATIME, GROUP, OWNER, PERMISSIONS, MTIME] {
        if metadata::fits(&attributes.user) {
            break;
        }
        attributes.user.remove(name);
    }
    attributes
}

/// Prefix of user metadata that Tenon's S3 endpoint stores about an object's bytes, such as their checksum.
const CONTENT_PREFIX: &str = "tenon-";
/// User metadata with [`CONTENT_PREFIX`] that does not describe the bytes: the directory of an object in its views.
const DIRECTORY: &str = "tenon-directory";
/// User metadata of an object that was copied onto itself with other headers: the etags that it had before, the newest first.
const COPY_OF: &str = "tenon-copy-of";
/// Separates etags, which contain no space.
const ETAG_SEPARATOR: &str = " ";
/// How many etags are kept at most.
const COPY_OF_MAX: usize = 4;
/// User metadata of an object that a mount stored in place of another one: the etag of that one.
const REPLACES: &str = "tenon-replaces";

/// Returns whether user metadata describes the object's bytes, so that it is invalid for other bytes.
pub(crate) fn describes_content(name: &str) -> bool {
    name.starts_with(CONTENT_PREFIX) && name != DIRECTORY
}

/// Returns the headers that an object keeps when its bytes are replaced: those that do not describe the bytes.
pub(crate) fn without_content_metadata(mut attributes: Attributes) -> Attributes {
    attributes.user.retain(|name, _| !describes_content(name));
    attributes
}

/// Returns the initial headers of a new object that belongs to no regular file, or to a file without a name to derive a
/// type from.
pub(crate) fn for_kind(kind: Kind) -> Attributes {
    let content_type = (kind == Kind::Directory).then(|| "application/x-directory".to_owned());
    Attributes { content_type, ..Attributes::default() }
}

/// Returns the initial headers of a new object: its content type.
pub(crate) fn new(inode: &Inode) -> Attributes {
    match (inode.kind, &inode.home) {
        (Kind::File, Some((_, name))) => {
            let content_type = metadata::content_type(name.as_bytes()).map(str::to_owned);
            Attributes { content_type, ..Attributes::default() }
        }
        (kind, _) => for_kind(kind),
    }
}

/// Returns whether headers contain an mtime in the dialect that Tenon writes.
pub(crate) fn has_mtime(attributes: &Attributes) -> bool {
    attributes.user.contains_key(MTIME)
}

/// Returns the mtime in headers of the dialect that Tenon writes.
pub(crate) fn mtime(attributes: &Attributes) -> Option<Timestamp> {
    attributes.user.get(MTIME).and_then(|text| time(text))
}

/// Returns whether an object has the current bytes of an inode, judged by its length and the mtime in its headers. The
/// length does not matter while the inode has deltas.
pub(crate) fn matches_inode(inode: &Inode, meta: &ObjectMeta) -> bool {
    mtime(&meta.attributes) == Some(inode.mtime) && (meta.size_bytes == inode.size_bytes || inode.is_ahead())
}

/// Returns headers for a copy of an object onto itself, which gives the object another etag. They say which etags it had, as far as
/// there is space.
pub(crate) fn of_copy(mut attributes: Attributes, before: &ETag) -> Attributes {
    let earlier = attributes.user.remove(COPY_OF).unwrap_or_default();
    let mut etags = vec![before.as_str()];
    etags.extend(earlier.split(ETAG_SEPARATOR).filter(|etag| !etag.is_empty()));
    etags.truncate(COPY_OF_MAX);
    while !etags.is_empty() {
        attributes.user.insert(COPY_OF.to_owned(), etags.join(ETAG_SEPARATOR));
        if metadata::fits(&attributes.user) {
            return attributes;
        }
        etags.pop();
    }
    attributes.user.remove(COPY_OF);
    attributes
}

/// Returns headers for an object that is stored in place of another one. They have that one's etag, unless only this mount knows it.
pub(crate) fn in_place_of(mut attributes: Attributes, before: &ETag) -> Attributes {
    if !before.is_provisional() {
        attributes.user.insert(REPLACES.to_owned(), before.as_str().to_owned());
    }
    attributes
}

/// Returns whether a mount stored an object in place of the one that a file has.
pub(crate) fn replaces_object_of(inode: &Inode, meta: &ObjectMeta) -> bool {
    let (before, known) = (meta.attributes.user.get(REPLACES), inode.object());
    inode.kind == Kind::File
        && kind_of(&meta.attributes) == Kind::File
        && before.zip(known).is_some_and(|(before, known)| before == known.etag.as_str())
}

/// Returns whether an object that was found at an inode's path has the inode's bytes although its etag is another: it is a copy of the
/// inode's object with other headers, or a mount died while it stored there what the inode has under keys of its own. For other
/// inodes length and mtime prove nothing: another client may store changed bytes with the headers that it has read.
pub(crate) fn has_bytes_of(inode: &Inode, meta: &ObjectMeta) -> bool {
    if inode.is_ahead() || inode.is_beside() {
        return matches_inode(inode, meta);
    }
    let (before, known) = (meta.attributes.user.get(COPY_OF), inode.object());
    let is_copy_of =
        |before: &String, etag: &str| before.split(ETAG_SEPARATOR).any(|earlier| earlier == etag);
    meta.size_bytes == inode.size_bytes
        && before.zip(known).is_some_and(|(before, known)| is_copy_of(before, known.etag.as_str()))
}

/// Returns what the headers of an object tell about its file, or about its directory if it is a marker.
pub(crate) fn observed(
    meta: &ObjectMeta,
    is_marker: bool,
    defaults: &Defaults,
    looked_at: Moment,
) -> Observed {
    let plain = without_headers(&meta.object, meta.size_bytes, is_marker, defaults, looked_at);
    with_headers(plain, &meta.attributes, is_marker)
}

/// Returns what an object with these headers is as a file, if it is no marker of a directory.
pub(crate) fn kind_of(attributes: &Attributes) -> Kind {
    PosixHeaders::parse(&attributes.user).kind()
}

/// Returns an observation with the attributes that headers contain.
fn with_headers(mut seen: Observed, attributes: &Attributes, is_marker: bool) -> Observed {
    let found = PosixHeaders::parse(&attributes.user);
    let mode = found.mode.unwrap_or(0);
    if !is_marker {
        seen.kind = found.kind();
        if found.is_symlink {
            seen.target = found.target;
        }
    }
    if found.mode.is_some_and(|mode| mode & PERMISSION_BITS != 0 || mode & libc::S_IFMT != 0) {
        seen.mode = (mode & PERMISSION_BITS) as u16;
    }
    seen.rdev = found.rdev.unwrap_or(0);
    seen.uid = found.uid.unwrap_or(seen.uid);
    seen.gid = found.gid.unwrap_or(seen.gid);
    seen.mtime = found.mtime.unwrap_or(seen.mtime);
    seen.atime = found.atime.unwrap_or(seen.mtime);
    seen.exact = true;
    seen
}

/// Returns what a listing tells about a file: size and time, and the other attributes if the listing has the headers.
pub(crate) fn listed(
    listed: &ListedObject,
    is_marker: bool,
    defaults: &Defaults,
    looked_at: Moment,
) -> Observed {
    let plain = without_headers(&listed.object, listed.size_bytes, is_marker, defaults, looked_at);
    let Some(attributes) = &listed.attributes else { return plain };
    let seen = with_headers(plain.clone(), attributes, is_marker);
    // The target of a symbolic link may be in the body, which a listing does not have.
    if seen.kind == Kind::Symlink && seen.target.is_none() { plain } else { seen }
}

/// Returns an observation of an object's length and time. The other attributes are the defaults.
fn without_headers(
    object: &ObjectRef,
    size_bytes: u64,
    is_marker: bool,
    defaults: &Defaults,
    looked_at: Moment,
) -> Observed {
    let at = object.last_modified.unwrap_or_default();
    Observed {
        kind: if is_marker { Kind::Directory } else { Kind::File },
        size_bytes,
        object: Some(stored(object)),
        mode: if is_marker { defaults.dir_mode } else { defaults.file_mode },
        uid: defaults.uid,
        gid: defaults.gid,
        rdev: 0,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        target: None,
        exact: false,
        looked_at,
    }
}

/// Returns an observation with the known storage time if both are the same second. S3 reports milliseconds in listings and
/// seconds in headers, and reading a file must not change its times.
pub(crate) fn with_known_precision(known: Option<Timestamp>, mut seen: Observed) -> Observed {
    let (Some(fine), Some(object)) = (known, seen.object.as_mut()) else { return seen };
    if object.last_modified == Some(Timestamp::from_secs(fine.secs(), 0)) {
        let coarse = object.last_modified.replace(fine);
        for time in [&mut seen.atime, &mut seen.mtime, &mut seen.ctime, &mut seen.btime] {
            if Some(*time) == coarse {
                *time = fine;
            }
        }
    }
    seen
}

/// Returns a directory without a marker, which exists because keys begin with its path. All its times are `at`.
pub(crate) fn implicit_directory(
    at: Timestamp,
    looked_at: Moment,
    defaults: &Defaults,
    exact: bool,
) -> Observed {
    Observed {
        kind: Kind::Directory,
        size_bytes: 0,
        object: None,
        mode: defaults.dir_mode,
        uid: defaults.uid,
        gid: defaults.gid,
        rdev: 0,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        target: None,
        exact,
        looked_at,
    }
}

/// The POSIX attributes that user metadata contains.
#[derive(Debug, Default, PartialEq)]
struct PosixHeaders {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    rdev: Option<u32>,
    mtime: Option<Timestamp>,
    atime: Option<Timestamp>,
    is_symlink: bool,
    /// The target of a symbolic link, if it is not in the body.
    target: Option<Bytes>,
}

impl PosixHeaders {
    fn parse(user: &BTreeMap<String, String>) -> Self {
        let get = |names: &[&str]| names.iter().find_map(|name| user.get(*name)).map(String::as_str);
        let [plain, escaped] = LINK_TARGETS.map(|name| user.get(name));
        let target = plain
            .map(|target| Bytes::copy_from_slice(target.as_bytes()))
            .or_else(|| escaped.map(|target| percent_decode_str(target).collect::<Vec<u8>>().into()));
        Self {
            mode: get(&[PERMISSIONS]).and_then(octal).or_else(|| get(&["mode"]).and_then(decimal_or_octal)),
            uid: get(&[OWNER, "uid"]).and_then(|text| text.parse().ok()),
            gid: get(&[GROUP, "gid"]).and_then(|text| text.parse().ok()),
            rdev: get(&[RDEV]).and_then(|text| text.parse().ok()),
            mtime: get(&[MTIME, "mtime", "gcsfuse_mtime"]).and_then(time),
            atime: get(&[ATIME, "atime"]).and_then(time),
            is_symlink: user.contains_key(LINK_MARK) || target.is_some(),
            target: target.filter(|target| !target.is_empty()),
        }
    }

    fn kind(&self) -> Kind {
        match self.is_symlink {
            true => Kind::Symlink,
            false => self.mode.and_then(kind).filter(|kind| *kind != Kind::Directory).unwrap_or(Kind::File),
        }
    }
}

fn octal(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim_start_matches("0o"), 8).ok()
}

/// Parses a mode. s3fs writes decimal; rclone writes octal, sometimes with a leading 0. A number that is a valid mode
/// in decimal is read as decimal.
fn decimal_or_octal(text: &str) -> Option<u32> {
    if text.len() > 1 && text.starts_with('0') {
        return octal(text);
    }
    let is_mode = |mode: &u32| *mode <= MODE_MAX && (mode & libc::S_IFMT == 0 || kind(*mode).is_some());
    text.parse().ok().filter(is_mode).or_else(|| octal(text).filter(is_mode))
}

/// Parses `1595002920000000000ns`, `1595002920`, `1595002920.123456789` or `2020-07-17T16:22:00.123456789Z`. Returns
/// `None` for any other format.
fn time(text: &str) -> Option<Timestamp> {
    if let Some(nanos) = text.strip_suffix("ns") {
        return nanos.parse().ok().map(Timestamp);
    }
    let (secs, fraction) = text.split_once('.').unwrap_or((text, ""));
    let Ok(secs) = secs.parse() else { return rfc3339(text) };
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    Some(Timestamp::from_secs(secs, digits.parse().ok()?))
}

fn rfc3339(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok().map(Timestamp)
}

/// Returns the kind in the type bits of a mode; `None` without type bits.
fn kind(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Some(Kind::File),
        libc::S_IFDIR => Some(Kind::Directory),
        libc::S_IFLNK => Some(Kind::Symlink),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)]) -> PosixHeaders {
        PosixHeaders::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn the_aws_dialect_is_read() {
        let found = found(&[
            ("file-permissions", "0100664"),
            ("file-owner", "500"),
            ("file-group", "501"),
            ("file-mtime", "1595002920123456789ns"),
            ("file-atime", "1595002921"),
        ]);
        assert_eq!(found.mode, Some(0o100_664));
        assert_eq!((found.uid, found.gid), (Some(500), Some(501)));
        assert_eq!(found.mtime, Some(Timestamp(1_595_002_920_123_456_789)));
        assert_eq!(found.atime, Some(Timestamp::from_secs(1_595_002_921, 0)));
    }

    #[test]
    fn s3fs_rclone_and_gcsfuse_are_read() {
        assert_eq!(found(&[("mode", "33204"), ("uid", "7")]).mode, Some(0o100_664));
        for (text, mode) in
            [("100664", 0o100_664), ("40755", 0o040_755), ("16877", 0o040_755), ("0644", 0o644)]
        {
            assert_eq!(found(&[("mode", text)]).mode, Some(mode), "{text}");
        }
        assert_eq!(
            found(&[("mtime", "1595002920.5")]).mtime,
            Some(Timestamp::from_secs(1_595_002_920, 500_000_000))
        );
        assert_eq!(
            found(&[("gcsfuse_mtime", "2020-07-17T16:22:00Z")]).mtime,
            Some(Timestamp::from_secs(1_595_002_920, 0))
        );
    }

    #[test]
    fn headers_do_not_make_listed_times_coarser() {
        let at = |last_modified| ObjectRef {
            key: "k".try_into().unwrap(),
            etag: store::ETag::new("e"),
            version: None,
            last_modified: Some(last_modified),
        };
        let defaults = Defaults { uid: 0, gid: 0, file_mode: 0o644, dir_mode: 0o755 };
        let seen = |time| without_headers(&at(time), 5, false, &defaults, Moment::default());
        let (fine, coarse) = (Timestamp(1_234_000_000), Timestamp::from_secs(1, 0));
        assert_eq!(with_known_precision(Some(fine), seen(coarse)), seen(fine));
        let other = Timestamp::from_secs(2, 0);
        assert_eq!(with_known_precision(Some(fine), seen(other)), seen(other));
        let set = Observed { mtime: other, ..seen(coarse) };
        assert_eq!(with_known_precision(Some(fine), set).mtime, other, "a time from a header is kept");
    }

    #[test]
    fn invalid_values_count_as_absent() {
        let nonsense = [("file-permissions", "rw-r"), ("file-mtime", "soon"), ("uid", "-1"), ("mode", "")];
        assert_eq!(found(&nonsense), PosixHeaders::default());
    }
}
