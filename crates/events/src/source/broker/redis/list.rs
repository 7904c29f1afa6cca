//! A list to which somebody appends, as MinIO does in its format `access`.
//!
//! What is received moves to a list of this source's own, from which it is taken when it was processed. Each connection takes a
//! number from the server, and its list is called after it:
//!
//! | key | |
//! |---|---|
//! | `KEY:tenon:last` | the last number |
//! | `KEY:tenon:alive` | the set of numbers whose lists may hold something |
//! | `KEY:tenon:N` | what N received and did not acknowledge, oldest first |
//! | `KEY:tenon:N:lease` | there while N lives; ends by itself |
//!
//! Invariants: a list gets messages only while its number is in the set; who takes over a list, after its lease ended, takes the
//! number from the set in the same step; who finds his number gone hands out his list anew.

use super::{DEAD, LOOK_FOR_LEFT, Link, Server, WAIT, bytes, elements};
use crate::source::{Message, Source, SourceError};
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Value};
use tokio::time::Instant;

/// Renews the lease, moves what there is, and says whether the number is new in the set, and what comes after what was handed out.
/// Keys: the list, the own list, the lease, the set. Arguments: number, milliseconds, handed out, how many.
const MOVE: &str = "
redis.call('SET', KEYS[3], 1, 'PX', ARGV[2])
local new = redis.call('SADD', KEYS[4], ARGV[1])
local handed = new == 1 and 0 or tonumber(ARGV[3])
local missing = tonumber(ARGV[4]) - (redis.call('LLEN', KEYS[2]) - handed)
while missing > 0 and redis.call('LMOVE', KEYS[1], KEYS[2], 'LEFT', 'RIGHT') do missing = missing - 1 end
return {new, redis.call('LRANGE', KEYS[2], handed, handed + ARGV[4] - 1)}";

/// Takes what was handed out from the own list, unless it was taken over. Keys: the own list, the set. Arguments: number, how many.
const TAKE: &str = "
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 0 then return 0 end
redis.call('LTRIM', KEYS[1], ARGV[2], -1)
return 1";

/// Takes over what a dead one left. Keys: its list, its lease, the own list, the set. Argument: its number.
const TAKE_OVER: &str = "
if redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
local moved = 0
while redis.call('LMOVE', KEYS[1], KEYS[3], 'LEFT', 'RIGHT') do moved = moved + 1 end
redis.call('SREM', KEYS[4], ARGV[1])
return moved";

/// A list's source.
#[derive(Debug)]
pub(super) struct List {
    queue: Queue,
    share: Option<Share>,
}

/// The list that all who share the work have.
#[derive(Debug)]
struct Queue {
    key: String,
    server: Server,
}

/// What one connection has of it.
#[derive(Debug)]
struct Share {
    link: Link,
    number: u64,
    /// How many of the own list's messages were handed out.
    handed: usize,
    looked: Option<Instant>,
}

impl List {
    pub(super) fn new(key: String, server: Server) -> Self {
        Self { queue: Queue { key, server }, share: None }
    }
}

#[async_trait::async_trait]
impl Source for List {
    /// What a question that was dropped has moved is in the own list, and is found there.
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let share = match &mut self.share {
            Some(share) => share,
            none => none.insert(self.queue.join().await?),
        };
        let received = self.queue.next(share, max).await;
        if received.is_err() {
            self.share = None;
        }
        received
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let Some(share) = &mut self.share else { return Ok(()) };
        let taken = self.queue.take_handed(share).await;
        if taken.is_err() {
            self.share = None;
        }
        taken
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let Some(share) = &mut self.share else { return Ok(None) };
        let mut length = redis::cmd("LLEN");
        length.arg(&self.queue.key);
        self.queue.ask(&mut share.link, &length).await.map(Some)
    }
}

impl Queue {
    async fn join(&self) -> Result<Share, SourceError> {
        let mut link = self.server.connect(AsyncConnectionConfig::new()).await?;
        let mut next = redis::cmd("INCR");
        next.arg(self.named("last"));
        let number = self.ask(&mut link, &next).await?;
        Ok(Share { link, number, handed: 0, looked: None })
    }

    async fn next(&self, share: &mut Share, max: usize) -> Result<Vec<Message>, SourceError> {
        loop {
            if share.looked.is_none_or(|looked| looked.elapsed() >= LOOK_FOR_LEFT) {
                self.take_over(share).await?;
                share.looked = Some(Instant::now());
            }
            let messages = self.take_some(share, max).await?;
            if !messages.is_empty() {
                return Ok(messages);
            }
            self.wait(share).await?;
        }
    }

    async fn take_some(&self, share: &mut Share, max: usize) -> Result<Vec<Message>, SourceError> {
        let number = share.number;
        let mut script = redis::cmd("EVAL");
        script.arg(MOVE).arg(4).arg(&self.key).arg(self.own(number)).arg(self.lease(number));
        script.arg(self.named("alive")).arg(number).arg(dead_ms()).arg(share.handed).arg(max);
        let (is_new, moved): (bool, Value) = self.ask(&mut share.link, &script).await?;
        if is_new {
            share.handed = 0;
        }
        let messages: Vec<_> = elements(moved).into_iter().filter_map(bytes).map(Message::from).collect();
        share.handed += messages.len();
        Ok(messages)
    }

    /// Until there is something, which is then in the own list, or a moment has passed.
    async fn wait(&self, share: &mut Share) -> Result<(), SourceError> {
        let number = share.number;
        let questions = || {
            let mut questions = redis::pipe();
            questions.cmd("SADD").arg(self.named("alive")).arg(number);
            questions.cmd("SET").arg(self.lease(number)).arg(1).arg("PX").arg(dead_ms()).ignore();
            questions.cmd("BLMOVE").arg(&self.key).arg(self.own(number)).arg("LEFT").arg("RIGHT");
            questions.arg(WAIT.as_secs()).ignore();
            questions
        };
        let answer = share.link.wait(questions).await.map_err(|error| self.server.error(&error))?;
        if elements(answer).first() == Some(&Value::Int(1)) {
            share.handed = 0;
        }
        Ok(())
    }

    async fn take_over(&self, share: &mut Share) -> Result<(), SourceError> {
        let mut members = redis::cmd("SMEMBERS");
        members.arg(self.named("alive"));
        let alive: Vec<u64> = self.ask(&mut share.link, &members).await?;
        for other in alive.into_iter().filter(|number| *number != share.number) {
            let mut script = redis::cmd("EVAL");
            script.arg(TAKE_OVER).arg(4).arg(self.own(other)).arg(self.lease(other));
            script.arg(self.own(share.number)).arg(self.named("alive")).arg(other);
            let moved: u64 = self.ask(&mut share.link, &script).await?;
            if moved > 0 {
                tracing::info!(
                    list = self.key,
                    moved,
                    "took over what a source that ended had not acknowledged"
                );
            }
        }
        Ok(())
    }

    async fn take_handed(&self, share: &mut Share) -> Result<(), SourceError> {
        let mut script = redis::cmd("EVAL");
        script.arg(TAKE).arg(2).arg(self.own(share.number)).arg(self.named("alive"));
        script.arg(share.number).arg(share.handed);
        let is_taken: bool = self.ask(&mut share.link, &script).await?;
        if is_taken {
            share.handed = 0;
            return Ok(());
        }
        let late = "messages were processed so slowly that another source took them over; they come again";
        Err(self.server.place.unavailable(late))
    }

    async fn ask<T: FromRedisValue>(&self, link: &mut Link, question: &Cmd) -> Result<T, SourceError> {
        question.query_async(&mut link.connection).await.map_err(|error| self.server.error(&error))
    }

    fn named(&self, what: &str) -> String {
        format!("{}:tenon:{what}", self.key)
    }

    fn own(&self, number: u64) -> String {
        self.named(&number.to_string())
    }

    fn lease(&self, number: u64) -> String {
        self.named(&format!("{number}:lease"))
    }
}

fn dead_ms() -> u64 {
    u64::try_from(DEAD.as_millis()).unwrap_or(u64::MAX)
}
