//! Where a key's file is.

use crate::ObjectKey;
use crate::names::{self, NAME_BYTES_MAX, key_to_path};

/// Our own directory in the root; the names of no key lead into it.
pub(super) const OWN_DIR: &[u8] = b".tenon-store";

/// The directory of keys that begin with the name of our own: `names` gives out no such name.
pub(super) const OWN_DIR_AS_KEY: &[u8] = b"%+.tenon-store";

/// The file that stands for a key ending in `/`, inside its directory: the escape of an empty name.
pub(super) const MARKER: &[u8] = b"%!";

/// The file of an object beside a directory whose name leaves no room for the mark: inside that directory.
pub(super) const BESIDE_INSIDE: &[u8] = b"%=";

/// A file's directories from the root, and its plain name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) dirs: Vec<Vec<u8>>,
    pub(super) name: Vec<u8>,
}

impl Place {
    pub(super) fn of(key: &ObjectKey) -> Self {
        let mut dirs = key_to_path(key);
        let name = dirs.pop().filter(|name| !name.is_empty()).unwrap_or_else(|| MARKER.to_vec());
        if let Some(first) = dirs.first_mut().filter(|first| *first == OWN_DIR) {
            *first = OWN_DIR_AS_KEY.to_vec();
        }
        Self { dirs, name }
    }

    /// The directories of the keys that begin with `prefix`, which is empty or ends in `/`; `None` if no key
    /// can be so long.
    pub(super) fn of_level(prefix: &[u8]) -> Option<Vec<Vec<u8>>> {
        if prefix.is_empty() {
            return Some(Vec::new());
        }
        ObjectKey::try_from(prefix).ok().map(|marker| Self::of(&marker).dirs)
    }

    /// The plain path from the root, by which the key is locked.
    pub(super) fn path(&self) -> Vec<u8> {
        path(&self.dirs, &self.name)
    }

    /// The path taken where a directory has the plain name.
    pub(super) fn beside_path(&self) -> Vec<u8> {
        path(&self.dirs, &beside(&self.name))
    }
}

/// Where the object `name` is while a directory has its name.
pub(super) fn beside(name: &[u8]) -> Vec<u8> {
    if is_beside_inside(name) { [name, BESIDE_INSIDE].join(&b'/') } else { names::beside(name) }
}

/// Whether an object of this name is beside its directory only by being inside.
pub(super) fn is_beside_inside(name: &[u8]) -> bool {
    name.len() + BESIDE_INSIDE.len() > NAME_BYTES_MAX
}

/// Names joined to a path from the root.
pub(super) fn path(dirs: &[Vec<u8>], name: &[u8]) -> Vec<u8> {
    let mut joined = dirs.join(&b'/');
    if !dirs.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(key: &str) -> String {
        String::from_utf8(Place::of(&ObjectKey::try_from(key).unwrap()).path()).unwrap()
    }

    #[test]
    fn keys_are_paths() {
        assert_eq!(shown("a/b.txt"), "a/b.txt");
        assert_eq!(shown("dir/"), "dir/%!");
        assert_eq!(shown("a//b"), "a/%!/b");
        assert_eq!(shown("/"), "%!/%!");
    }

    #[test]
    fn no_key_leads_into_our_own_directory() {
        assert_eq!(shown(".tenon-store/a"), "%+.tenon-store/a");
        assert_eq!(shown("a/.tenon-store/b"), "a/.tenon-store/b");
        assert_eq!(Place::of(&ObjectKey::try_from(".tenon-store").unwrap()).beside_path(), b"%=.tenon-store");
    }
}
