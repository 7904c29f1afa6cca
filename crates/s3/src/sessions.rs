//! Temporary credentials: an access key and a secret that expire, with a token that every request must send (IAM User
//! Guide, "Temporary security credentials in IAM").
//!
//! Kept in memory: after a restart of the endpoint clients request new ones. Secret and token are derived from the
//! secret of the user who requested them, so that only a party with that secret could produce them.

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use s3s::S3Error;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Result, s3_error};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Clock, Entropy, Timestamp};

use crate::users::{User, Users};

/// The maximum number of sessions per user. When it is reached, the user's session that expires first is removed.
const SESSIONS_PER_USER_MAX: usize = 1000;

/// Temporary credentials.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) token: String,
    pub(crate) expires: Timestamp,
    /// The access key of the user in whose name the session acts.
    user: String,
    /// A digest of the user's secret. Changing the secret ends the session.
    secret_digest: Vec<u8>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("user", &self.user)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// All sessions of an endpoint, and its users.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    users: Users,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    by_key: Arc<Mutex<BTreeMap<String, Session>>>,
}

impl Sessions {
    pub(crate) fn new(users: Users, clock: Arc<dyn Clock>, entropy: Arc<Entropy>) -> Self {
        Self { users, clock, entropy, by_key: Arc::default() }
    }

    fn by_key(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a session for a user.
    pub(crate) fn create(&self, user: &User, secs: i64) -> Session {
        let now = self.clock.now();
        let unique = [self.entropy.next_u64(), self.entropy.next_u64(), now.0 as u64];
        let key = hmac::Key::new(hmac::HMAC_SHA256, user.secret_key.as_bytes());
        let derived = |what: &str| {
            let text = format!("{what} {} {unique:x?}", user.access_key);
            base64::engine::general_purpose::STANDARD.encode(hmac::sign(&key, text.as_bytes()))
        };
        let session = Session {
            access_key: format!("ASIA{:016X}", unique[0] ^ unique[1].rotate_left(32)),
            secret_key: derived("secret"),
            token: derived("token"),
            expires: Timestamp(now.0.saturating_add(secs.saturating_mul(1_000_000_000))),
            user: user.access_key.clone(),
            secret_digest: digest(&user.secret_key),
        };
        let mut by_key = self.by_key();
        // Expired sessions are kept for a while, so that clients that use one get `ExpiredToken`.
        let of_user = || by_key.values().filter(|kept| kept.user == user.access_key);
        if of_user().count() >= SESSIONS_PER_USER_MAX
            && let Some(first) = of_user().min_by_key(|kept| kept.expires).map(|kept| kept.access_key.clone())
        {
            by_key.remove(&first);
        }
        by_key.insert(session.access_key.clone(), session.clone());
        session
    }

    /// Returns the session of a key, unless it has expired or its user is gone or has another secret.
    fn find_valid(&self, access_key: &str) -> Option<Session> {
        let now = self.clock.now();
        let session = self.by_key().get(access_key).filter(|session| session.expires > now).cloned();
        session.filter(|session| self.has_current_secret(session))
    }

    /// Returns whether the user still exists and has the secret that the session was created with.
    fn has_current_secret(&self, session: &Session) -> bool {
        self.users.get(&session.user).is_some_and(|user| digest(&user.secret_key) == session.secret_digest)
    }

    /// Returns the access key of the user of a session; `None` unless the session is valid.
    pub(crate) fn user_of(&self, access_key: &str) -> Option<String> {
        self.find_valid(access_key).map(|session| session.user)
    }

    /// Refuses an expired session, a token that does not match the access key, and a session's key without its token.
    pub(crate) fn check_token(&self, access_key: Option<&str>, token: Option<&str>) -> Result<(), S3Error> {
        let session = access_key.and_then(|access_key| self.by_key().get(access_key).cloned());
        // A removed user's session is not reported as expired: the signature check answers that the key is unknown.
        let is_rotated =
            |session: &Session| self.users.get(&session.user).is_some() && !self.has_current_secret(session);
        let is_over = |session: &Session| session.expires <= self.clock.now() || is_rotated(session);
        if session.as_ref().is_some_and(is_over) {
            return Err(s3_error!(ExpiredToken, "The provided token has expired."));
        }
        let is_right = match (&session, token) {
            (None, None) => true,
            (Some(session), Some(token)) => {
                constant_time::verify_slices_are_equal(session.token.as_bytes(), token.as_bytes()).is_ok()
            }
            _ => false,
        };
        let error = || s3_error!(InvalidToken, "The provided token is malformed or otherwise invalid.");
        if is_right { Ok(()) } else { Err(error()) }
    }
}

fn digest(secret: &str) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret.as_bytes()).as_ref().to_vec()
}

#[async_trait::async_trait]
impl S3Auth for Sessions {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.find_valid(access_key) {
            Some(session) => Ok(SecretKey::from(session.secret_key)),
            None => self.users.get_secret_key(access_key).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::Role;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[derive(Debug, Default)]
    struct ManualClock(AtomicI64);

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(self.0.load(Ordering::SeqCst), 0)
        }
    }

    fn user(access_key: &str, secret_key: &str) -> User {
        User {
            access_key: access_key.to_owned(),
            secret_key: secret_key.to_owned(),
            role: Role::Admin,
            buckets: Vec::new(),
        }
    }

    /// Rotating a leaked secret did not help: sessions created with the old secret stayed valid for up to 12 hours.
    #[test]
    fn s479_changing_the_secret_ends_sessions() {
        let users = Users::new([user("somebody", "the-old-one")]).unwrap();
        let sessions =
            Sessions::new(users.clone(), Arc::new(ManualClock::default()), Arc::new(Entropy::new(7)));
        let session = sessions.create(&user("somebody", "the-old-one"), 900);
        assert_eq!(sessions.user_of(&session.access_key).as_deref(), Some("somebody"));
        users.replace([user("somebody", "the-new-one")]).unwrap();
        assert_eq!(sessions.user_of(&session.access_key), None);
        let error = sessions.check_token(Some(&session.access_key), Some(&session.token)).unwrap_err();
        assert_eq!(error.code().as_str(), "ExpiredToken");
    }

    /// One tenant ended the administrator's session by requesting 10,800 sessions, which took five seconds.
    #[test]
    fn s479_sessions_of_one_user_do_not_end_those_of_others() {
        let (tenant, admin) = (user("tenant", "long-enough"), user("admin", "long-enough"));
        let users = Users::new([tenant.clone(), admin.clone()]).unwrap();
        let sessions = Sessions::new(users, Arc::new(ManualClock::default()), Arc::new(Entropy::new(7)));
        let of_admin = sessions.create(&admin, 900);
        let first = sessions.create(&tenant, 900);
        for _ in 0..SESSIONS_PER_USER_MAX {
            sessions.create(&tenant, 43_200);
        }
        assert!(sessions.user_of(&of_admin.access_key).is_some());
        assert!(sessions.user_of(&first.access_key).is_none());
        assert_eq!(sessions.by_key().len(), SESSIONS_PER_USER_MAX + 1);
    }

    /// A client with an expired session got `InvalidAccessKeyId`, and did not request a new session.
    #[test]
    fn expired_sessions_get_expired_token() {
        let user = user("somebody", "long-enough");
        let (users, clock) = (Users::new([user.clone()]).unwrap(), Arc::new(ManualClock::default()));
        let sessions = Sessions::new(users, clock.clone(), Arc::new(Entropy::new(7)));
        let session = sessions.create(&user, 900);
        let check = || sessions.check_token(Some(&session.access_key), Some(&session.token));
        clock.0.store(899, Ordering::SeqCst);
        check().unwrap();
        assert_eq!(sessions.user_of(&session.access_key).as_deref(), Some("somebody"));
        clock.0.store(900, Ordering::SeqCst);
        sessions.create(&user, 900);
        assert_eq!(check().unwrap_err().code().as_str(), "ExpiredToken");
        assert_eq!(sessions.user_of(&session.access_key), None);
    }
}
