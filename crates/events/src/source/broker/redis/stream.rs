//! A stream, read as one of a consumer group.
//!
//! Who reads takes a number from the server (`KEY:tenon:last`) and is the group's consumer `tenon-N`. What it received and did not
//! acknowledge is pending for it, and others claim it once it is idle for too long.

use super::{DEAD, LOOK_FOR_LEFT, Link, Server, WAIT, bytes, elements};
use crate::source::{Message, Source, SourceError};
use bytes::Bytes;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value};
use std::collections::{HashMap, HashSet, VecDeque};
use tokio::time::Instant;

/// Removes consumers that have nothing pending and have not asked for an hour; they come back by asking. In one step, because what
/// is pending for a consumer that is removed is lost. Key: the stream. Arguments: the group, milliseconds.
const FORGET: &str = "
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local said = {}
  for i = 1, #consumer, 2 do said[consumer[i]] = consumer[i + 1] end
  if said.pending == 0 and said.idle > tonumber(ARGV[2]) and string.find(said.name, '^tenon%-%d+$') then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], said.name)
  end
end";

const FORGOTTEN_AFTER_MS: u64 = 3_600_000;

/// A stream's source.
#[derive(Debug)]
pub(super) struct Stream {
    group: Group,
    share: Option<Share>,
}

/// What all who share the work have.
#[derive(Debug)]
struct Group {
    key: String,
    name: String,
    server: Server,
}

/// What one connection has of it.
#[derive(Debug)]
struct Share {
    link: Link,
    consumer: String,
    /// What came and was not yet handed out.
    ready: VecDeque<Entry>,
    /// The ids of what was handed out and not yet acknowledged.
    handed: HashSet<Bytes>,
    looked: Option<Instant>,
}

/// An entry: its id, and what it says unless it was deleted.
type Entry = (Bytes, Option<Message>);

impl Stream {
    pub(super) fn new(key: String, group: String, server: Server) -> Self {
        Self { group: Group { key, name: group, server }, share: None }
    }
}

#[async_trait::async_trait]
impl Source for Stream {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let share = match &mut self.share {
            Some(share) => share,
            none => none.insert(self.group.join().await?),
        };
        let received = self.group.next(share, max).await;
        if received.is_err() {
            self.share = None;
        }
        received
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let acknowledged = self.group.acknowledge(share).await;
        if acknowledged.is_err() {
            self.share = None;
        }
        acknowledged
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(share) = &mut self.share else { return Ok(None) };
        self.group.lag(&mut share.link).await
    }
}

impl Group {
    async fn join(&self) -> Result<Share, SourceError> {
        let mut link = self.server.connect(AsyncConnectionConfig::new()).await?;
        self.make(&mut link).await?;
        let mut next = redis::cmd("INCR");
        next.arg(format!("{}:tenon:last", self.key));
        let number: u64 = self.ask(&mut link, &next).await?;
        let consumer = format!("tenon-{number}");
        Ok(Share { link, consumer, ready: VecDeque::new(), handed: HashSet::new(), looked: None })
    }

    /// Makes the group, and the stream, unless they are there. A new group begins with the stream's first entry.
    async fn make(&self, link: &mut Link) -> Result<(), SourceError> {
        let mut make = redis::cmd("XGROUP");
        make.arg("CREATE").arg(&self.key).arg(&self.name).arg("0").arg("MKSTREAM");
        match make.query_async::<Value>(&mut link.connection).await {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            made => made.map(drop).map_err(|error| self.server.error(&error)),
        }
    }

    async fn next(&self, share: &mut Share, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            let messages = hand_out(share, max);
            if !messages.is_empty() {
                return Ok(messages);
            }
            if share.looked.is_none_or(|looked| looked.elapsed() >= LOOK_FOR_LEFT) {
                self.claim(share, max).await?;
            }
            if share.ready.is_empty() {
                self.read(share, max).await?;
            }
        }
    }

    /// New entries; none after a while.
    async fn read(&self, share: &mut Share, max: usize) -> Result<(), SourceError> {
        let consumer = &share.consumer;
        let question = || {
            let mut question = redis::pipe();
            question.cmd("XREADGROUP").arg("GROUP").arg(&self.name).arg(consumer);
            question.arg("COUNT").arg(max).arg("BLOCK").arg(WAIT.as_millis() as u64);
            question.arg("STREAMS").arg(&self.key).arg(">");
            question
        };
        let answer = share.link.wait(question).await.map_err(|error| self.error(&error))?;
        // The one stream's entries; nil if there are none.
        let Some(Value::Map(streams)) = elements(answer).into_iter().next() else { return Ok(()) };
        let entries = streams.into_iter().flat_map(|(_, entries)| elements(entries));
        share.ready.extend(entries.filter_map(read_entry));
        Ok(())
    }

    /// Takes over what has been pending for somebody too long. The oldest first, until there is something.
    async fn claim(&self, share: &mut Share, max: usize) -> Result<(), SourceError> {
        let mut forget = redis::cmd("EVAL");
        forget.arg(FORGET).arg(1).arg(&self.key).arg(&self.name).arg(FORGOTTEN_AFTER_MS);
        let _: Value = self.ask(&mut share.link, &forget).await?;
        let mut from = Bytes::from_static(b"0-0");
        loop {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim.arg(&self.key).arg(&self.name).arg(&share.consumer).arg(DEAD.as_millis() as u64);
            claim.arg(from.as_ref()).arg("COUNT").arg(max);
            // Redis 7 adds what it found deleted.
            let mut answer = elements(self.ask(&mut share.link, &claim).await?).into_iter();
            from = answer.next().and_then(bytes).unwrap_or_default();
            share
                .ready
                .extend(elements(answer.next().unwrap_or_default()).into_iter().filter_map(read_entry));
            let is_all = matches!(from.as_ref(), b"" | b"0-0");
            if is_all {
                share.looked = Some(Instant::now());
            }
            if is_all || !share.ready.is_empty() {
                return Ok(());
            }
        }
    }

    async fn acknowledge(&self, share: &mut Share) -> Result<(), SourceError> {
        if share.handed.is_empty() {
            return Ok(());
        }
        let mut done = redis::cmd("XACK");
        done.arg(&self.key).arg(&self.name);
        for id in &share.handed {
            done.arg(id.as_ref());
        }
        self.ask::<Value>(&mut share.link, &done).await?;
        share.handed.clear();
        Ok(())
    }

    /// How many entries the group has not been given, which Redis tells since version 7, and not where entries were deleted.
    async fn lag(&self, link: &mut Link) -> Result<Option<u64>, SourceError> {
        let mut about = redis::cmd("XINFO");
        about.arg("GROUPS").arg(&self.key);
        let groups: Vec<HashMap<String, Value>> = self.ask(link, &about).await?;
        let is_ours = |group: &HashMap<String, Value>| {
            let name = group.get("name").cloned().and_then(bytes);
            name.is_some_and(|name| name == self.name.as_bytes())
        };
        let lag = groups.iter().find(|group| is_ours(group)).and_then(|group| group.get("lag"));
        Ok(lag.and_then(|lag| match lag {
            Value::Int(lag) => u64::try_from(*lag).ok(),
            _ => None,
        }))
    }

    async fn ask<T: FromRedisValue>(&self, link: &mut Link, question: &Cmd) -> Result<T, SourceError> {
        question.query_async(&mut link.connection).await.map_err(|error| self.error(&error))
    }

    fn error(&self, error: &RedisError) -> SourceError {
        match error.code() {
            // Somebody removed the group, or the stream with it: the next connection makes it anew.
            Some("NOGROUP") => {
                self.server.place.unavailable(format_args!("the group '{}' is gone", self.name))
            }
            _ => self.server.error(error),
        }
    }
}

/// The next messages, except of those that were claimed though they were handed out here. What was deleted from the stream is
/// acknowledged with them.
fn hand_out(share: &mut Share, max: usize) -> Vec<Message> {
    let mut messages = Vec::with_capacity(max.min(share.ready.len()));
    while messages.len() < max
        && let Some((id, message)) = share.ready.pop_front()
    {
        if share.handed.insert(id) {
            messages.extend(message);
        }
    }
    messages
}

/// The first field is the message; further fields are its attributes.
fn read_entry(entry: Value) -> Option<Entry> {
    let mut parts = elements(entry).into_iter();
    let id = bytes(parts.next()?)?;
    let mut fields = elements(parts.next().unwrap_or_default()).into_iter();
    let mut pairs = std::iter::from_fn(move || Some((bytes(fields.next()?)?, bytes(fields.next()?)?)));
    let Some((_, body)) = pairs.next() else { return Some((id, None)) };
    let text = |text: &Bytes| String::from_utf8_lossy(text).into_owned();
    let attributes = pairs.map(|(name, value)| (text(&name).to_lowercase(), text(&value))).collect();
    Some((id, Some(Message { body, attributes })))
}
