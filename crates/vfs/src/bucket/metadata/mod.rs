//! What an object has beside its bytes, and which extended attributes of its file that is.
//!
//! User metadata is `user.<name>`, a tag `user.tag.<key>`. What S3 cannot hold in a header of its own, a value that is no
//! text or a name with capitals, goes into the header `xattr` as s3fs has it; what is too much for S3 stays on this
//! machine, and so do attributes of other name spaces. POSIX attributes, in any dialect, are none of these.
//!
//! In a volume named by path the object has them. This machine keeps only what waits to be stored with it (`waiting`), and
//! for a while what it was told (`known`). In a volume named by inode the metadata engine has them (`objects`).

mod cache;
mod content_type;
mod pending;
mod s3fs;

pub(crate) use cache::MetadataCache;
pub(crate) use content_type::{Renamed, content_type};
pub(crate) use pending::PendingLock;

use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Attributes, Tags};

use crate::bucket::headers;

pub(crate) const USER: &[u8] = b"user.";
pub(crate) const TAG: &[u8] = b"user.tag.";
/// The object's `Content-Type`, among what waits. It is no extended attribute that programs see.
pub(crate) const CONTENT_TYPE: &[u8] = b"tenon.content-type";
/// S3 allows so much user metadata, names and values together.
pub(crate) const USER_BYTES_MAX: usize = 2048;
/// S3 allows so many tags (S3 User Guide, "Object tagging").
const TAGS_MAX: usize = 10;
/// The longest value of a tag, and the longest key, in characters (as above).
const TAG_CHARS_MAX: (usize, usize) = (128, 256);
/// What the names of user metadata begin with on the wire; MinIO counts it as well.
const PREFIX_BYTES: usize = "x-amz-meta-".len();

/// What is stored together with an object's bytes.
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

/// Changes of extended attributes by name, in the order in which they find room; `None`: it goes.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Bytes>>;

impl Described {
    /// The same with changes, as far as an object can hold them.
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

    /// The extended attributes that these are.
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

/// The extended attributes that an object's headers say.
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

/// Whether an extended attribute is one of the object's, where the object has them.
pub(crate) fn is_of_object(name: &[u8]) -> bool {
    name.starts_with(USER)
}

/// The user metadata that an extended attribute is, if it can be that of an object.
pub(crate) fn user_of<'x>(name: &'x [u8], value: &'x [u8]) -> Option<(&'x str, &'x str)> {
    let is_token =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_short = name.len() <= meta::namespace::XATTR_NAME_BYTES_MAX && value.len() <= USER_BYTES_MAX;
    let user = name.strip_prefix(USER).filter(|user| !user.is_empty() && user.iter().all(is_token))?;
    let user = std::str::from_utf8(user).ok().filter(|_| is_short && !name.starts_with(TAG))?;
    text(value).filter(|value| !has_other_meaning(user) && value.trim() == *value).map(|value| (user, value))
}

/// Whether an extended attribute may go into the header that holds several.
fn is_packable(name: &[u8]) -> bool {
    name.starts_with(USER) && !name.starts_with(TAG) && std::str::from_utf8(name).is_ok()
}

/// Whether user metadata of this name says something else.
fn has_other_meaning(name: &str) -> bool {
    headers::is_posix(name) || name == s3fs::HEADER || headers::describes_content(name)
}

/// The tag that an extended attribute is, if it can be one.
pub(crate) fn tag_of<'x>(name: &'x [u8], value: &'x [u8]) -> Option<(&'x str, &'x str)> {
    let is_short = name.len() <= meta::namespace::XATTR_NAME_BYTES_MAX;
    let (tag, value) = (text(name.strip_prefix(TAG)?)?, text(value)?);
    let (tag_max, value_max) = TAG_CHARS_MAX;
    let fits = (1..=tag_max).contains(&tag.chars().count()) && value.chars().count() <= value_max;
    (is_short && fits).then_some((tag, value))
}

/// Whether S3 allows a text in a tag (S3 User Guide, "Object tagging").
fn is_tag(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == ' ' || "+-=._:/@".contains(c))
        && !text.starts_with("aws:")
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}

/// Whether user metadata has room for a pair in place of what it has under the name.
fn has_room(user: &BTreeMap<String, String>, name: &str, value: &str) -> bool {
    let others = user.iter().filter(|(other, _)| *other != name);
    let taken: usize = others.map(|(name, value)| wire_bytes(name, value)).sum();
    taken + wire_bytes(name, value) <= USER_BYTES_MAX
}

/// Whether user metadata is not too much for S3.
pub(crate) fn fits(user: &BTreeMap<String, String>) -> bool {
    user.iter().map(|(name, value)| wire_bytes(name, value)).sum::<usize>() <= USER_BYTES_MAX
}

/// What a pair counts, in bytes. What is not ASCII travels in base64, as one RFC 2047 word.
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
    fn what_cannot_be_a_header_is_none() {
        assert!(user("project", b"apollo") && user("who", "größe ☃".as_bytes()));
        assert!(!user("Project", b"x") && !user("a b", b"x") && !user("", b"x"));
        assert!(!user("a", b"two\nlines") && !user("a", b"\xff") && !user("a", b" x"));
        assert!(!user("mtime", b"1") && !user("tenon-sum", b"1") && !user("tag.x", b"1"));
    }

    #[test]
    fn changes_go_where_they_can_and_come_back_as_they_were() {
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
        assert_eq!(described.clone().with(&set(all)), described, "once more changes nothing");
        let gone = all.iter().map(|(name, _)| (name.as_bytes().to_vec(), None)).collect();
        assert_eq!(described.with(&gone), Described::default());
    }

    #[test]
    fn what_is_too_much_for_s3_is_left_out() {
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
    fn a_header_called_xattr_that_is_not_of_s3fs_stays() {
        let theirs =
            Attributes { user: [("xattr".to_owned(), "mine".to_owned())].into(), ..Attributes::default() };
        let described = Described::from(theirs).with(&set(&[("user.binary", b"\xff")]));
        assert_eq!(described.attributes.user["xattr"], "mine");
        assert!(described.xattrs().is_empty());
    }
}
