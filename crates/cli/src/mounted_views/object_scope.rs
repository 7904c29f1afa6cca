//! Maps objects to the keys of a mounted volume, and keys to objects.

use crate::volume::{Account, Volume};
use events::Filter;
use std::collections::BTreeSet;
use store::ObjectKey;
use views::{ObjectName, Pattern, Ruleset};

/// The objects that belong to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ObjectScope {
    /// The objects of one bucket whose keys begin with `prefix`.
    Bucket { name: String, prefix: Vec<u8> },
    /// The objects of several buckets, each below its bucket's name.
    Buckets,
}

impl ObjectScope {
    /// Returns the objects that belong to a volume.
    pub(crate) fn of(volume: &Volume) -> Self {
        match volume {
            Volume::Buckets { .. } | Volume::Drive { .. } | Volume::Directories { .. } => Self::Buckets,
            _ => Self::Bucket { name: volume.bucket_name(), prefix: volume.prefix().as_bytes().to_vec() },
        }
    }

    /// Returns the key under which the volume has an object; `None` if the object is outside of the volume, or Tenon's own.
    pub(crate) fn key(&self, object: &ObjectName) -> Option<ObjectKey> {
        let inside = object.key.as_bytes().strip_prefix(self.prefix())?;
        if inside.strip_prefix(vfs::RESERVED.as_bytes()).is_some_and(|rest| rest.starts_with(b"/")) {
            return None;
        }
        match self {
            Self::Bucket { name, .. } => (*object.container == **name).then(|| object.key.clone()),
            Self::Buckets => {
                ObjectKey::new([object.container.as_bytes(), b"/", object.key.as_bytes()].concat()).ok()
            }
        }
    }

    /// Returns filters for events of objects in the volume. Without filters, all events are accepted.
    pub(crate) fn wanted(&self) -> Vec<Filter> {
        match self {
            Self::Bucket { name, prefix } => {
                vec![Filter { bucket: Some(name.clone()), prefix: prefix.clone() }]
            }
            Self::Buckets => Vec::new(),
        }
    }

    /// Returns the object that a key of the volume refers to; `None` if the key names no bucket and object in it.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<ObjectName> {
        match self {
            Self::Bucket { name, .. } => {
                Some(ObjectName { container: name.as_str().into(), key: key.clone() })
            }
            Self::Buckets => {
                let text = key.as_bytes();
                let at = text.iter().position(|&byte| byte == b'/')?;
                let container = std::str::from_utf8(&text[..at]).ok()?.into();
                Some(ObjectName { container, key: ObjectKey::new(text[at + 1..].to_vec()).ok()? })
            }
        }
    }

    /// Returns the prefix of all keys of the volume.
    pub(super) fn prefix(&self) -> &[u8] {
        match self {
            Self::Bucket { prefix, .. } => prefix,
            Self::Buckets => b"",
        }
    }
}

/// Returns the buckets that rulesets name, or `None` if a ruleset names them by a pattern.
pub(crate) fn containers(rulesets: &[Ruleset]) -> Option<BTreeSet<String>> {
    container_patterns(rulesets).map(Pattern::only_text).collect()
}

/// Returns the accounts of the buckets that rulesets name.
pub(crate) fn accounts(rulesets: &[Ruleset]) -> BTreeSet<Account> {
    container_patterns(rulesets).map(|pattern| pattern.account().map(str::to_owned)).collect()
}

fn container_patterns(rulesets: &[Ruleset]) -> impl Iterator<Item = &Pattern> {
    rulesets.iter().flat_map(|ruleset| views::containers(&ruleset.rules))
}
