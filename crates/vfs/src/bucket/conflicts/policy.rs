//! Policies of conflicts.

use serde::{Deserialize, Serialize};

/// Decides whose bytes keep the name if an object changed in the bucket while its file was written here. A file edited
/// in place whose unchanged bytes are gone loses the name under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictPolicy {
    /// The bucket's bytes keep the name. The file's are kept under `lost+found`, and `close` fails.
    #[default]
    BucketWins,
    /// The file's bytes keep the name. The bucket's are kept under `lost+found`.
    FileWins,
    /// The bucket's bytes keep the name. The file's are stored as another file in the same directory. If the bucket's
    /// object was deleted, the file's bytes keep the name.
    KeepBoth,
    /// Like `BucketWins`. In addition, the path takes no writes until the conflict is resolved.
    Fail,
}

impl ConflictPolicy {
    /// Returns whether this is the policy of volumes without a setting.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for ConflictPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BucketWins => "bucket-wins",
            Self::FileWins => "file-wins",
            Self::KeepBoth => "keep-both",
            Self::Fail => "fail",
        })
    }
}
