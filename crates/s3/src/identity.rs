//! Users whose secret was checked once, and who send requests without signatures from then on.

use aws_lc_rs::{constant_time, digest};
use std::sync::Arc;

use crate::users::{User, Users};

/// A user whose secret was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    access_key: String,
    /// SHA-256 of the secret.
    secret_digest: [u8; 32],
}

impl Identity {
    /// Returns the user of an access key; `None` if there is none or the secret is wrong. Takes a time that does not depend
    /// on how much of the secret is right.
    pub(crate) fn check(users: &Users, access_key: &str, secret_key: &str) -> Option<Self> {
        let user = users.get(access_key);
        let expected = user.as_ref().map_or("", |user| user.secret_key.as_str());
        let secret_digest = sha256(secret_key);
        // The comparison is made for unknown users too, so that the time does not reveal whether a user exists.
        let is_right = is_digest(&secret_digest, expected);
        user.filter(|_| is_right).map(|user| Self { access_key: user.access_key.clone(), secret_digest })
    }

    /// Returns the user's access key.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// Returns whether the user still exists and has the same secret.
    pub(crate) fn is_current(&self, users: &Users) -> bool {
        self.user(users).is_some()
    }

    /// Returns the user, unless the user was removed or has another secret.
    pub(crate) fn user(&self, users: &Users) -> Option<Arc<User>> {
        users.get(&self.access_key).filter(|user| is_digest(&self.secret_digest, &user.secret_key))
    }
}

fn sha256(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    bytes
}

/// Returns whether a digest is that of a secret, compared in constant time.
fn is_digest(digest: &[u8; 32], secret: &str) -> bool {
    constant_time::verify_slices_are_equal(digest, &sha256(secret)).is_ok()
}
