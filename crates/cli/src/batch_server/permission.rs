//! Permissions of tokens: the batches of one directory and of the directories below it.

use crate::batch_server::tokens::{Grant, Right};
use crate::control::batch_protocol::BatchInfo;

/// The permission of a client.
#[derive(Debug)]
pub(super) struct Permission {
    /// The name of the token.
    token: String,
    /// Path of the directory in the volume, without a slash at its beginning and end.
    dir: String,
}

/// The reason why a permission does not extend to a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    #[error("the token is for '/{dir}', and '/{path}' is not below it")]
    Path { dir: String, path: String },
    #[error("the token's directory has no batch '{0}'")]
    Batch(String),
    #[error("the token is one of a server that verifies batches, and permits nothing else")]
    Verifier,
    #[error("the token is not one of a server that verifies batches")]
    NotAVerifier,
}

impl Permission {
    /// Returns what a token permits to a client; nothing if the token is one of a verifier.
    pub(super) fn new(grant: Grant) -> Result<Self, Denied> {
        match grant.right {
            Right::Directory(dir) => Ok(Self { token: grant.name, dir }),
            Right::Verifier => Err(Denied::Verifier),
        }
    }

    /// Returns the name of the token.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Returns a path in hexadecimal, without empty parts, if the permission extends to it.
    pub(super) fn path(&self, path_hex: &str) -> Result<String, Denied> {
        let path = store::unhex(path_hex).unwrap_or_default();
        let denied = || Denied::Path {
            dir: self.dir.clone(),
            path: String::from_utf8_lossy(&path).trim_start_matches('/').to_owned(),
        };
        let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| *part == b"." || *part == b"..") {
            return Err(denied());
        }
        let path = parts.join(&b'/');
        if is_within(&path, self.dir.as_bytes()) { Ok(store::hex(&path)) } else { Err(denied()) }
    }

    /// Returns those batches to which the permission extends.
    pub(super) fn visible(&self, mut batches: Vec<BatchInfo>) -> Vec<BatchInfo> {
        // A path that is not text is shown with replacement characters, and may look like another one.
        let is_exact = |path: &str| !path.contains(char::REPLACEMENT_CHARACTER);
        batches.retain(|batch| {
            let path = batch.path.as_deref();
            path.is_some_and(|path| is_exact(path) && is_within(path.as_bytes(), self.dir.as_bytes()))
        });
        batches
    }
}

/// Returns whether a path is that of a directory, or of one below it. Neither begins or ends with a slash.
fn is_within(path: &[u8], dir: &[u8]) -> bool {
    let rest = path.strip_prefix(dir);
    dir.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(dir: &str) -> Permission {
        Permission { token: "test".into(), dir: dir.into() }
    }

    #[test]
    fn a_permission_extends_to_its_directory_and_below() {
        let path = |dir: &str, path: &str| permission(dir).path(&store::hex(path.as_bytes())).ok();
        let hex = |path: &str| Some(store::hex(path.as_bytes()));
        assert_eq!(path("job", "/job/"), hex("job"));
        assert_eq!(path("job", "job//run/1"), hex("job/run/1"));
        assert_eq!(path("", "any"), hex("any"));
        for denied in ["", "/", "jobs", "job2/a", "other/job", "job/../other", "job/.", "../job"] {
            assert_eq!(path("job", denied), None, "{denied}");
        }
    }

    #[test]
    fn other_batches_are_invisible() {
        let batch = |path: Option<&str>| BatchInfo {
            id: "1".into(),
            path: path.map(str::to_owned),
            began: String::new(),
            state: "mounted".into(),
            merged: None,
            last_change: None,
            expires: None,
            expires_in_secs: None,
            expired: None,
            failed: None,
            ops: 0,
            refused: 0,
        };
        let all = [Some("job"), Some("job/a"), Some("jobs"), Some("job/\u{fffd}"), None].map(batch).to_vec();
        assert_eq!(permission("job").visible(all), [batch(Some("job")), batch(Some("job/a"))]);
    }
}
