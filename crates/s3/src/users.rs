//! Users: access keys, secrets, roles and assigned buckets.
//!
//! The list is one value that is replaced atomically: a request never sees half of a new list.

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// The rights of a user where no bucket policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Everything, including bucket settings.
    #[default]
    Admin,
    /// Reading and writing objects, but not bucket settings.
    ReadWrite,
    /// Reading objects and listings.
    ReadOnly,
    /// Only what bucket policies and ACLs allow, and everything on buckets that the user owns.
    PolicyOnly,
}

/// A user, identified by an access key.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    /// The access key id, which is also the user's name in policies.
    pub access_key: String,
    /// The secret key that requests are signed with.
    pub secret_key: String,
    /// The user's role.
    #[serde(default)]
    pub role: Role,
    /// Buckets that belong to the user, no matter who created them. The user may do everything with them.
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

/// All users of an endpoint. Clones share the list, including its later replacements.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<RwLock<Arc<UserList>>>);

#[derive(Debug, Default)]
struct UserList {
    by_key: BTreeMap<String, Arc<User>>,
    /// The owners' access keys by bucket name, for buckets that the list assigns.
    owners: BTreeMap<String, String>,
}

/// An invalid list of users.
#[derive(Debug, thiserror::Error)]
pub enum UsersError {
    /// Two users have the same access key.
    #[error("the access key '{0}' is listed twice")]
    DuplicateAccessKey(String),
    /// An access key or a secret that no client could send.
    #[error(
        "the access key '{0}' is not usable: keys have 3 to 128 letters, digits, '-', '_' or '.', secrets at least 8 characters"
    )]
    Unusable(String),
    /// Two users are assigned the same bucket.
    #[error("the bucket '{bucket}' cannot belong to both '{one}' and '{other}'")]
    Shared {
        /// The bucket.
        bucket: String,
        /// The access key of one user.
        one: String,
        /// The access key of the other user.
        other: String,
    },
}

impl UserList {
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
            Some(_) => Err(UsersError::DuplicateAccessKey(key)),
            None => Ok(()),
        }
    }
}

impl Users {
    /// Validates the users and returns the list.
    pub fn new(users: impl IntoIterator<Item = User>) -> Result<Self, UsersError> {
        Ok(Self(Arc::new(RwLock::new(Arc::new(UserList::new(users)?)))))
    }

    /// Replaces all users, for all clones and from the next request on. On an error the list stays unchanged.
    pub fn replace(&self, users: impl IntoIterator<Item = User>) -> Result<(), UsersError> {
        let list = Arc::new(UserList::new(users)?);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = list;
        Ok(())
    }

    fn list(&self) -> Arc<UserList> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the user with an access key; `None` if there is none.
    pub fn get(&self, access_key: &str) -> Option<Arc<User>> {
        self.list().by_key.get(access_key).cloned()
    }

    /// Returns all users, sorted by access key.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.list().by_key.values().cloned().collect()
    }

    /// Returns the number of users.
    pub fn count(&self) -> usize {
        self.list().by_key.len()
    }

    /// Returns the owner of buckets without any other: the first administrator's access key, or `tenon` if there is
    /// no administrator.
    pub(crate) fn default_owner(&self) -> String {
        let list = self.list();
        let admin = list.by_key.values().find(|user| user.role == Role::Admin);
        admin.map_or_else(|| "tenon".to_owned(), |user| user.access_key.clone())
    }

    /// Returns the access key of the user to whom the list assigns a bucket; `None` if it assigns the bucket to nobody.
    pub(crate) fn assigned_owner(&self, bucket: &str) -> Option<String> {
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
