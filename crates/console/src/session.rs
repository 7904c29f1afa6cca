//! Sessions of users who signed in. They are in memory, and end with the process.
//!
//! Invariants: a session's id is stored only as its digest; a session ends when its user signs out, when it is idle for
//! too long, when it is too old, when its user is removed or gets another secret, and when there are too many others.

use crate::process::Tone;
use aws_lc_rs::{constant_time, digest};
use s3::{Endpoint, Identity, Role};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Clock, Entropy, hex};

/// A session ends when it has not been used for this long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Maximum age of a session.
const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum number of sessions. Further ones replace the session that was unused for longest.
const SESSIONS_MAX: usize = 1024;

/// Header with the CSRF token, in an upload by the script.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";
/// Name of the field with the CSRF token, in a form.
pub(crate) const CSRF_FIELD: &str = "csrf";

type Digest = [u8; 32];

/// A user who signed in.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) identity: Identity,
    /// Token that each changing request must have.
    pub(crate) csrf: String,
    /// Time of the sign-in, on the monotonic clock.
    began: Duration,
    /// Time of the last request, on the monotonic clock.
    used: Duration,
    /// Outcome of the last change, until the next page shows it.
    notice: Option<Notice>,
}

/// The outcome of a change, for the page after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) tone: Tone,
    pub(crate) text: String,
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    /// The sessions, by the digest of their id.
    by_digest: Mutex<BTreeMap<Digest, Session>>,
}

/// A user's session, and the role that the user has at the moment.
#[derive(Debug, Clone)]
pub(crate) struct SignedIn {
    pub(crate) session: Session,
    pub(crate) role: Role,
}

impl Sessions {
    pub(crate) fn new(clock: Arc<dyn Clock>, entropy: Arc<Entropy>) -> Self {
        Self { clock, entropy, by_digest: Mutex::default() }
    }

    fn by_digest(&self) -> MutexGuard<'_, BTreeMap<Digest, Session>> {
        self.by_digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a session. Returns its id, which only the user's browser knows from then on.
    pub(crate) fn begin(&self, identity: Identity) -> String {
        let (id, csrf, now) = (self.random_token(), self.random_token(), self.clock.monotonic());
        let mut sessions = self.by_digest();
        sessions.retain(|_, session| !session.is_over(now));
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.used).map(|(digest, _)| *digest);
            oldest.and_then(|digest| sessions.remove(&digest));
        }
        sessions.insert(digest_of(&id), Session { identity, csrf, began: now, used: now, notice: None });
        id
    }

    /// Returns the session with an id, and counts this as its use; `None` if there is none or it has ended.
    pub(crate) fn find(&self, id: &str, endpoint: &Endpoint) -> Option<SignedIn> {
        let (now, digest) = (self.clock.monotonic(), digest_of(id));
        let mut sessions = self.by_digest();
        let session = sessions.get_mut(&digest)?;
        let role = endpoint.role(&session.identity).filter(|_| !session.is_over(now));
        let Some(role) = role else {
            sessions.remove(&digest);
            return None;
        };
        session.used = now;
        Some(SignedIn { session: session.clone(), role })
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str) {
        self.by_digest().remove(&digest_of(id));
    }

    /// Sets the notice that the next page of a session shows.
    pub(crate) fn set_notice(&self, id: &str, notice: Notice) {
        if let Some(session) = self.by_digest().get_mut(&digest_of(id)) {
            session.notice = Some(notice);
        }
    }

    /// Takes the notice that the next page of a session shows; `None` if there is none.
    pub(crate) fn take_notice(&self, id: &str) -> Option<Notice> {
        self.by_digest().get_mut(&digest_of(id))?.notice.take()
    }

    /// Returns 256 random bits as 64 hexadecimal digits.
    fn random_token(&self) -> String {
        let numbers = [(); 4].map(|()| self.entropy.next_u64().to_le_bytes());
        hex(digest::digest(&digest::SHA256, &numbers.concat()).as_ref())
    }
}

impl Session {
    /// Returns whether the session has been idle for too long, or is too old.
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) > IDLE_TIMEOUT || now.saturating_sub(self.began) > AGE_MAX
    }

    /// Returns whether a token is the session's, compared in constant time.
    pub(crate) fn has_csrf(&self, token: &str) -> bool {
        constant_time::verify_slices_are_equal(self.csrf.as_bytes(), token.as_bytes()).is_ok()
    }
}

impl SignedIn {
    pub(crate) fn is_admin(&self) -> bool {
        self.role == Role::Admin
    }

    /// Returns whether the user may see the state of the process, which names files and objects of all buckets. Users who
    /// have only the rights of bucket policies may not.
    pub(crate) fn sees_process(&self) -> bool {
        self.role != Role::PolicyOnly
    }
}

fn digest_of(id: &str) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, id.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use s3::{EndpointOptions, User, Users};
    use std::sync::atomic::{AtomicI64, Ordering};
    use store::Timestamp;

    #[derive(Debug, Default)]
    struct SetClock(AtomicI64);

    impl SetClock {
        fn advance(&self, secs: i64) {
            self.0.fetch_add(secs, Ordering::Relaxed);
        }
    }

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_secs(self.0.load(Ordering::Relaxed), 0)
        }
    }

    fn user(secret_key: &str) -> User {
        User {
            access_key: "alice".into(),
            secret_key: secret_key.into(),
            role: Role::ReadOnly,
            buckets: Vec::new(),
        }
    }

    fn endpoint(clock: &Arc<SetClock>) -> (Endpoint, Users) {
        let users = Users::new([user("long-enough")]).unwrap();
        let options = EndpointOptions {
            users: users.clone(),
            region: "us-east-1".into(),
            domains: Vec::new(),
            webhooks: BTreeMap::new(),
            md5: false,
            encrypted: false,
        };
        let buckets = Arc::new(store::memory::MemoryBuckets::new(clock.clone()));
        (Endpoint::new(buckets, options, clock.clone(), Arc::new(Entropy::new(1))).unwrap(), users)
    }

    #[tokio::test]
    async fn s741_a_session_ends_when_idle_when_old_and_with_its_user() {
        let clock = Arc::new(SetClock::default());
        let (endpoint, users) = endpoint(&clock);
        let sessions = Sessions::new(clock.clone(), Arc::new(Entropy::new(2)));
        let begin = || sessions.begin(endpoint.identify("alice", "long-enough").unwrap());
        let idle = begin();
        clock.advance(3599);
        assert!(sessions.find(&idle, &endpoint).is_some());
        clock.advance(3601);
        assert!(sessions.find(&idle, &endpoint).is_none());
        let old = begin();
        let hours = (0..14).filter(|_| {
            clock.advance(3600);
            sessions.find(&old, &endpoint).is_some()
        });
        assert_eq!(hours.count(), 12);
        let (ended, kept) = (begin(), begin());
        sessions.end(&ended);
        assert!(sessions.find(&ended, &endpoint).is_none());
        users.replace([user("another-secret")]).unwrap();
        assert!(sessions.find(&kept, &endpoint).is_none());
        assert!(endpoint.identify("alice", "long-enough").is_none());
        assert!(endpoint.identify("nobody", "").is_none());
    }

    #[tokio::test]
    async fn the_number_of_sessions_is_bounded() {
        let clock = Arc::new(SetClock::default());
        let (endpoint, _users) = endpoint(&clock);
        let sessions = Sessions::new(clock.clone(), Arc::new(Entropy::new(2)));
        let begin = || sessions.begin(endpoint.identify("alice", "long-enough").unwrap());
        let first = begin();
        for _ in 0..SESSIONS_MAX {
            clock.advance(1);
            begin();
        }
        assert_eq!(sessions.by_digest().len(), SESSIONS_MAX);
        assert!(sessions.find(&first, &endpoint).is_none());
    }
}
