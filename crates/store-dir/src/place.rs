//! The paths of keys' files: the plain path, and the alternate path while a directory has the plain name.

use store::ObjectKey;
use store::names::{self, NAME_BYTES_MAX, key_to_path};

/// The store's own directory in the root. No key's path leads into it.
pub(super) const OWN_DIR: &[u8] = b".tenon-store";

/// The directory of keys that begin with the name of the store's own directory. `names` never returns this name.
pub(super) const OWN_DIR_AS_KEY: &[u8] = b"%+.tenon-store";

/// The file of a key that ends in `/`, inside its directory: the escape of an empty name.
pub(super) const MARKER: &[u8] = b"%!";

/// The whole name of an object's file inside the directory that has the object's plain name, where that name with a prefix would be too long.
pub(super) const ALTERNATE_NAME_INSIDE: &[u8] = b"%=";

/// The path of a key's file: the directories from the root, and the plain name.
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

    /// Returns the directories of the keys that begin with `prefix`, which is empty or ends in `/`; `None` if `prefix` is
    /// longer than a key can be.
    pub(super) fn of_level(prefix: &[u8]) -> Option<Vec<Vec<u8>>> {
        if prefix.is_empty() {
            return Some(Vec::new());
        }
        ObjectKey::try_from(prefix).ok().map(|marker| Self::of(&marker).dirs)
    }

    /// Returns the plain path from the root, by which the key is locked.
    pub(super) fn path(&self) -> Vec<u8> {
        path(&self.dirs, &self.name)
    }

    /// Returns the path that the file has while a directory has the plain name.
    pub(super) fn alternate_path(&self) -> Vec<u8> {
        path(&self.dirs, &alternate_name(&self.name))
    }
}

/// Returns the name of the object `name` while a directory has its plain name.
pub(super) fn alternate_name(name: &[u8]) -> Vec<u8> {
    if is_alternate_inside(name) { [name, ALTERNATE_NAME_INSIDE].join(&b'/') } else { names::colliding(name) }
}

/// Returns whether the alternate name of an object is inside the directory that has its plain name.
pub(super) fn is_alternate_inside(name: &[u8]) -> bool {
    name.len() + ALTERNATE_NAME_INSIDE.len() > NAME_BYTES_MAX
}

/// Joins names to a path from the root.
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
        assert_eq!(
            Place::of(&ObjectKey::try_from(".tenon-store").unwrap()).alternate_path(),
            b"%=.tenon-store"
        );
    }
}
