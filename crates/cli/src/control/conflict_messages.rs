//! Messages about conflicts on the control socket. Fields are added, never changed.

use crate::process::rfc3339::rfc3339;
use serde::{Deserialize, Serialize};

/// An unresolved conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conflict {
    /// Id of the conflict.
    pub(crate) id: String,
    /// The file's path, lossy where it is not text.
    pub(crate) path: String,
    /// The key that both sides claim, escaped where it is not text.
    pub(crate) key: String,
    /// Time when the conflict was found (RFC 3339).
    pub(crate) at: String,
    /// Policy that was applied.
    pub(crate) policy: String,
    /// Location of the file's bytes; none if the file was replaced before its object moved to its new name.
    pub(crate) file: Option<Side>,
    /// Location of the bucket's bytes; none if the object was deleted.
    pub(crate) bucket: Option<Side>,
    /// Whether all bytes of the file were kept. Otherwise nothing is left of it, or ranges that were not written on
    /// this machine are zeros.
    #[serde(rename = "complete")]
    pub(crate) all_bytes_kept: bool,
    /// Whether the path refuses writes.
    pub(crate) blocks: bool,
}

/// Location of one side's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Side {
    /// The object's key, escaped where it is not text.
    pub(crate) key: String,
    /// Etag of the object when it was stored.
    pub(crate) etag: String,
}

impl Conflict {
    /// Returns whether the file that was written on this machine has the name, and not the bucket's object.
    pub(crate) fn is_file_named(&self) -> bool {
        self.file.as_ref().map_or(self.all_bytes_kept, |side| side.key == self.key)
    }
}

impl From<&vfs::Conflict> for Conflict {
    fn from(conflict: &vfs::Conflict) -> Self {
        let side = |side: &vfs::Side| Side { key: side.key.to_string(), etag: side.etag.to_string() };
        Self {
            id: conflict.id.clone(),
            path: String::from_utf8_lossy(&conflict.path).into_owned(),
            key: conflict.key.to_string(),
            at: rfc3339(conflict.at),
            policy: conflict.policy.to_string(),
            file: conflict.file.as_ref().map(side),
            bucket: conflict.bucket.as_ref().map(side),
            all_bytes_kept: conflict.is_complete,
            blocks: conflict.blocks(),
        }
    }
}
