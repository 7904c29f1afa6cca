//! Fuzz targets, run by the crate `fuzz`: no input causes a panic, and a decoded value survives encoding and decoding.

use crate::ObjectKey;
use crate::names::{Entry, KeyPrefix, key_to_path};

/// Checks that keys survive the mapping to paths, and arbitrary file names the mapping to keys.
pub fn names(bytes: &[u8]) {
    if let Ok(key) = ObjectKey::try_from(bytes) {
        check_round_trip(&key);
    }
    let mut at = KeyPrefix::root(b"");
    for name in bytes.split(|byte| *byte == b'/').filter(|name| is_name(name)) {
        if let Ok(key) = at.child_key(name) {
            check_round_trip(&key);
        }
        let Ok(inside) = at.child_dir(name) else { return };
        at = inside;
    }
}

/// Checks that a key's path maps back to the key, and that each name in the path is a valid file name.
fn check_round_trip(key: &ObjectKey) {
    let path = key_to_path(key);
    let (last, above) = path.split_last().unwrap_or_else(|| unreachable!("a path has a last name"));
    let mut at = KeyPrefix::root(b"");
    for name in above {
        assert!(is_name(name), "{name:?} of {key:?}");
        at = at.child_dir(name).unwrap_or_else(|error| panic!("{name:?} of {key:?}: {error:?}"));
    }
    let found = match last.as_slice() {
        b"" => at.marker_key(),
        name => {
            assert!(is_name(name), "{name:?} of {key:?}");
            assert_eq!(at.entry(key.as_bytes()), Some(Entry::Object(name.to_vec())));
            at.child_key(name).ok()
        }
    };
    assert_eq!(found.as_ref(), Some(key));
}

fn is_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len())
        && !name.contains(&b'/')
        && !name.contains(&0)
        && name != b"."
        && name != b".."
}
