//! A source that reads a list to which others append, as MinIO does in its format `access`.
//!
//! Received messages move to a private list of the source and are removed from it when they are acknowledged. Each connection takes a
//! number from the server, after which its private list is named:
//!
//! | key | content |
//! |---|---|
//! | `KEY:tenon:last` | the last number given out |
//! | `KEY:tenon:alive` | the set of numbers whose private lists may hold messages |
//! | `KEY:tenon:N` | the messages that N received and did not acknowledge, oldest first |
//! | `KEY:tenon:N:lease` | exists while N is alive; expires by itself |
//!
//! Invariants: a private list gets messages only while its number is in the set. A source that takes over a list whose lease has
//! expired removes the number from the set in the same step. A source that finds its own number gone delivers its private list anew.

use super::{BLOCK_TIME, DEAD_AFTER, Link, Server, TAKEOVER_INTERVAL, elements, string_bytes};
use events::{Message, Source, SourceError};
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value};
use tokio::time::Instant;

/// Renews the lease and moves available messages to the private list. Returns whether the number was added to the set anew, and the
/// messages after those already delivered. Keys: the list, the private list, the lease, the set. Arguments: number, lease in
/// milliseconds, count of delivered messages, maximum count.
const MOVE_SCRIPT: &str = "
redis.call('SET', KEYS[3], 1, 'PX', ARGV[2])
local new = redis.call('SADD', KEYS[4], ARGV[1])
local handed = new == 1 and 0 or tonumber(ARGV[3])
local missing = tonumber(ARGV[4]) - (redis.call('LLEN', KEYS[2]) - handed)
while missing > 0 and redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT') do missing = missing - 1 end
return {new, redis.call('LRANGE', KEYS[2], handed, handed + ARGV[4] - 1)}";

/// Removes delivered messages from the private list, unless the list was taken over. Keys: the private list, the set. Arguments: number,
/// count.
const REMOVE_SCRIPT: &str = "
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
return 1";

/// Takes over the private list of a dead source. Keys: its list, its lease, the own private list, the set. Argument: its number.
const TAKE_OVER_SCRIPT: &str = "
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local moved = 0
while redis.call('LMOVE', KEYS[1], KEYS[3], 'LEFT', 'RIGHT') do moved = moved + 1 end
redis.call('SREM', KEYS[4], ARGV[1])
return moved";

/// The source of a list.
#[derive(Debug)]
pub(super) struct ListSource {
    list: SharedList,
    session: Option<Session>,
}

/// The list, which all sources of it share.
#[derive(Debug)]
struct SharedList {
    key: String,
    server: Server,
}

/// The state of one connection.
#[derive(Debug)]
struct Session {
    link: Link,
    number: u64,
    /// The number of messages of the private list that were delivered and not acknowledged.
    delivered: usize,
    /// When the messages of lists without an owner were last taken over; `None` before the first time.
    last_takeover: Option<Instant>,
}

impl ListSource {
    pub(super) fn new(key: String, server: Server) -> Self {
        Self { list: SharedList { key, server }, session: None }
    }
}

#[async_trait::async_trait]
impl Source for ListSource {
    /// If a call is dropped, the messages that it moved are in the private list, where the next call finds them.
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(self.list.open_session().await?),
        };
        let received = self.list.next_messages(session, max).await;
        if received.is_err() {
            self.session = None;
        }
        received
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let taken = self.list.remove_delivered(session).await;
        if taken.is_err() {
            self.session = None;
        }
        taken
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(session) = &mut self.session else { return Ok(None) };
        let mut length = redis::cmd("LLEN");
        length.arg(&self.list.key);
        self.list.call(&mut session.link, &length).await.map(Some)
    }
}

impl SharedList {
    async fn open_session(&self) -> Result<Session, SourceError> {
        let mut link = self.server.connect(AsyncConnectionConfig::new()).await?;
        let mut next = redis::cmd("INCR");
        next.arg(self.derived_key("last"));
        let number = self.call(&mut link, &next).await?;
        Ok(Session { link, number, delivered: 0, last_takeover: None })
    }

    async fn next_messages(&self, session: &mut Session, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            if session.last_takeover.is_none_or(|last_takeover| last_takeover.elapsed() >= TAKEOVER_INTERVAL)
            {
                self.take_over(session).await?;
                session.last_takeover = Some(Instant::now());
            }
            let messages = self.move_messages(session, max).await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.wait_for_message(session).await?;
        }
    }

    async fn move_messages(&self, session: &mut Session, max: usize) -> Result<Vec<Message>, SourceError> {
        let number = session.number;
        let mut script = redis::cmd("EVAL");
        script
            .arg(MOVE_SCRIPT)
            .arg(4)
            .arg(&self.key)
            .arg(self.private_list(number))
            .arg(self.lease_key(number));
        script.arg(self.derived_key("alive")).arg(number).arg(lease_ms()).arg(session.delivered).arg(max);
        let (is_new, moved): (bool, Value) = self.call(&mut session.link, &script).await?;
        if is_new {
            session.delivered = 0;
        }
        let messages: Vec<_> =
            elements(moved).into_iter().filter_map(string_bytes).map(Message::from).collect();
        session.delivered += messages.len();
        Ok(messages)
    }

    /// Waits until a message has moved to the private list, or for a moment.
    async fn wait_for_message(&self, session: &mut Session) -> Result<(), SourceError> {
        let number = session.number;
        let requests = || {
            let mut requests = redis::pipe();
            requests.cmd("SADD").arg(self.derived_key("alive")).arg(number);
            requests.cmd("SET").arg(self.lease_key(number)).arg(1).arg("PX").arg(lease_ms()).ignore();
            requests.cmd("BLMOVE").arg(&self.key).arg(self.private_list(number)).arg("LEFT").arg("RIGHT");
            requests.arg(BLOCK_TIME.as_secs()).ignore();
            requests
        };
        let answer =
            session.link.blocking_request(requests).await.map_err(|error| self.server.error(&error))?;
        if elements(answer).first() == Some(&Value::Int(1)) {
            session.delivered = 0;
        }
        Ok(())
    }

    async fn take_over(&self, session: &mut Session) -> Result<(), SourceError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(self.derived_key("alive"));
        let alive: Vec<u64> = self.call(&mut session.link, &members).await?;
        for other in alive.into_iter().filter(|number| *number != session.number) {
            let mut script = redis::cmd("EVAL");
            script.arg(TAKE_OVER_SCRIPT).arg(4).arg(self.private_list(other)).arg(self.lease_key(other));
            script.arg(self.private_list(session.number)).arg(self.derived_key("alive")).arg(other);
            let moved: u64 = self.call(&mut session.link, &script).await?;
            if moved > 0 {
                tracing::info!(
                    list = self.key,
                    moved,
                    "took over unacknowledged messages of a source that has ended"
                );
            }
        }
        Ok(())
    }

    async fn remove_delivered(&self, session: &mut Session) -> Result<(), SourceError> {
        let mut script = redis::cmd("EVAL");
        script
            .arg(REMOVE_SCRIPT)
            .arg(2)
            .arg(self.private_list(session.number))
            .arg(self.derived_key("alive"));
        script.arg(session.number).arg(session.delivered);
        let is_taken: bool = self.call(&mut session.link, &script).await?;
        if is_taken {
            session.delivered = 0;
            return Ok(());
        }
        let late =
            "processing took so long that another source took the messages over; they are delivered again";
        Err(self.server.url.unavailable(late))
    }

    async fn call<T: FromRedisValue>(&self, link: &mut Link, command: &Cmd) -> Result<T, SourceError> {
        command.query_async(&mut link.connection).await.map_err(|error| self.server.error(&error))
    }

    fn derived_key(&self, what: &str) -> String {
        format!("{}:tenon:{what}", self.key)
    }

    fn private_list(&self, number: u64) -> String {
        self.derived_key(&number.to_string())
    }

    fn lease_key(&self, number: u64) -> String {
        self.derived_key(&format!("{number}:lease"))
    }
}

fn lease_ms() -> u64 {
    u64::try_from(DEAD_AFTER.as_millis()).unwrap_or(u64::MAX)
}
