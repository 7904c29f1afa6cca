//! The file of tokens: one JSON object a line, with the hash of the token, its directory and its end. The token itself is only shown when it
//! is issued.
//!
//! The file is read for each request, so that a token can be issued and revoked while a server runs.

use crate::process::context::ProcessContext;
use crate::process::files::{read_secret, write_secret};
use anyhow::{Context, Result, bail};
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Beginning of all tokens, by which scanners for secrets can find them.
const BEGINNING: &str = "tenon-batch-";

/// A file of tokens.
#[derive(Debug, Clone)]
pub(crate) struct TokenFile(PathBuf);

/// A token that was issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    /// The name by which it is listed, logged and revoked.
    pub(crate) name: String,
    /// SHA-256 of the token in hexadecimal.
    sha256: String,
    /// Path of the directory in the volume, without a slash at its beginning and end; [`NO_DIRECTORY`] for the token of a verifier.
    pub(crate) dir: String,
    /// Whether the token is one of a verifier.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    verifier: bool,
    /// The time until which it is valid.
    #[serde(with = "rfc3339")]
    pub(crate) expires: jiff::Timestamp,
}

/// Times in RFC 3339.
mod rfc3339 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &jiff::Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<jiff::Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// The directory in the token of a verifier. No path is below it, so that an earlier Tenon, which knows no verifiers, grants nothing.
const NO_DIRECTORY: &str = "/";

/// A right that a token can grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Right {
    /// To begin and end batches in a directory and below it. The path of the directory in the volume has no slash at its beginning and end.
    Directory(String),
    /// To verify the batches of the volume.
    Verifier,
}

/// The rights that a token grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The name of the token.
    pub(crate) name: String,
    /// The right that it gives.
    pub(crate) right: Right,
}

impl IssuedToken {
    /// Returns what the token permits, while it is valid.
    pub(crate) fn right(&self) -> Right {
        if self.verifier { Right::Verifier } else { Right::Directory(self.dir.clone()) }
    }
}

/// The reason why a token grants nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    /// No such token was issued, or it was revoked.
    #[error("the token is unknown")]
    Unknown,
    /// The token is no longer valid.
    #[error("the token '{name}' expired at {at}")]
    Expired {
        /// The name of the token.
        name: String,
        /// When it expired.
        at: jiff::Timestamp,
    },
    /// The file of tokens cannot be read.
    #[error("the server cannot read its file of tokens")]
    File,
}

impl TokenFile {
    pub(crate) fn new(path: &Path) -> Self {
        // A file is replaced by one that is made in its directory, which a name alone does not have.
        Self(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
    }

    /// Returns all tokens of the file, also those that have expired. A missing file has none.
    pub(crate) fn tokens(&self) -> Result<Vec<IssuedToken>> {
        if matches!(self.0.metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            return Ok(Vec::new());
        }
        let text = read_secret(&self.0)?;
        let parse = |(number, line)| {
            serde_json::from_str(line)
                .with_context(|| format!("line {} of {} is not a token", number + 1, self.0.display()))
        };
        text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
    }

    /// Returns what a token grants now.
    pub(crate) fn find(&self, token: &str) -> Result<Grant, TokenError> {
        let tokens = self.tokens().map_err(|error| {
            tracing::error!("tokens cannot be read: {error:#}");
            TokenError::File
        })?;
        let hash = hash(token);
        let found = tokens.into_iter().find(|issued| issued.sha256 == hash).ok_or(TokenError::Unknown)?;
        let right = found.right();
        let IssuedToken { name, expires, .. } = found;
        match jiff::Timestamp::now() < expires {
            true => Ok(Grant { name, right }),
            false => Err(TokenError::Expired { name, at: expires }),
        }
    }

    /// Issues a token, and removes those that have expired. The directory of a right may have slashes at its ends. Returns the token.
    pub(crate) fn issue(&self, name: &str, right: &Right, valid_for: Duration) -> Result<String> {
        let now = jiff::Timestamp::now();
        let mut tokens = self.tokens()?;
        tokens.retain(|token| token.expires > now);
        if tokens.iter().any(|token| token.name == name) {
            bail!("{} has a token '{name}'; revoke it first, or choose another --name", self.0.display());
        }
        let dir = match right {
            Right::Directory(dir) => without_empty_parts(dir)?,
            Right::Verifier => NO_DIRECTORY.to_owned(),
        };
        let entropy = ProcessContext::system()?.entropy;
        let number = |_| format!("{:016x}", entropy.next_u64());
        let token = format!("{BEGINNING}{}", (0..4).map(number).collect::<String>());
        let expires = now.checked_add(valid_for).context("the time until the token expires is too long")?;
        tokens.push(IssuedToken {
            name: name.to_owned(),
            sha256: hash(&token),
            dir,
            verifier: *right == Right::Verifier,
            expires,
        });
        self.write(&tokens)?;
        Ok(token)
    }

    /// Removes a token.
    pub(crate) fn revoke(&self, name: &str) -> Result<()> {
        let mut tokens = self.tokens()?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == before {
            bail!("{} has no token '{name}'", self.0.display());
        }
        self.write(&tokens)
    }

    fn write(&self, tokens: &[IssuedToken]) -> Result<()> {
        let mut text = String::new();
        for token in tokens {
            text.push_str(&serde_json::to_string(token)?);
            text.push('\n');
        }
        write_secret(&self.0, &text).with_context(|| format!("cannot write {}", self.0.display()))
    }
}

/// Returns a path in the volume without empty parts.
fn without_empty_parts(dir: &str) -> Result<String> {
    let parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        bail!("'{dir}' is not a path in the volume");
    }
    Ok(parts.join("/"))
}

fn hash(token: &str) -> String {
    store::hex(digest::digest(&digest::SHA256, token.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch_server::permission::Permission;

    #[test]
    fn a_token_is_valid_until_it_expires_or_is_revoked() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::new(&dir.path().join("tokens"));
        assert!(matches!(file.find("any"), Err(TokenError::Unknown)));
        let dir = |dir: &str| Right::Directory(dir.to_owned());
        let token = file.issue("one", &dir("/job/"), Duration::from_secs(60)).unwrap();
        assert_eq!(file.find(&token).unwrap(), Grant { name: "one".into(), right: dir("job") });
        let text = std::fs::read_to_string(&file.0).unwrap();
        assert!(!text.contains(&token) && !text.contains(&token[BEGINNING.len()..]), "{text}");
        assert!(file.issue("one", &dir("other"), Duration::from_secs(60)).is_err(), "the name is taken");
        let short = file.issue("short", &dir("job"), Duration::ZERO).unwrap();
        assert!(matches!(file.find(&short), Err(TokenError::Expired { .. })));
        let other = file.issue("other", &dir(""), Duration::from_secs(60)).unwrap();
        assert!(matches!(file.find(&short), Err(TokenError::Unknown)), "expired tokens are removed");
        file.revoke("one").unwrap();
        assert!(matches!(file.find(&token), Err(TokenError::Unknown)));
        assert!(file.find(&other).is_ok() && file.revoke("one").is_err());
    }

    #[test]
    fn s638_a_token_of_a_verifier_grants_no_directory() {
        let dir = tempfile::tempdir().unwrap();
        let file = TokenFile::new(&dir.path().join("tokens"));
        let token = file.issue("aux", &Right::Verifier, Duration::from_secs(60)).unwrap();
        let grant = file.find(&token).unwrap();
        assert_eq!(grant.right, Right::Verifier);
        assert!(Permission::new(grant).is_err());
        // An earlier Tenon takes it for the token of this directory.
        let earlier = Grant { name: "aux".into(), right: Right::Directory(NO_DIRECTORY.into()) };
        let permission = Permission::new(earlier).unwrap();
        for path in ["", "job", "/", "//job", "/job"] {
            assert!(permission.path(&store::hex(path.as_bytes())).is_err(), "{path}");
        }
    }
}
