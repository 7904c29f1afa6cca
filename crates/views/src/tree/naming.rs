//! What objects are called in a view, and in which of its directories they say they lie.

use crate::{ObjectName, Shown};
use std::sync::Arc;
use store::names::{NAME_BYTES_MAX, key_to_path};
use xxhash_rust::xxh3::Xxh3Default;

/// The property in which an object says in which directory of its views it lies: names with `/` between them, what is no
/// printable ASCII, and `%`, in percent form.
pub const DIRECTORY_PROPERTY: &str = "tenon-directory";

/// More than this behind the last `.` is no extension.
const EXTENSION_BYTES_MAX: usize = 16;
/// Digits of the hash in a longer name: enough for thousands of namesakes, and then all of them.
const DIGITS: [usize; 2] = [8, 16];

/// A name in a directory. Cloning is cheap.
pub type EntryName = Arc<[u8]>;

/// What an object is called where nothing else is called so: the last component of its key. `None` for the marker of a
/// directory, which is no file.
pub(crate) fn plain(name: &ObjectName) -> Option<EntryName> {
    let last = key_to_path(&name.key).pop().filter(|last| !last.is_empty())?;
    Some(last.into())
}

/// What an object is called where something else has its name: the first of these that is free. An object always has the same.
pub(crate) fn longer(object: &ObjectName, plain: &[u8]) -> impl Iterator<Item = EntryName> {
    let hash = format!("{:016x}", hash(object));
    let hashed = DIGITS.map(|digits| format!("~{}", &hash[..digits]));
    let numbered = (2_u64..).map(move |number| format!("~{hash}-{number}"));
    hashed.into_iter().chain(numbered).map(|tag| tagged(plain, &tag))
}

/// The name that was made longer, if it is one.
pub(crate) fn shortened(name: &[u8]) -> Option<Vec<u8>> {
    let (stem, extension) = split(name);
    let at = stem.iter().rposition(|&byte| byte == b'~')?;
    let is_tag = DIGITS.contains(&(stem.len() - at - 1)) && stem[at + 1..].iter().all(u8::is_ascii_hexdigit);
    is_tag.then(|| [&stem[..at], extension].concat())
}

fn hash(object: &ObjectName) -> u64 {
    let mut hash = Xxh3Default::new();
    hash.update(object.container.as_bytes());
    hash.update(&[0]);
    hash.update(object.key.as_bytes());
    hash.digest()
}

fn tagged(plain: &[u8], tag: &str) -> EntryName {
    let (stem, extension) = split(plain);
    let room = NAME_BYTES_MAX - tag.len() - extension.len();
    [cut(stem, room), tag.as_bytes(), extension].concat().into()
}

/// A name before and from its last `.`.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let dot = name.iter().rposition(|&byte| byte == b'.');
    match dot.filter(|&at| at > 0 && name.len() - at <= EXTENSION_BYTES_MAX) {
        Some(at) => name.split_at(at),
        None => (name, b""),
    }
}

/// The beginning, without half a character.
fn cut(name: &[u8], len: usize) -> &[u8] {
    let mut len = len.min(name.len());
    while len < name.len() && len > 0 && name[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    &name[..len]
}

/// In which directory an object says it lies. What is no path is the top.
pub(crate) fn directory_of(shown: &Shown) -> Vec<EntryName> {
    let said = shown.properties.as_ref().and_then(|properties| properties.get(DIRECTORY_PROPERTY));
    said.and_then(|said| read_directory(said)).unwrap_or_default()
}

fn read_directory(said: &str) -> Option<Vec<EntryName>> {
    let decoded = said.split('/').filter(|name| !name.is_empty()).map(|name| {
        let name: Vec<u8> = percent_encoding::percent_decode_str(name).collect();
        is_name(&name).then(|| name.into())
    });
    decoded.collect()
}

/// Whether a directory can have an entry of this name.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= NAME_BYTES_MAX
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// A directory as an object says it; `None` for the top, of which it says nothing.
pub(crate) fn written_directory(path: &[impl AsRef<[u8]>]) -> Option<String> {
    let names: Vec<String> = path.iter().map(|name| encoded(name.as_ref())).collect();
    (!names.is_empty()).then(|| names.join("/"))
}

fn encoded(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => out.push_str("%25"),
            b'!'..=b'~' | b' ' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    // A header's value has no space at its ends.
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
    use store::ObjectKey;

    fn object(key: &str) -> ObjectName {
        ObjectName { container: "bucket".into(), key: ObjectKey::try_from(key).unwrap() }
    }

    #[test]
    fn names_are_last_components_and_those_of_namesakes_are_longer() {
        let name = object("a/b/reads.fq");
        let plain_name = plain(&name).unwrap();
        assert_eq!(&*plain_name, b"reads.fq");
        let longer: Vec<_> = longer(&name, &plain_name).take(3).collect();
        let text: Vec<_> = longer.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        assert!(text[0].starts_with("reads~") && text[0].ends_with(".fq") && text[0].len() == 17, "{text:?}");
        assert!(text[1].starts_with(&text[0][..14]) && text[1].len() == 25, "{text:?}");
        assert!(text[2].ends_with("-2.fq"), "{text:?}");
        assert_eq!(shortened(&longer[0]).unwrap(), b"reads.fq");
        assert_eq!(shortened(&longer[1]).unwrap(), b"reads.fq");
        for plain in ["reads.fq", "reads~12.fq", "reads~1234567g.fq", "~"] {
            assert_eq!(shortened(plain.as_bytes()), None);
        }
        assert_eq!(plain(&object("a/b/")), None);
        assert_eq!(&*plain(&object("a/..")).unwrap(), b"%!..");
    }

    #[test]
    fn longer_names_fit_a_directory() {
        for (key, end) in [("ü".repeat(127), ""), (format!("{}.fastq", "x".repeat(249)), ".fastq")] {
            let name = object(&key);
            for long in longer(&name, key.as_bytes()).take(3) {
                assert!(long.len() <= NAME_BYTES_MAX, "{}", long.len());
                assert!(std::str::from_utf8(&long).unwrap().ends_with(end));
            }
        }
    }

    #[test]
    fn directories_are_written_so_that_headers_can_say_them() {
        let path: Vec<&[u8]> = vec![b"usr", b" 100% ", "ü".as_bytes(), b"a\nb"];
        let written = written_directory(&path).unwrap();
        assert_eq!(written, "usr/%20100%25%20/%C3%BC/a%0Ab");
        let read: Vec<Vec<u8>> = read_directory(&written).unwrap().iter().map(|name| name.to_vec()).collect();
        assert_eq!(read, path);
        assert_eq!(read_directory("/a//b/").unwrap().len(), 2);
        assert_eq!(read_directory("a/../b"), None);
        assert_eq!(read_directory("a%2Fb"), None);
        assert_eq!(written_directory(&[] as &[&[u8]]), None);
    }
}
