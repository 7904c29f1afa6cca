//! State that all clients of a world share: keys, contents, the history, and known tags.

use super::conditional_writes::ConditionalWrites;
use super::key_history::{Actor, ChangeEffect, ChangeId, Content, History, KeySet, Moment};
use crate::files::scenario::Scenario;
use crate::trace::Trace;
use crate::{Report, RuntimeClock};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock as _, ETag, Entropy, ObjectKey};

/// Keys that all clients change; `d` and `e` are directories.
const KEYS: [&str; 7] = ["a", "b", "d/a", "d/b", "e/a", "d/f/a", "e/b"];
/// A key that is also a directory of other keys.
const SHADOWED_KEY: &str = "d";
/// Typical maximum length of a write, in bytes.
const LEN_BYTES_MAX: u64 = 3000;
/// Length of a large write, in bytes: an `fsync` stores it as a delta object.
const LARGE_LEN_BYTES: u64 = 140 << 10;

/// The wall clock is changed in one of this many worlds, before one of this many steps, by up to a day.
const CLOCK_SET_ONE_IN_WORLDS: u64 = 3;
const CLOCK_SET_ONE_IN_STEPS: u64 = 12;
const CLOCK_SET_MINUTES_MAX: u64 = 24 * 60;
/// Salts of the draws, so that worlds without clock changes and disconnections stay the same.
const CLOCK_SALT: u64 = 83 << 32;
const DISCONNECT_SALT: u64 = 89 << 32;
/// S3 clients disconnect in one of this many worlds, during one of this many requests, after at most this time.
const DISCONNECT_ONE_IN_WORLDS: u64 = 3;
const DISCONNECT_ONE_IN_REQUESTS: u64 = 6;
const DISCONNECT_MICROS_MAX: u64 = 8000;
/// In one of this many worlds the kernel's queue of invalidations is so short that it overflows.
const SHORT_QUEUE_ONE_IN_WORLDS: u64 = 3;
const SHORT_QUEUE_SALT: u64 = 97 << 32;
/// In one of this many worlds some objects of the foreign writer have the length and the metadata of the object that the mount shows.
const LOOKALIKE_ONE_IN_WORLDS: u64 = 3;
const LOOKALIKE_ONE_IN_PUTS: u64 = 2;
const LOOKALIKE_SALT: u64 = 101 << 32;

/// Returns the entropy of an event that occurs in one of `one_in` worlds, if it occurs in this one.
fn draw_entropy(seed: u64, salt: u64, one_in: u64) -> Option<Rc<Entropy>> {
    let entropy = Entropy::new(!seed ^ salt);
    (entropy.below(one_in) == 0).then(|| Rc::new(entropy))
}

/// The entropies of events that occur in some worlds only. `None`: not in this one.
#[derive(Clone)]
struct RareEvents {
    clock_changes: Option<Rc<Entropy>>,
    disconnections: Option<Rc<Entropy>>,
    lookalikes: Option<Rc<Entropy>>,
    short_queues: Option<Rc<Entropy>>,
}

impl RareEvents {
    fn draw(seed: u64) -> Self {
        Self {
            clock_changes: draw_entropy(seed, CLOCK_SALT, CLOCK_SET_ONE_IN_WORLDS),
            disconnections: draw_entropy(seed, DISCONNECT_SALT, DISCONNECT_ONE_IN_WORLDS),
            lookalikes: draw_entropy(seed, LOOKALIKE_SALT, LOOKALIKE_ONE_IN_WORLDS),
            short_queues: draw_entropy(seed, SHORT_QUEUE_SALT, SHORT_QUEUE_ONE_IN_WORLDS),
        }
    }
}

/// The shared state. It stays on one thread, and no borrow is held across an await.
#[derive(Clone)]
pub(super) struct SharedState {
    pub(super) by_path: bool,
    pub(super) write_back: bool,
    /// Time after which the content of an open file is stored, in nanoseconds.
    pub(super) publish_interval: Option<Moment>,
    /// Calls may be repeated, so that a failed precondition proves nothing.
    pub(super) has_repeats: bool,
    has_shadowed_key: bool,
    clock: Arc<RuntimeClock>,
    rare_events: RareEvents,
    pub(super) entropy: Rc<Entropy>,
    pub(super) trace: Trace,
    pub(super) inner: Rc<RefCell<SharedInner>>,
    pub(super) conditional_writes: Rc<RefCell<ConditionalWrites>>,
    /// Contents that the foreign writer has replaced or deleted in the bucket.
    pub(super) replaced_in_bucket: Rc<RefCell<BTreeSet<Bytes>>>,
}

pub(super) struct SharedInner {
    pub(super) history: History,
    /// Content of each tag of a key.
    tags: BTreeMap<(String, ETag), Bytes>,
    /// Contents that lost a conflict to the bucket, with the time. One content of each list must be in `lost+found`.
    pub(super) lost_to_bucket: Vec<(Moment, Vec<Bytes>)>,
    /// All contents that any key ever had. The file client also moves and edits contents of other writers.
    pub(super) written: BTreeSet<Bytes>,
    /// Contents of failed writes, of which a prefix may be stored.
    pub(super) partial_writes: Vec<Bytes>,
    /// Number that all bytes of one change contain.
    stamp: u32,
    /// Expected header of contents stored through the endpoint.
    pub(super) expected_headers: BTreeMap<Bytes, String>,
    /// Keys of files that are open for writing.
    pub(super) open_keys: Vec<String>,
    /// Keys to which the endpoint may have renamed open files in this session.
    pub(super) renamed_open_keys: BTreeSet<String>,
    /// Keys of files that a sync may have stored in deltas, and when the close that puts the file together ended. Until then listings show
    /// the object from before.
    pub(super) in_deltas: BTreeMap<String, Moment>,
    pub(super) report: Report,
    /// Number of ops begun.
    pub(super) steps: u64,
}

impl SharedState {
    pub(super) fn new(
        scenario: Scenario,
        clock: Arc<RuntimeClock>,
        seed: u64,
        trace: Trace,
        (foreign_delay, publish_interval): (Moment, Option<Moment>),
    ) -> Self {
        let entropy = Entropy::new(seed);
        let (by_path, write_back) = (scenario.by_path(), scenario.write_back);
        let rare_events = RareEvents::draw(seed);
        // The mount does not look up the result of a request whose client disconnected.
        let has_unconfirmed_changes = scenario.rates.failures > 0 || rare_events.disconnections.is_some();
        let endpoint_delay = if by_path && has_unconfirmed_changes { foreign_delay } else { 0 };
        let inner = SharedInner {
            history: History::new((!write_back).then_some(foreign_delay), endpoint_delay),
            tags: BTreeMap::new(),
            lost_to_bucket: Vec::new(),
            written: BTreeSet::new(),
            partial_writes: Vec::new(),
            stamp: 0,
            expected_headers: BTreeMap::new(),
            open_keys: Vec::new(),
            renamed_open_keys: BTreeSet::new(),
            in_deltas: BTreeMap::new(),
            report: Report::default(),
            steps: 0,
        };
        Self {
            by_path,
            write_back,
            publish_interval,
            has_repeats: scenario.rates.repeats > 0,
            has_shadowed_key: entropy.below(6) == 0,
            clock,
            rare_events,
            entropy: Rc::new(entropy),
            trace,
            inner: Rc::new(RefCell::new(inner)),
            conditional_writes: Rc::default(),
            replaced_in_bucket: Rc::default(),
        }
    }

    /// Returns the monotonic time, which changes of the wall clock do not affect.
    pub(super) fn now(&self) -> Moment {
        self.clock.monotonic().as_nanos() as Moment
    }

    /// Whether the wall clock is changed in this world.
    pub(super) fn has_clock_jumps(&self) -> bool {
        self.rare_events.clock_changes.is_some()
    }

    /// Awaits an S3 request, unless its client disconnects first: then the request is dropped, and it may take effect now or later,
    /// like one that a crash interrupts.
    pub(super) async fn unless_disconnected<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let entropy = self.rare_events.disconnections.as_ref();
        let Some(entropy) = entropy.filter(|entropy| entropy.below(DISCONNECT_ONE_IN_REQUESTS) == 0) else {
            return Some(request.await);
        };
        let patience = Duration::from_micros(entropy.below(DISCONNECT_MICROS_MAX));
        let outcome = tokio::time::timeout(patience, request).await.ok();
        if outcome.is_none() {
            self.count("requests whose client disconnected");
            self.trace_line(format!("the client disconnects after {patience:?}"));
        }
        outcome
    }

    /// Draws whether the foreign writer stores an object that looks like the one that the mount shows.
    pub(super) fn draw_lookalike(&self) -> bool {
        let entropy = self.rare_events.lookalikes.as_ref();
        entropy.is_some_and(|entropy| entropy.below(LOOKALIKE_ONE_IN_PUTS) == 0)
    }

    /// Returns the length of the kernel's queue of invalidations in a mount; `None`: the queue of a real mount.
    pub(super) fn short_queue(&self) -> Option<usize> {
        self.rare_events.short_queues.as_ref().map(|entropy| 1 + entropy.below(3) as usize)
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    pub(super) fn trace_line(&self, line: String) {
        self.trace.push(line);
    }

    pub(super) fn count(&self, what: &'static str) {
        self.inner.borrow_mut().report.count(what);
    }

    pub(super) fn add_count(&self, what: &'static str, count: u64) {
        self.inner.borrow_mut().report.add_count(what, count);
    }

    pub(super) fn count_step(&self) {
        self.inner.borrow_mut().steps += 1;
        if let Some(clock_entropy) = &self.rare_events.clock_changes
            && clock_entropy.below(CLOCK_SET_ONE_IN_STEPS) == 0
        {
            let minutes =
                clock_entropy.below(2 * CLOCK_SET_MINUTES_MAX) as i64 - CLOCK_SET_MINUTES_MAX as i64;
            self.trace.push(format!("the clock is changed by {minutes} minutes"));
            self.count("clock changes");
            self.clock.set_by(minutes * 60_000_000_000);
        }
    }

    /// Returns a random key.
    pub(super) fn random_key(&self) -> String {
        match self.has_shadowed_key && self.below(6) == 0 {
            true => SHADOWED_KEY.into(),
            false => KEYS[self.below(KEYS.len() as u64) as usize].into(),
        }
    }

    /// Returns bytes that no change has written before.
    pub(super) fn fresh_bytes(&self) -> Bytes {
        let length = match self.below(40) {
            0 => 0,
            1 => LARGE_LEN_BYTES + self.below(LEN_BYTES_MAX),
            _ => 1 + self.below(LEN_BYTES_MAX),
        };
        self.fresh_bytes_of_len(length)
    }

    /// Returns unique bytes of a given length.
    pub(super) fn fresh_bytes_of_len(&self, length: u64) -> Bytes {
        let mut inner = self.inner.borrow_mut();
        inner.stamp += 1;
        // The lowest byte is the first, so that a few bytes are unique too.
        let stamp = inner.stamp.to_le_bytes();
        (0..length as usize).map(|at| stamp[at % stamp.len()]).collect()
    }

    /// Begins a change.
    pub(super) fn begin(&self, by: Actor, place: KeySet, what: ChangeEffect) -> ChangeId {
        let now = self.now();
        self.inner.borrow_mut().history.begin(by, place, what, now)
    }

    /// Begins a change that sets a key to one content.
    pub(super) fn begin_set(&self, by: Actor, key: &str, content: Content) -> ChangeId {
        if let Some(bytes) = &content {
            self.inner.borrow_mut().written.insert(bytes.clone());
        }
        self.begin(by, KeySet::Key(key.into()), ChangeEffect::Sets(vec![content]))
    }

    pub(super) fn complete(&self, id: ChangeId, survives_power: bool) {
        let now = self.now();
        self.inner.borrow_mut().history.complete(id, now, survives_power);
    }

    pub(super) fn mark_uncertain(&self, id: ChangeId) {
        let now = self.now();
        self.inner.borrow_mut().history.mark_uncertain(id, now);
    }

    pub(super) fn mark_failed(&self, id: ChangeId) {
        let now = self.now();
        self.inner.borrow_mut().history.mark_failed(id, now);
    }

    /// Returns the contents that a read from `since` to now may have seen; `None`: any content.
    pub(super) fn possible_contents(&self, key: &str, by: Actor, since: Moment) -> Option<BTreeSet<Content>> {
        let now = self.now();
        self.inner.borrow().history.possible_contents(key, by, (since, now))
    }

    /// Checks that a content that was read since a time is possible.
    pub(super) fn check_content(
        &self,
        key: &str,
        by: Actor,
        since: Moment,
        seen: &Content,
    ) -> Result<(), String> {
        match self.possible_contents(key, by, since) {
            Some(may) if !may.contains(seen) => {
                let may: Vec<String> = may.iter().map(describe).collect();
                Err(format!("'{key}' is {} for {by:?} and must be {}", describe(seen), may.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a key may have had no object at some time since `since`.
    pub(super) fn may_be_absent(&self, key: &str, by: Actor, since: Moment) -> bool {
        self.possible_contents(key, by, since).is_none_or(|may| may.contains(&None))
    }

    /// Whether a key may have had an object at some time since `since`.
    pub(super) fn may_exist(&self, key: &str, by: Actor, since: Moment) -> bool {
        self.possible_contents(key, by, since).is_none_or(|may| may.iter().any(Option::is_some))
    }

    /// Marks both keys of a renamed open file as unknown, also if the file was open for a while only since the rename began. By inode an
    /// open file moves with its name, and may be stored at either key.
    pub(super) fn forget_moved_open(&self, from: &str, to: &str, since: Moment) {
        let mut inner = self.inner.borrow_mut();
        let was_open = inner.open_keys.iter().any(|open| open == from)
            || inner.renamed_open_keys.contains(from)
            || inner.history.may_have_changed(from, &[Actor::Files], since);
        if !self.by_path && was_open {
            inner.history.mark_unknown(from);
            inner.history.mark_unknown(to);
            inner.renamed_open_keys.insert(to.into());
        }
    }

    /// Checks that a tag always stands for the same bytes.
    pub(super) fn check_tag(&self, key: &str, tag: &ETag, content: &Bytes) -> Result<(), String> {
        let mut inner = self.inner.borrow_mut();
        let known = inner.tags.entry((key.into(), tag.clone())).or_insert_with(|| content.clone());
        match known == content {
            true => Ok(()),
            false => Err(format!(
                "'{key}' with the tag {tag:?} was {} and is now {}",
                describe(&Some(known.clone())),
                describe(&Some(content.clone()))
            )),
        }
    }

    /// Returns the content of a key's tag.
    pub(super) fn bytes_of_tag(&self, key: &str, tag: &ETag) -> Option<Bytes> {
        self.inner.borrow().tags.get(&(key.into(), tag.clone())).cloned()
    }
}

/// Describes a content for messages.
pub(super) fn describe(content: &Content) -> String {
    match content {
        None => "nothing".into(),
        Some(bytes) => describe_bytes(bytes),
    }
}

/// Describes bytes for messages: their length, and the stamps in them.
pub(super) fn describe_bytes(content: &Bytes) -> String {
    let mut of = Vec::new();
    for byte in content.iter().filter(|byte| **byte > 0) {
        if of.len() < 8 && !of.contains(byte) {
            of.push(*byte);
        }
    }
    format!("{} bytes of {of:02x?}", content.len())
}

pub(super) fn object_key(key: &str) -> Result<ObjectKey, String> {
    ObjectKey::try_from(key).map_err(|error| error.to_string())
}
