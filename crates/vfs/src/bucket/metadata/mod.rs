//! Object metadata, and its mapping to extended attributes of files.
//!
//! User metadata is `user.<name>`, a tag is `user.tag.<key>`. Attributes that S3 cannot hold in a header of their own, because
//! the value is no text or the name has capitals, go into the header `xattr` in the format of s3fs. Attributes that exceed the
//! limits of S3 stay on this machine, and so do attributes of other name spaces. Headers for POSIX attributes, in any dialect,
//! are not shown as extended attributes.
//!
//! In a volume named by path the object holds these attributes. This machine keeps only changes that are not stored yet
//! (`pending`), and a cache of what objects have (`cache`). In a volume named by inode the metadata engine holds them.

pub(crate) mod cache;
mod content_type;
pub(crate) mod object_metadata;
mod pending;
mod s3fs;

pub(crate) use cache::MetadataCache;
pub(crate) use content_type::{Renamed, content_type};
pub(crate) use pending::PendingLock;

use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Attributes, Tags};

use crate::bucket::headers;

/// Prefix of the extended attributes that belong to the object.
pub(crate) const USER: &[u8] = b"user.";
/// Prefix of the extended attributes that are tags of the object.
pub(crate) const TAG: &[u8] = b"user.tag.";
/// The object's `Content-Type` among the pending changes. Programs do not see it as an extended attribute.
pub(crate) const CONTENT_TYPE: &[u8] = b"tenon.content-type";
/// Maximum size of user metadata in S3, names and values together.
pub(crate) const USER_BYTES_MAX: usize = 2048;
/// Maximum number of tags in S3 (S3 User Guide, "Object tagging").
const TAGS_MAX: usize = 10;
/// Maximum length of a tag's key and of its value, in characters (S3 User Guide, "Object tagging").
const TAG_CHARS_MAX: (usize, usize) = (128, 256);
/// The prefix of user metadata headers on the wire. MinIO counts it towards the limit.
const PREFIX_BYTES: usize = "x-amz-meta-".len();

/// Metadata that is stored together with an object's bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Described {
    pub(crate) attributes: Attributes,
    pub(crate) tags: Tags,
}

impl From<Attributes> for Described {
    fn from(attributes: Attributes) -> Self {
        Self { attributes, tags: Tags::new() }
    }
}

/// Changes of extended attributes by name; `None` removes the attribute. If an object has too little space for all, the
/// names that sort first get it.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Bytes>>;

impl Described {
    /// Returns this metadata with `changes` applied, as far as an object can hold them.
    pub(crate) fn with(mut self, changes: &Changes) -> Self {
        if let Some(Some(value)) = changes.get(CONTENT_TYPE) {
            self.attributes.content_type = text(value).map(str::to_owned);
        }
        let user = &mut self.attributes.user;
        let mut packed = s3fs::unpack(user.get(s3fs::HEADER));
        let before = packed.clone();
        for name in changes.keys() {
            if let Some(tag) = name.strip_prefix(TAG).and_then(text) {
                self.tags.remove(tag);
            }
            if let Some(plain) =
                name.strip_prefix(USER).and_then(text).filter(|name| !has_other_meaning(name))
            {
                user.remove(plain);
            }
            if let Some(packed) = &mut packed {
                packed.remove(name);
            }
        }
        for (name, value) in changes.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            if let Some((tag, value)) =
                tag_of(name, value).filter(|(tag, value)| is_tag(tag) && is_tag(value))
            {
                if self.tags.len() < TAGS_MAX {
                    self.tags.insert(tag.to_owned(), value.to_owned());
                }
            } else if let Some((name, value)) = user_of(name, value) {
                if has_room(user, name, value) {
                    user.insert(name.to_owned(), value.to_owned());
                }
            } else if let (Some(packed), true) = (&mut packed, is_packable(name)) {
                packed.insert(name.clone(), value.clone());
                if !has_room(user, s3fs::HEADER, &s3fs::pack(packed)) {
                    packed.remove(name);
                }
            }
        }
        match packed.filter(|packed| before.as_ref() != Some(packed)) {
            Some(packed) if packed.is_empty() => drop(user.remove(s3fs::HEADER)),
            Some(packed) => drop(user.insert(s3fs::HEADER.to_owned(), s3fs::pack(&packed))),
            None => {}
        }
        self
    }

    /// Returns this metadata as extended attributes.
    pub(crate) fn xattrs(&self) -> BTreeMap<Vec<u8>, Bytes> {
        let mut found = xattrs_of(&self.attributes);
        for (tag, value) in &self.tags {
            let name = [TAG, tag.as_bytes()].concat();
            if tag_of(&name, value.as_bytes()).is_some() {
                found.insert(name, Bytes::copy_from_slice(value.as_bytes()));
            }
        }
        found
    }
}

/// Returns the extended attributes in an object's headers.
pub(crate) fn xattrs_of(attributes: &Attributes) -> BTreeMap<Vec<u8>, Bytes> {
    let mut found = s3fs::unpack(attributes.user.get(s3fs::HEADER)).unwrap_or_default();
    found.retain(|name, _| is_packable(name));
    for (name, value) in &attributes.user {
        let name = [USER, name.as_bytes()].concat();
        if user_of(&name, value.as_bytes()).is_some() {
            found.insert(name, Bytes::copy_from_slice(value.as_bytes()));
        }
    }
    found
}

/// Returns whether an extended attribute of this name belongs to the object, in volumes where objects hold them.
pub(crate) fn is_of_object(name: &[u8]) -> bool {
    name.starts_with(USER)
}

/// Returns the user metadata for an extended attribute; `None` if an object cannot hold it as such.
pub(crate) fn user_of<'x>(name: &'x [u8], value: &'x [u8]) -> Option<(&'x str, &'x str)> {
    let is_token =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_short = name.len() <= meta::namespace::XATTR_NAME_BYTES_MAX && value.len() <= USER_BYTES_MAX;
    let user = name.strip_prefix(USER).filter(|user| !user.is_empty() && user.iter().all(is_token))?;
    let user = std::str::from_utf8(user).ok().filter(|_| is_short && !name.starts_with(TAG))?;
    text(value).filter(|value| !has_other_meaning(user) && value.trim() == *value).map(|value| (user, value))
}

/// Returns whether an extended attribute may go into the shared header `xattr`.
fn is_packable(name: &[u8]) -> bool {
    name.starts_with(USER) && !name.starts_with(TAG) && std::str::from_utf8(name).is_ok()
}

/// Returns whether user metadata of this name has another meaning, so that it is no extended attribute.
fn has_other_meaning(name: &str) -> bool {
    headers::is_posix(name) || name == s3fs::HEADER || headers::describes_content(name)
}

/// Returns the tag for an extended attribute; `None` if it cannot be a tag.
pub(crate) fn tag_of<'x>(name: &'x [u8], value: &'x [u8]) -> Option<(&'x str, &'x str)> {
    let is_short = name.len() <= meta::namespace::XATTR_NAME_BYTES_MAX;
    let (tag, value) = (text(name.strip_prefix(TAG)?)?, text(value)?);
    let (tag_max, value_max) = TAG_CHARS_MAX;
    let fits = (1..=tag_max).contains(&tag.chars().count()) && value.chars().count() <= value_max;
    (is_short && fits).then_some((tag, value))
}

/// Returns whether S3 allows a text in a tag (S3 User Guide, "Object tagging").
fn is_tag(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "+-=._:/@".contains(c))
        && !text.starts_with("aws:")
}

/// Returns bytes as text; `None` if they are not UTF-8 or contain a control character.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Returns whether user metadata has space for a pair, which replaces the present one of that name.
fn has_room(user: &BTreeMap<String, String>, name: &str, value: &str) -> bool {
    let others = user.iter().filter(|(other, _)| *other != name);
    let taken: usize = others.map(|(name, value)| wire_bytes(name, value)).sum();
    taken + wire_bytes(name, value) <= USER_BYTES_MAX
}

/// Returns whether user metadata is within the limit of S3.
pub(crate) fn fits(user: &BTreeMap<String, String>) -> bool {
    user.iter().map(|(name, value)| wire_bytes(name, value)).sum::<usize>() <= USER_BYTES_MAX
}

/// Returns the size in bytes that S3 servers count at most for a pair. Values that are not ASCII are sent in base64, as
/// one RFC 2047 word.
fn wire_bytes(name: &str, value: &str) -> usize {
    const WORD_BYTES: usize = "=?UTF-8?B??=".len();
    let is_plain = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    let value_bytes = if is_plain { value.len() } else { value.len().div_ceil(3) * 4 + WORD_BYTES };
    PREFIX_BYTES + name.len() + value_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str, value: &[u8]) -> bool {
        user_of(&[USER, name.as_bytes()].concat(), value).is_some()
    }

    fn set(pairs: &[(&str, &[u8])]) -> Changes {
        let pair =
            |(name, value): &(&str, &[u8])| (name.as_bytes().to_vec(), Some(Bytes::copy_from_slice(value)));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn unrepresentable_attributes_are_no_user_metadata() {
        assert!(user("project", b"apollo") && user("who", "größe ☃".as_bytes()));
        assert!(!user("Project", b"x") && !user("a b", b"x") && !user("", b"x"));
        assert!(!user("a", b"two\nlines") && !user("a", b"\xff") && !user("a", b" x"));
        assert!(!user("mtime", b"1") && !user("tenon-sum", b"1") && !user("tag.x", b"1"));
    }

    #[test]
    fn changes_are_stored_where_they_fit_and_read_back() {
        let all: &[(&str, &[u8])] = &[
            ("user.project", b"apollo"),
            ("user.tag.stage", b"raw"),
            ("user.Capital", b"x"),
            ("user.binary", b"\xff\x00\n"),
            ("user.mtime", b"7"),
            ("user.tag.odd\tone", b"y"),
        ];
        let described = Described::default().with(&set(all));
        assert_eq!(described.attributes.user["project"], "apollo");
        assert_eq!(described.tags["stage"], "raw");
        assert_eq!(described.attributes.user.len(), 2, "{described:?}");
        let found = described.xattrs();
        for (name, value) in &all[..5] {
            assert_eq!(found.get(name.as_bytes()).map(|found| &found[..]), Some(*value), "{name}");
        }
        assert_eq!(
            described.clone().with(&set(all)),
            described,
            "applying the same changes again has no effect"
        );
        let gone = all.iter().map(|(name, _)| (name.as_bytes().to_vec(), None)).collect();
        assert_eq!(described.with(&gone), Described::default());
    }

    #[test]
    fn attributes_beyond_the_limits_of_s3_are_left_out() {
        let long = [b'x'; 1500];
        let described =
            Described::default().with(&set(&[("user.a", &long), ("user.b", &long), ("user.c", b"y")]));
        let names: Vec<_> = described.attributes.user.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "c"]);
        let eleven: Changes =
            (0..11).map(|n| (format!("user.tag.{n:02}").into_bytes(), Some(Bytes::new()))).collect();
        assert_eq!(Described::default().with(&eleven).tags.len(), TAGS_MAX);
    }

    #[test]
    fn a_header_named_xattr_in_another_format_is_kept() {
        let theirs =
            Attributes { user: [("xattr".to_owned(), "mine".to_owned())].into(), ..Attributes::default() };
        let described = Described::from(theirs).with(&set(&[("user.binary", b"\xff")]));
        assert_eq!(described.attributes.user["xattr"], "mine");
        assert!(described.xattrs().is_empty());
    }
}
