//! Targets of the crate `fuzz`: whatever the bytes are, nothing panics, and what was read is written as the same again.

pub use crate::dir::fuzz::file_record;
pub use crate::mover::fuzz::mover_journal;
pub use crate::s3::fuzz::{answers, credentials, headers};
pub use crate::writeback::fuzz::write_back_log;

use crate::ObjectKey;
use crate::names::{Entry, KeyPrefix, key_to_path};

/// Keys as paths, and names that a program makes up as keys.
pub fn names(bytes: &[u8]) {
    if let Ok(key) = ObjectKey::try_from(bytes) {
        comes_back(&key);
    }
    let mut at = KeyPrefix::root(b"");
    for name in bytes.split(|byte| *byte == b'/').filter(|name| is_name(name)) {
        if let Ok(key) = at.child_key(name) {
            comes_back(&key);
        }
        let Ok(inside) = at.child_dir(name) else { return };
        at = inside;
    }
}

/// The path of a key leads to it, and each of its names is one that a directory can hold.
fn comes_back(key: &ObjectKey) {
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
