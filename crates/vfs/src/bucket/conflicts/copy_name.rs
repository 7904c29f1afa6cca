//! The name of the additional file that keeps the losing side of a conflict in the same directory (the conflict copy).

use store::names::NAME_BYTES_MAX;
use store::{InvalidKey, ObjectKey, Timestamp};

/// Maximum length of an extension with its dot. A longer part after the last dot belongs to the stem.
const EXTENSION_BYTES_MAX: usize = 16;

/// Returns the key of the additional file, in the same directory as `key`. Fails if it would be too long.
pub(super) fn conflict_copy_key(
    key: &ObjectKey,
    at: Timestamp,
    unique: u64,
) -> Result<ObjectKey, InvalidKey> {
    let key = key.as_bytes();
    let (dir, name) = key.split_at(key.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
    ObjectKey::new([dir, &conflict_copy_name(name, at, unique)].concat())
}

/// Returns the name of the additional file: `report.odt` becomes `report.conflict-20260131-235959-1a2b3c4d.odt`, with the time
/// of the conflict (UTC) and eight random hexadecimal digits. A stem that is too long is cut.
fn conflict_copy_name(name: &[u8], at: Timestamp, unique: u64) -> Vec<u8> {
    let (stem, extension) = split(name);
    let mark = format!(".conflict-{}-{:08x}", date(at), unique as u32);
    let room = NAME_BYTES_MAX - mark.len() - extension.len();
    [&stem[..cut(stem, room)], mark.as_bytes(), extension].concat()
}

/// Splits a name at the last dot, unless that is the first or last byte or the rest is too long for an extension.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let dot = dot.filter(|at| *at > 0 && (2..=EXTENSION_BYTES_MAX).contains(&(name.len() - at)));
    name.split_at(dot.unwrap_or(name.len()))
}

/// Returns the length to which to cut a stem: at most `room` bytes, and between characters if the stem is UTF-8.
fn cut(stem: &[u8], room: usize) -> usize {
    let is_inside = |at: &usize| stem.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    match std::str::from_utf8(stem) {
        _ if stem.len() <= room => stem.len(),
        Ok(_) => (0..=room).rev().find(|at| !is_inside(at)).unwrap_or(room),
        Err(_) => room,
    }
}

/// Formats a time for the name of a copy, in UTC.
fn date(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_second(at.secs()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y%m%d-%H%M%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> String {
        String::from_utf8(conflict_copy_name(
            name.as_bytes(),
            Timestamp::from_secs(1_769_903_999, 0),
            0x9_1a2b_3c4d,
        ))
        .unwrap()
    }

    #[test]
    fn the_extension_stays_last() {
        assert_eq!(of("report.odt"), "report.conflict-20260131-235959-1a2b3c4d.odt");
        assert_eq!(of("a.tar.gz"), "a.tar.conflict-20260131-235959-1a2b3c4d.gz");
        for plain in ["Makefile", ".bashrc", "ends.", "what. a sentence that ends"] {
            assert_eq!(of(plain), format!("{plain}.conflict-20260131-235959-1a2b3c4d"));
        }
    }

    #[test]
    fn the_copy_is_in_the_same_directory() {
        let key = |text: &str| ObjectKey::try_from(text).unwrap();
        let there = conflict_copy_key(&key("a.b/c"), Timestamp(0), 1).unwrap();
        assert_eq!(there, key("a.b/c.conflict-19700101-000000-00000001"));
        assert!(conflict_copy_key(&key(&format!("{}/c", "a/".repeat(510))), Timestamp(0), 1).is_err());
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = of(&format!("{}.txt", "ä".repeat(125)));
        assert!(
            name.len() <= NAME_BYTES_MAX && name.ends_with("ä.conflict-20260131-235959-1a2b3c4d.txt"),
            "{name}"
        );
    }
}
