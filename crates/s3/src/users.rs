//! Who may come in: access keys, their secrets, and what their owners may do.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a user may do where no bucket policy says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything, buckets' settings included.
    #[default]
    Admin,
    /// Objects, not the settings of buckets.
    ReadWrite,
    /// Reading objects and listings.
    ReadOnly,
    /// Only what bucket policies allow.
    PolicyOnly,
}

/// An access key.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The access key id, which is also how policies name the user.
    pub access_key: String,
    /// The secret that signs.
    pub secret_key: String,
    /// What the user may do.
    #[serde(default)]
    pub role: Role,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("access_key", &self.access_key)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// All users of an endpoint.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<BTreeMap<String, User>>);

/// Why users cannot be.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// Two have the same access key.
    #[error("the access key '{0}' is there twice")]
    Twice(String),
    /// An access key or a secret that no client could send.
    #[error(
        "the access key '{0}' is not usable: keys have 3 to 128 letters, digits, '-', '_' or '.', secrets at least 8 characters"
    )]
    Unusable(String),
}

impl Users {
    /// Checks and keeps them.
    pub fn new(users: impl IntoIterator<Item = User>) -> Result<Self, UsersError> {
        let mut by_key = BTreeMap::new();
        for user in users {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let is_usable = (3..=128).contains(&user.access_key.len())
                && user.access_key.chars().all(plain)
                && user.secret_key.len() >= 8;
            if !is_usable {
                return Err(UsersError::Unusable(user.access_key));
            }
            if let Some(twice) = by_key.insert(user.access_key.clone(), user) {
                return Err(UsersError::Twice(twice.access_key));
            }
        }
        Ok(Self(Arc::new(by_key)))
    }

    /// The user with an access key.
    pub fn get(&self, access_key: &str) -> Option<&User> {
        self.0.get(access_key)
    }

    /// The access key of who owns the buckets: the first administrator's.
    pub(crate) fn owner(&self) -> &str {
        let admin = self.0.values().find(|user| user.role == Role::Admin);
        admin.map_or("tenon", |user| user.access_key.as_str())
    }
}

#[async_trait::async_trait]
impl S3Auth for Users {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.get(access_key) {
            Some(user) => Ok(SecretKey::from(user.secret_key.clone())),
            None => Err(s3_error!(
                InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records."
            )),
        }
    }
}
