//! Which objects are files of a mounted volume, and by which keys.

use events::Filter;
use std::collections::BTreeSet;
use store::ObjectKey;
use views::{ObjectName, Pattern, Ruleset};

use crate::bucket::Account;
use crate::volume::Volume;

/// The objects that a volume has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of one bucket, below a beginning of keys.
    Bucket { name: String, prefix: Vec<u8> },
    /// Those of several, each below its bucket's name.
    Buckets,
}

impl Reach {
    /// What a volume has.
    pub(crate) fn of(volume: &Volume) -> Self {
        match volume {
            Volume::Buckets { .. } | Volume::Drive { .. } | Volume::Directories { .. } => Self::Buckets,
            _ => Self::Bucket { name: volume.bucket_name(), prefix: volume.prefix().as_bytes().to_vec() },
        }
    }

    /// The key by which the volume has an object, if it does.
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

    /// Of what sources say, what is about objects of the volume; none of it is all.
    pub(crate) fn wanted(&self) -> Vec<Filter> {
        match self {
            Self::Bucket { name, prefix } => {
                vec![Filter { bucket: Some(name.clone()), prefix: prefix.clone() }]
            }
            Self::Buckets => Vec::new(),
        }
    }

    /// The object that a key of the volume is.
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

    /// What all keys of the volume begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        match self {
            Self::Bucket { prefix, .. } => prefix,
            Self::Buckets => b"",
        }
    }
}

/// The buckets that rulesets name; `None` if one names them by a pattern.
pub(crate) fn containers(rulesets: &[Ruleset]) -> Option<BTreeSet<String>> {
    named(rulesets).map(Pattern::only_text).collect()
}

/// Whose they are.
pub(crate) fn accounts(rulesets: &[Ruleset]) -> BTreeSet<Account> {
    named(rulesets).map(|pattern| pattern.account().map(str::to_owned)).collect()
}

fn named(rulesets: &[Ruleset]) -> impl Iterator<Item = &Pattern> {
    rulesets.iter().flat_map(|ruleset| views::containers(&ruleset.rules))
}
