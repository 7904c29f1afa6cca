//! Keys as paths of file names, and back: a reversible escape.
//!
//! Two components need it: the directory store, which keeps objects in files, and the file system, which shows
//! objects as files. A key is split at `/` into components. A component is used as a file name unchanged, unless no
//! file system could hold it:
//!
//! | component | name |
//! |---|---|
//! | empty, `.`, `..`, holds a NUL, or begins with `%=` or `%+` | `%!` and the component, `%` and NUL in percent form |
//! | reads like such an escape itself | the same |
//! | longer than a name can be | a directory `%+` with the beginning, the rest inside the directory |
//! | of an object whose name a directory has too | `%=` and the name |
//!
//! Everything else, `%` included, is literal, so ordinary keys look like themselves. The last row depends on the
//! other keys of the bucket; the caller decides when it applies.
//!
//! Invariants: the path of a key ([`key_to_path`]) leads back to the key by `child_dir` and `child_key`; two keys
//! never have the same path.

use crate::key::{InvalidKey, ObjectKey};
use std::borrow::Cow;

/// The longest file name, in bytes (POSIX `NAME_MAX` on Linux).
pub const NAME_BYTES_MAX: usize = 255;

const ESCAPE: &[u8] = b"%!";
const COLLIDING: &[u8] = b"%=";
const CONTINUED: &[u8] = b"%+";

/// Minimum escaped length of the beginning of a name that is continued, in bytes. With [`CONTINUED`] and one last
/// byte in percent form it still fits [`NAME_BYTES_MAX`].
const HEAD_BYTES: usize = NAME_BYTES_MAX - 4;

/// Error of a file name that has no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// The name is one that only the escape produces.
    #[error("file names that begin with '%+' or '%=' are reserved for object keys that cannot be file names")]
    Reserved,
    /// The key would be empty or too long.
    #[error(transparent)]
    Key(#[from] InvalidKey),
}

/// The prefix that the keys of everything in one directory share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyPrefix {
    bytes: Vec<u8>,
    /// For a directory in which a long name continues: the position in `bytes` of the beginning that the directory's
    /// own name holds.
    head_start: Option<usize>,
}

/// A listed key or common prefix, as an entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An object of this name.
    Object(Vec<u8>),
    /// A directory of this name.
    Directory(Vec<u8>),
    /// The directory's own marker object (`dir/`).
    Marker,
}

impl KeyPrefix {
    /// Returns the directory whose keys begin with `bytes` (empty, or usually ending in `/`).
    pub fn root(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), head_start: None }
    }

    /// Returns the prefix to list for this directory.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the key of the marker object that keeps an empty directory. Continued names and the root of a bucket
    /// have none.
    pub fn marker_key(&self) -> Option<ObjectKey> {
        match self.head_start {
            None => ObjectKey::try_from(self.bytes.as_slice()).ok(),
            Some(_) => None,
        }
    }

    /// Returns the directory `name` in this directory.
    pub fn child_dir(&self, name: &[u8]) -> Result<Self, BadName> {
        let mut bytes = self.bytes.clone();
        if let Some(head) = name.strip_prefix(CONTINUED) {
            let head = percent_decode(head).filter(|raw| head_len(raw) == Some(raw.len()));
            bytes.extend_from_slice(&head.ok_or(BadName::Reserved)?);
            return Ok(Self { bytes, head_start: Some(self.bytes.len()) });
        }
        if name.starts_with(COLLIDING) {
            return Err(BadName::Reserved);
        }
        bytes.extend_from_slice(&decode(name));
        bytes.push(b'/');
        Ok(Self { bytes, head_start: None })
    }

    /// Returns the key of the object `name` in this directory.
    pub fn child_key(&self, name: &[u8]) -> Result<ObjectKey, BadName> {
        if name.starts_with(CONTINUED) {
            return Err(BadName::Reserved);
        }
        let name = name.strip_prefix(COLLIDING).unwrap_or(name);
        let mut bytes = self.bytes.clone();
        bytes.extend_from_slice(&decode(name));
        Ok(ObjectKey::new(bytes)?)
    }

    /// Returns the entry of this directory for a listed text (a key, or a common prefix with its trailing `/`);
    /// `None` if the text belongs to another directory.
    pub fn entry(&self, text: &[u8]) -> Option<Entry> {
        let rest = text.strip_prefix(self.bytes.as_slice())?;
        let (component, folded) = match rest.iter().position(|&b| b == b'/') {
            Some(at) => (&rest[..at], true),
            None => (rest, false),
        };
        match self.head_start {
            Some(at) if !continues(&self.bytes[at..], component) => return None,
            None if component.is_empty() && !folded => return Some(Entry::Marker),
            _ => {}
        }
        Some(match split_head(component) {
            Some(head) => Entry::Directory([CONTINUED, &percent_encode(head)].concat()),
            None if folded => Entry::Directory(encode(component).into_owned()),
            None => Entry::Object(encode(component).into_owned()),
        })
    }
}

/// Returns the name of an object whose plain name a directory has too.
pub fn colliding(name: &[u8]) -> Vec<u8> {
    [COLLIDING, name].concat()
}

/// Returns the plain name in a name made by [`colliding`]; `None` for any other name.
pub fn plain(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(COLLIDING)
}

/// Returns whether the name is that of a directory in which a name that is too long continues.
pub fn is_continued(name: &[u8]) -> bool {
    name.starts_with(CONTINUED)
}

/// Returns the path of an object from a bucket's root: the names of the directories, then that of the object. An
/// empty last name stands for a directory marker.
pub fn key_to_path(key: &ObjectKey) -> Vec<Vec<u8>> {
    let mut at = KeyPrefix::root(b"");
    let mut path = Vec::new();
    loop {
        match at.entry(key.as_bytes()) {
            Some(Entry::Object(name)) => {
                path.push(name);
                return path;
            }
            Some(Entry::Directory(name)) => {
                let Ok(inside) = at.child_dir(&name) else { unreachable!("an entry's name has a prefix") };
                at = inside;
                path.push(name);
            }
            Some(Entry::Marker) | None => {
                path.push(Vec::new());
                return path;
            }
        }
    }
}

fn encode(component: &[u8]) -> Cow<'_, [u8]> {
    if needs_escape(component) {
        Cow::Owned([ESCAPE, &percent_encode(component)].concat())
    } else {
        Cow::Borrowed(component)
    }
}

fn decode(name: &[u8]) -> Cow<'_, [u8]> {
    match unescape(name) {
        Some(component) => Cow::Owned(component),
        None => Cow::Borrowed(name),
    }
}

/// Returns whether a component of a key cannot be the name of a file as it is, or would be taken for an escaped one.
fn needs_escape(component: &[u8]) -> bool {
    matches!(component, b"" | b"." | b"..")
        || component.contains(&0)
        || component.starts_with(COLLIDING)
        || component.starts_with(CONTINUED)
        || unescape(component).is_some()
}

/// Returns the component whose escaped form is `name`; `None` if `name` is no escaped form.
fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let component = percent_decode(name.strip_prefix(ESCAPE)?)?;
    (needs_escape(&component) && percent_encode(&component) == name[ESCAPE.len()..]).then_some(component)
}

/// Returns the beginning of a component that is too long for one name; `None` if the component is not too long.
fn split_head(component: &[u8]) -> Option<&[u8]> {
    if encode(component).len() <= NAME_BYTES_MAX {
        return None;
    }
    head_len(component).map(|len| &component[..len])
}

/// Returns whether a component made of `head` and `rest` is too long for one name and is split exactly between them.
fn continues(head: &[u8], rest: &[u8]) -> bool {
    split_head(&[head, rest].concat()).is_some_and(|cut| cut == head) && !rest.is_empty()
}

fn head_len(component: &[u8]) -> Option<usize> {
    let mut width = 0;
    component
        .iter()
        .position(|&byte| {
            width += if needs_percent(byte) { 3 } else { 1 };
            width >= HEAD_BYTES
        })
        .map(|at| at + 1)
}

/// Returns whether an escaped name has this byte percent-encoded.
fn needs_percent(byte: u8) -> bool {
    byte == b'%' || byte == 0
}

/// Returns a component in the percent form that follows `%!` and `%+` in names. The names keep the order of the components, except that
/// NUL, as `%00`, sorts before `%25` instead of first.
pub fn percent_encode(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    for &byte in raw {
        if needs_percent(byte) {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes())
        } else {
            out.push(byte)
        }
    }
    out
}

fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let hex = [*bytes.next()?, *bytes.next()?];
        out.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
    }
    Some(out)
}

/// Decodes a text in percent form up to the first `%` that begins no encoded byte.
pub fn percent_decode_beginning(text: &[u8]) -> Vec<u8> {
    let mut end = 0;
    while end < text.len() {
        end += match &text[end..] {
            [b'%', b'0', b'0', ..] | [b'%', b'2', b'5', ..] => 3,
            [b'%', ..] => break,
            _ => 1,
        };
    }
    percent_decode(&text[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks from the root to the key by names alone, as a file system does.
    fn round_trip(key: &[u8]) -> Vec<Vec<u8>> {
        let key = ObjectKey::try_from(key).unwrap();
        let path = key_to_path(&key);
        let (last, dirs) = path.split_last().unwrap();
        let mut at = KeyPrefix::root(b"");
        for name in dirs {
            assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX, "{name:?}");
            assert!(!name.contains(&b'/') && !name.contains(&0) && name != b"." && name != b"..");
            at = at.child_dir(name).unwrap();
        }
        assert!(last.len() <= NAME_BYTES_MAX);
        let back = if last.is_empty() { at.marker_key().unwrap() } else { at.child_key(last).unwrap() };
        assert_eq!(back, key);
        path
    }

    fn shown(key: &[u8]) -> String {
        String::from_utf8(round_trip(key).join(&b'/')).unwrap()
    }

    #[test]
    fn ordinary_keys_look_like_themselves() {
        for key in ["a", "a/b.txt", "100%.txt", "a%20b", "%zz", "%!x", "ü/ß", ".hidden", "a b"] {
            assert_eq!(shown(key.as_bytes()), key);
        }
    }

    #[test]
    fn keys_that_are_not_names_are_escaped() {
        assert_eq!(shown(b"a//b"), "a/%!/b");
        assert_eq!(shown(b"/b"), "%!/b");
        assert_eq!(shown(b"a/../b"), "a/%!../b");
        assert_eq!(shown(b"."), "%!.");
        assert_eq!(shown(b"dir/"), "dir/");
        assert_eq!(shown(b"a\0b"), "%!a%00b");
        assert_eq!(shown(b"%=a"), "%!%25=a");
        assert_eq!(shown(b"%!.."), "%!%25!..");
    }

    #[test]
    fn long_components_continue_in_a_directory() {
        for len in [250, 251, 252, 253, 254, 255, 256, 257, 300, 600, 1024] {
            for byte in [b'x', b'%', 0, b'.'] {
                round_trip(&vec![byte; len]);
            }
        }
        assert_eq!(round_trip(&[b'x'; 255]).len(), 1);
        assert_eq!(round_trip(&[b'x'; 256]).len(), 2);
    }

    #[test]
    fn a_continued_directory_shows_only_what_is_too_long_for_its_parent() {
        let inside =
            KeyPrefix::root(b"").child_dir(&[b"%+".as_slice(), &[b'x'; HEAD_BYTES]].concat()).unwrap();
        assert_eq!(inside.entry(&[b'x'; 255]), None);
        assert_eq!(inside.entry(&[b'x'; HEAD_BYTES]), None);
        assert_eq!(inside.entry(&[b'x'; 256]), Some(Entry::Object(vec![b'x'; 256 - HEAD_BYTES])));
    }

    #[test]
    fn a_text_is_decoded_up_to_what_is_not_encoded() {
        let raw = b"a\0 %!b";
        assert_eq!(percent_decode_beginning(&percent_encode(raw)), raw);
        assert_eq!(percent_decode_beginning(b"a%25b%2"), b"a%b");
        assert_eq!(percent_decode_beginning(b"%zz"), b"");
    }

    #[test]
    fn reserved_names_are_refused() {
        let root = KeyPrefix::root(b"");
        assert_eq!(root.child_key(b"%+abc"), Err(BadName::Reserved));
        assert_eq!(root.child_dir(b"%+abc"), Err(BadName::Reserved));
        assert_eq!(root.child_dir(b"%=abc"), Err(BadName::Reserved));
        assert_eq!(root.child_key(&colliding(b"a")).unwrap(), ObjectKey::try_from("a").unwrap());
    }

    proptest::proptest! {
        #[test]
        fn every_key_has_one_path_and_comes_back(key in proptest::collection::vec(proptest::sample::select(b"a./%!=+\0xy".to_vec()), 1..600)) {
            round_trip(&key);
        }

        #[test]
        fn two_keys_never_share_a_path(a in proptest::collection::vec(proptest::sample::select(b"./%!=+0025a".to_vec()), 1..8), b in proptest::collection::vec(proptest::sample::select(b"./%!=+0025a".to_vec()), 1..8)) {
            proptest::prop_assert_eq!(round_trip(&a) == round_trip(&b), a == b);
        }
    }
}
