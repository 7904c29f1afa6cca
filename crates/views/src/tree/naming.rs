//! Names of objects in a view, and the directory that their property names.

use crate::PackedObject;
use std::sync::Arc;
use store::ObjectKey;
use store::names::{NAME_BYTES_MAX, key_to_path};
use xxhash_rust::xxh3::Xxh3Default;

/// The property in which an object names the directory of its views that it lies in: components with `/` between
/// them, in which bytes other than printable ASCII, and `%`, are percent-encoded.
pub const DIRECTORY_PROPERTY: &str = "tenon-directory";

/// Maximum length of an extension, with its `.`; longer ones are part of the stem.
const EXTENSION_BYTES_MAX: usize = 16;
/// Numbers of hash digits in a longer name: enough for thousands of namesakes, then the whole hash.
const TAG_DIGITS: [usize; 2] = [8, 16];

/// A name in a directory. Cloning is cheap.
pub type EntryName = Arc<[u8]>;

/// Returns the plain name of an object, the last component of its key. `None` for the marker of a directory, which is
/// not a file, and for an invalid key.
pub(crate) fn plain_name(key: &[u8]) -> Option<EntryName> {
    let key = ObjectKey::try_from(key).ok()?;
    let last = key_to_path(&key).pop().filter(|last| !last.is_empty())?;
    Some(last.into())
}

/// Returns the names of an object whose plain name is taken, in the order in which they are tried. They depend only
/// on the object.
pub(crate) fn longer_names((container, key): (&str, &[u8]), plain: &[u8]) -> impl Iterator<Item = EntryName> {
    let hash = format!("{:016x}", hash(container, key));
    let hashed = TAG_DIGITS.map(|digits| format!("~{}", &hash[..digits]));
    let numbered = (2_u64..).map(move |number| format!("~{hash}-{number}"));
    hashed.into_iter().chain(numbered).map(|tag| with_tag(plain, &tag))
}

/// Returns the plain name of which `name` is a longer name with a part of the hash or all of it; `None` if it does not
/// have that form. The plain name may have been truncated.
pub(crate) fn plain_name_of_longer(name: &[u8]) -> Option<Vec<u8>> {
    let (stem, extension) = split_extension(name);
    let at = stem.iter().rposition(|&byte| byte == b'~')?;
    let is_tag =
        TAG_DIGITS.contains(&(stem.len() - at - 1)) && stem[at + 1..].iter().all(u8::is_ascii_hexdigit);
    is_tag.then(|| [&stem[..at], extension].concat())
}

/// Returns the hash of an object's bucket and key, from which longer names are made.
pub(crate) fn hash(container: &str, key: &[u8]) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(container.as_bytes());
    hash.update(&[0]);
    hash.update(key);
    hash.digest()
}

/// Inserts a tag before the extension of a name, and truncates the name before the tag if the result would be too long.
fn with_tag(plain: &[u8], tag: &str) -> EntryName {
    let (stem, extension) = split_extension(plain);
    let room = NAME_BYTES_MAX - tag.len() - extension.len();
    [truncate(stem, room), tag.as_bytes(), extension].concat().into()
}

/// Splits a name into the stem and the extension with its `.`, which is empty if there is none.
fn split_extension(name: &[u8]) -> (&[u8], &[u8]) {
    let dot = name.iter().rposition(|&byte| byte == b'.');
    match dot.filter(|&at| at > 0 && name.len() - at <= EXTENSION_BYTES_MAX) {
        Some(at) => name.split_at(at),
        None => (name, b""),
    }
}

/// Returns at most `len` bytes of a name, without a partial UTF-8 character.
fn truncate(name: &[u8], len: usize) -> &[u8] {
    let mut len = len.min(name.len());
    while len < name.len() && len > 0 && name[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    &name[..len]
}

/// Returns the directory that an object names; the top directory if it names none or an invalid one.
pub(crate) fn directory_of(object: &PackedObject) -> Vec<EntryName> {
    object.property(DIRECTORY_PROPERTY).and_then(decode_directory).unwrap_or_default()
}

/// Returns the path that the property names; `None` if a name in it is invalid.
fn decode_directory(property: &str) -> Option<Vec<EntryName>> {
    let decoded = property.split('/').filter(|name| !name.is_empty()).map(|name| {
        let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
        is_valid_name(&name).then(|| name.into())
    });
    decoded.collect()
}

/// Returns whether a directory can have an entry of this name.
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Returns the value of the property for a directory; `None` for the top directory, for which there is no property.
pub(crate) fn encode_directory(path: &[impl AsRef<[u8]>]) -> Option<String> {
    let names: Vec<String> = path.iter().map(|name| encode_component(name.as_ref())).collect();
    (!names.is_empty()).then(|| names.join("/"))
}

fn encode_component(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => out.push_str("%25"),
            b'!'..=b'~' | b' ' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    // The value of a header cannot begin or end with a space.
    if let Some(rest) = out.strip_prefix(' ') {
        out = format!("%20{rest}");
    }
    match out.strip_suffix(' ') {
        Some(rest) => format!("{rest}%20"),
        None => out,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longer(key: &str, plain: &[u8]) -> Vec<EntryName> {
        longer_names(("bucket", key.as_bytes()), plain).take(3).collect()
    }

    #[test]
    fn names_are_last_components_and_namesakes_get_longer_ones() {
        let reads = plain_name(b"a/b/reads.fq").unwrap();
        assert_eq!(&*reads, b"reads.fq");
        let longer = longer("a/b/reads.fq", &reads);
        let text: Vec<_> = longer.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        assert!(text[0].starts_with("reads~") && text[0].ends_with(".fq") && text[0].len() == 17, "{text:?}");
        assert!(text[1].starts_with(&text[0][..14]) && text[1].len() == 25, "{text:?}");
        assert!(text[2].ends_with("-2.fq"), "{text:?}");
        assert_eq!(plain_name_of_longer(&longer[0]).unwrap(), b"reads.fq");
        assert_eq!(plain_name_of_longer(&longer[1]).unwrap(), b"reads.fq");
        for plain in ["reads.fq", "reads~12.fq", "reads~1234567g.fq", "~"] {
            assert_eq!(plain_name_of_longer(plain.as_bytes()), None);
        }
        assert_eq!(plain_name(b"a/b/"), None);
        assert_eq!(&*plain_name(b"a/..").unwrap(), b"%!..");
    }

    #[test]
    fn longer_names_fit_a_directory() {
        for (key, end) in [("ü".repeat(127), ""), (format!("{}.fastq", "x".repeat(249)), ".fastq")] {
            for long in longer(&key, key.as_bytes()) {
                assert!(long.len() <= NAME_BYTES_MAX, "{}", long.len());
                assert!(std::str::from_utf8(&long).unwrap().ends_with(end));
            }
        }
    }

    #[test]
    fn directories_are_encoded_for_headers() {
        let path: Vec<&[u8]> = vec![b"usr", b" 100% ", "ü".as_bytes(), b"a\nb"];
        let written = encode_directory(&path).unwrap();
        assert_eq!(written, "usr/%20100%25%20/%C3%BC/a%0Ab");
        let read: Vec<Vec<u8>> =
            decode_directory(&written).unwrap().iter().map(|name| name.to_vec()).collect();
        assert_eq!(read, path);
        assert_eq!(decode_directory("/a//b/").unwrap().len(), 2);
        assert_eq!(decode_directory("a/../b"), None);
        assert_eq!(decode_directory("a%2Fb"), None);
        assert_eq!(encode_directory(&[] as &[&[u8]]), None);
    }
}
