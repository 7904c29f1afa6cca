//! Who may come in: access keys, their secrets, what their owners may do and which buckets are theirs.
//!
//! The list is one value that is replaced as a whole: a request never sees half of a new one.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

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
    /// Only what bucket policies and access lists allow, and what the user owns.
    PolicyOnly,
}

/// An access key.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The access key id, which is also how policies name the user.
    pub access_key: String,
    /// The secret that signs.
    pub secret_key: String,
    /// What the user may do.
    #[serde(default)]
    pub role: Role,
    /// Buckets that are the user's own, whoever made them: everything may be done with them.
    #[serde(default)]
    pub buckets: Vec<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("access_key", &self.access_key)
            .field("role", &self.role)
            .field("buckets", &self.buckets)
            .finish_non_exhaustive()
    }
}

/// All users of an endpoint. Clones share them, also those that come later.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<RwLock<Arc<List>>>);

#[derive(Debug, Default)]
struct List {
    by_key: BTreeMap<String, Arc<User>>,
    /// The access keys of those whose buckets the list names.
    owners: BTreeMap<String, String>,
}

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
    /// A bucket that two users call theirs.
    #[error("the bucket '{bucket}' cannot belong to both '{one}' and '{other}'")]
    Shared {
        /// The bucket.
        bucket: String,
        /// An access key.
        one: String,
        /// The other.
        other: String,
    },
}

impl List {
    fn new(users: impl IntoIterator<Item = User>) -> Result<Self, UsersError> {
        let mut list = Self::default();
        for user in users {
            list.add(user)?;
        }
        Ok(list)
    }

    fn add(&mut self, user: User) -> Result<(), UsersError> {
        let key = user.access_key.clone();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !(3..=128).contains(&key.len()) || !key.chars().all(plain) || user.secret_key.len() < 8 {
            return Err(UsersError::Unusable(key));
        }
        for bucket in &user.buckets {
            let before = self.owners.insert(bucket.clone(), key.clone());
            if let Some(one) = before.filter(|one| *one != key) {
                return Err(UsersError::Shared { bucket: bucket.clone(), one, other: key });
            }
        }
        match self.by_key.insert(key.clone(), Arc::new(user)) {
            Some(_) => Err(UsersError::Twice(key)),
            None => Ok(()),
        }
    }
}

impl Users {
    /// Checks and keeps them.
    pub fn new(users: impl IntoIterator<Item = User>) -> Result<Self, UsersError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(List::new(users)?)))))
    }

    /// Takes others in their place, for all clones and from the next request on; after an error all stay as they are.
    pub fn replace(&self, users: impl IntoIterator<Item = User>) -> Result<(), UsersError> {
        let list = Arc::new(List::new(users)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(())
    }

    fn list(&self) -> Arc<List> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The user with an access key.
    pub fn get(&self, access_key: &str) -> Option<Arc<User>> {
        self.list().by_key.get(access_key).cloned()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list().by_key.len()
    }

    /// The access key of who owns what nobody else does: the first administrator's.
    pub(crate) fn first_admin(&self) -> String {
        let list = self.list();
        let admin = list.by_key.values().find(|user| user.role == Role::Admin);
        admin.map_or_else(|| "tenon".to_owned(), |user| user.access_key.clone())
    }

    /// The access key of who owns a bucket by this list.
    pub(crate) fn owner_of(&self, bucket: &str) -> Option<String> {
        self.list().owners.get(bucket).cloned()
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
