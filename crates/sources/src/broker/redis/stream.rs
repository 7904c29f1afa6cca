//! A source that reads a stream as a member of a consumer group.
//!
//! Each connection takes a number N from the server (`KEY:tenon:last`) and becomes the group's consumer `tenon-N`. Messages that it
//! received and did not acknowledge are pending for it. Other consumers claim them once they have been idle for too long.

use super::{BLOCK_TIME, DEAD_AFTER, Link, Server, TAKEOVER_INTERVAL, elements, string_bytes};
use bytes::Bytes;
use events::{Message, Source, SourceError};
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use tokio::time::Instant;

/// Removes consumers that have nothing pending and made no request for an hour; a consumer returns with its next request. This is
/// one script, because removing a consumer loses what is pending for it. Key: the stream. Arguments: the group, milliseconds.
const FORGET_SCRIPT: &str = "
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local said = {}
  for i = 1, #consumer, 2 do said[consumer[i]] = consumer[i + 1] end
  if said.pending == 0 and said.idle > tonumber(ARGV[2]) and string.find(said.name, '^tenon%-%d+$') then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], said.name)
  end
end";

/// Time without a request after which a consumer is removed.
const FORGET_AFTER_MS: u64 = 3_600_000;

/// The source of a stream.
#[derive(Debug)]
pub(super) struct StreamSource {
    group: ConsumerGroup,
    session: Option<Session>,
}

/// The consumer group, which all sources of it share.
#[derive(Debug)]
struct ConsumerGroup {
    key: String,
    name: String,
    server: Server,
}

/// The state of one connection.
#[derive(Debug)]
struct Session {
    link: Link,
    consumer: String,
    /// Entries that arrived and were not delivered yet.
    ready: VecDeque<Entry>,
    /// The ids of entries that were delivered and not acknowledged yet.
    delivered: HashSet<Bytes>,
    /// When the entries that other consumers have not acknowledged were last taken over; `None` before the first time.
    last_takeover: Option<Instant>,
}

/// An entry: its id, and its message unless the entry was deleted.
type Entry = (Bytes, Option<Message>);

impl StreamSource {
    pub(super) fn new(key: String, group: String, server: Server) -> Self {
        Self { group: ConsumerGroup { key, name: group, server }, session: None }
    }
}

#[async_trait::async_trait]
impl Source for StreamSource {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(self.group.open_session().await?),
        };
        let received = self.group.next_messages(session, max).await;
        if received.is_err() {
            self.session = None;
        }
        received
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(session) = &mut self.session else { return Ok(()) };
        let acknowledged = self.group.acknowledge(session).await;
        if acknowledged.is_err() {
            self.session = None;
        }
        acknowledged
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(session) = &mut self.session else { return Ok(None) };
        self.group.lag(&mut session.link).await
    }
}

impl ConsumerGroup {
    async fn open_session(&self) -> Result<Session, SourceError> {
        let mut link = self.server.connect(AsyncConnectionConfig::new()).await?;
        self.create_group(&mut link).await?;
        let mut next = redis::cmd("INCR");
        next.arg(format!("{}:tenon:last", self.key));
        let number: u64 = self.call(&mut link, &next).await?;
        let consumer = format!("tenon-{number}");
        Ok(Session { link, consumer, ready: VecDeque::new(), delivered: HashSet::new(), last_takeover: None })
    }

    /// Creates the group and the stream unless they exist. A new group begins with the stream's first entry.
    async fn create_group(&self, link: &mut Link) -> Result<(), SourceError> {
        let mut make = redis::cmd("XGROUP");
        make.arg("CREATE").arg(&self.key).arg(&self.name).arg("0").arg("MKSTREAM");
        match make.query_async::<Value>(&mut link.connection).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            made => made.map(drop).map_err(|error| self.server.error(&error)),
        }
    }

    async fn next_messages(&self, session: &mut Session, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let messages = take_messages(session, max);
            if !messages.is_empty() {
                return Ok(messages);
            }
            if session.last_takeover.is_none_or(|last_takeover| last_takeover.elapsed() >= TAKEOVER_INTERVAL)
            {
                self.claim(session, max).await?;
            }
            if session.ready.is_empty() {
                self.read(session, max).await?;
            }
        }
    }

    /// Reads new entries, waiting a while if there are none.
    async fn read(&self, session: &mut Session, max: usize) -> Result<(), SourceError> {
        let consumer = &session.consumer;
        let request = || {
            let mut request = redis::pipe();
            request.cmd("XREADGROUP").arg("GROUP").arg(&self.name).arg(consumer);
            request.arg("COUNT").arg(max).arg("BLOCK").arg(BLOCK_TIME.as_millis() as u64);
            request.arg("STREAMS").arg(&self.key).arg(">");
            request
        };
        let answer = session.link.blocking_request(request).await.map_err(|error| self.error(&error))?;
        // The reply maps our one stream to its entries; it is nil if there are none.
        let Some(Value::Map(streams)) = elements(answer).into_iter().next() else { return Ok(()) };
        let entries = streams.into_iter().flat_map(|(_, entries)| elements(entries));
        session.ready.extend(entries.filter_map(parse_entry));
        Ok(())
    }

    /// Claims entries that have been pending for another consumer for too long, oldest first, until there are some.
    async fn claim(&self, session: &mut Session, max: usize) -> Result<(), SourceError> {
        let mut forget = redis::cmd("EVAL");
        forget.arg(FORGET_SCRIPT).arg(1).arg(&self.key).arg(&self.name).arg(FORGET_AFTER_MS);
        let _: Value = self.call(&mut session.link, &forget).await?;
        let mut from = Bytes::from_static(b"0-0");
        loop {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim.arg(&self.key).arg(&self.name).arg(&session.consumer).arg(DEAD_AFTER.as_millis() as u64);
            claim.arg(from.as_ref()).arg("COUNT").arg(max);
            // Redis 7 adds a third element, the ids of deleted entries.
            let mut answer = elements(self.call(&mut session.link, &claim).await?).into_iter();
            from = answer.next().and_then(string_bytes).unwrap_or_default();
            session
                .ready
                .extend(elements(answer.next().unwrap_or_default()).into_iter().filter_map(parse_entry));
            let is_all = matches!(from.as_ref(), b"" | b"0-0");
            if is_all {
                session.last_takeover = Some(Instant::now());
            }
            if is_all || !session.ready.is_empty() {
                return Ok(());
            }
        }
    }

    async fn acknowledge(&self, session: &mut Session) -> Result<(), SourceError> {
        if session.delivered.is_empty() {
            return Ok(());
        }
        let mut done = redis::cmd("XACK");
        done.arg(&self.key).arg(&self.name);
        for id in &session.delivered {
            done.arg(id.as_ref());
        }
        self.call::<Value>(&mut session.link, &done).await?;
        session.delivered.clear();
        Ok(())
    }

    /// Returns the number of entries that the group has not been given yet. Redis reports it since version 7, unless
    /// entries were deleted; `None` otherwise.
    async fn lag(&self, link: &mut Link) -> Result<Option<u64>, SourceError> {
        let mut about = redis::cmd("XINFO");
        about.arg("GROUPS").arg(&self.key);
        let groups: Vec<HashMap<String, Value>> = self.call(link, &about).await?;
        let is_ours = |group: &HashMap<String, Value>| {
            let name = group.get("name").cloned().and_then(string_bytes);
            name.is_some_and(|name| name == self.name.as_bytes())
        };
        let lag = groups.iter().find(|group| is_ours(group)).and_then(|group| group.get("lag"));
        Ok(lag.and_then(|lag| match lag {
            Value::Int(lag) => u64::try_from(*lag).ok(),
            _ => None,
        }))
    }

    async fn call<T: FromRedisValue>(&self, link: &mut Link, request: &Cmd) -> Result<T, SourceError> {
        request.query_async(&mut link.connection).await.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &RedisError) -> SourceError {
        match error.code() {
            // The group was removed, or the stream with it. The next connection creates it anew.
            Some("NOGROUP") => self
                .server
                .url
                .unavailable(format_args!("the consumer group '{}' no longer exists", self.name)),
            _ => self.server.error(error),
        }
    }
}

/// Returns the next messages. Entries that were delivered here before, and claimed again, are skipped. Entries deleted from the stream
/// have no message, but are acknowledged with the others.
fn take_messages(session: &mut Session, max: usize) -> Vec<Message> {
    let mut messages = Vec::with_capacity(max.min(session.ready.len()));
    while messages.len() < max
        && let Some((id, message)) = session.ready.pop_front()
    {
        if session.delivered.insert(id) {
            messages.extend(message);
        }
    }
    messages
}

/// Parses an entry: the value of the first field is the message, further fields are attributes. `None`: the value is no
/// entry.
fn parse_entry(entry: Value) -> Option<Entry> {
    let mut parts = elements(entry).into_iter();
    let id = string_bytes(parts.next()?)?;
    let mut fields = elements(parts.next().unwrap_or_default()).into_iter();
    let mut pairs =
        std::iter::from_fn(move || Some((string_bytes(fields.next()?)?, string_bytes(fields.next()?)?)));
    let Some((_, body)) = pairs.next() else { return Some((id, None)) };
    let text = |text: &Bytes| String::from_utf8_lossy(text).into_owned();
    let attributes = pairs.map(|(name, value)| (text(&name).to_lowercase(), text(&value))).collect();
    Some((id, Some(Message { body, attributes })))
}
