//! What everybody in a world shares: the keys, the bytes, the history, and what was learned of tags.

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

/// Keys that everybody changes; `d` and `e` are directories.
const KEYS: [&str; 7] = ["a", "b", "d/a", "d/b", "e/a", "d/f/a", "e/b"];
/// A key that is a directory of others too.
const SHADOWED_KEY: &str = "d";
/// So long is what is written mostly, in bytes.
const LEN_BYTES_MAX: u64 = 3000;
/// And sometimes so long: an `fsync` stores it beside its path.
const LARGE_LEN_BYTES: u64 = 140 << 10;

/// The wall clock is set in one of so many worlds, before one of so many steps, by up to a day forward or back.
const CLOCK_SET_ONE_IN_WORLDS: u64 = 3;
const CLOCK_SET_ONE_IN_STEPS: u64 = 12;
const CLOCK_SET_MINUTES_MAX: u64 = 24 * 60;
/// Such that the other worlds stay as they are.
const CLOCK_SALT: u64 = 83 << 32;

fn draw_clock_entropy(seed: u64) -> Option<Rc<Entropy>> {
    let entropy = Entropy::new(!seed ^ CLOCK_SALT);
    (entropy.below(CLOCK_SET_ONE_IN_WORLDS) == 0).then(|| Rc::new(entropy))
}

/// What everybody shares. One thread has it; nobody keeps a borrow while waiting.
#[derive(Clone)]
pub(super) struct SharedState {
    pub(super) by_path: bool,
    pub(super) write_back: bool,
    /// What is written to a file that stays open is stored so long after, in nanoseconds.
    pub(super) publish_interval: Option<Moment>,
    /// Calls may be made twice: that a condition did not hold says nothing then.
    pub(super) has_repeats: bool,
    has_shadowed_key: bool,
    clock: Arc<RuntimeClock>,
    /// In some worlds the machine's wall clock is set now and then.
    clock_entropy: Option<Rc<Entropy>>,
    pub(super) entropy: Rc<Entropy>,
    pub(super) trace: Trace,
    pub(super) inner: Rc<RefCell<SharedInner>>,
    pub(super) conditional_writes: Rc<RefCell<ConditionalWrites>>,
}

pub(super) struct SharedInner {
    pub(super) history: History,
    /// Which bytes a tag of a key stands for.
    tags: BTreeMap<(String, ETag), Bytes>,
    /// What of the files lost to the bucket, and when: any one of each.
    pub(super) lost_to_bucket: Vec<(Moment, Vec<Bytes>)>,
    /// Everything that any key ever was: a program moves and edits what others stored, too.
    pub(super) written: BTreeSet<Bytes>,
    /// What would have been written by who failed half-way, nobody knows where.
    pub(super) partial_writes: Vec<Bytes>,
    /// The number that is in all bytes of one change.
    stamp: u32,
    /// What the header says of bytes that the endpoint was given.
    pub(super) expected_headers: BTreeMap<Bytes, String>,
    /// Keys of files that are open to be written.
    pub(super) open_keys: Vec<String>,
    pub(super) report: Report,
    /// So many things were begun.
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
        let endpoint_delay = if by_path && scenario.rates.failures > 0 { foreign_delay } else { 0 };
        let inner = SharedInner {
            history: History::new((!write_back).then_some(foreign_delay), endpoint_delay),
            tags: BTreeMap::new(),
            lost_to_bucket: Vec::new(),
            written: BTreeSet::new(),
            partial_writes: Vec::new(),
            stamp: 0,
            expected_headers: BTreeMap::new(),
            open_keys: Vec::new(),
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
            clock_entropy: draw_clock_entropy(seed),
            entropy: Rc::new(entropy),
            trace,
            inner: Rc::new(RefCell::new(inner)),
            conditional_writes: Rc::default(),
        }
    }

    /// By the monotonic clock: the history is not rewritten when the wall clock is set.
    pub(super) fn now(&self) -> Moment {
        self.clock.monotonic().as_nanos() as Moment
    }

    /// Whether the wall clock is set at times in this world.
    pub(super) fn has_clock_jumps(&self) -> bool {
        self.clock_entropy.is_some()
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

    pub(super) fn count_step(&self) {
        self.inner.borrow_mut().steps += 1;
        if let Some(clock_entropy) = &self.clock_entropy
            && clock_entropy.below(CLOCK_SET_ONE_IN_STEPS) == 0
        {
            let minutes =
                clock_entropy.below(2 * CLOCK_SET_MINUTES_MAX) as i64 - CLOCK_SET_MINUTES_MAX as i64;
            self.trace.push(format!("the clock is set by {minutes} minutes"));
            self.count("clock changes");
            self.clock.set_by(minutes * 60_000_000_000);
        }
    }

    /// One of the keys.
    pub(super) fn random_key(&self) -> String {
        match self.has_shadowed_key && self.below(6) == 0 {
            true => SHADOWED_KEY.into(),
            false => KEYS[self.below(KEYS.len() as u64) as usize].into(),
        }
    }

    /// Bytes that nobody has written before.
    pub(super) fn fresh_bytes(&self) -> Bytes {
        let length = match self.below(40) {
            0 => 0,
            1 => LARGE_LEN_BYTES + self.below(LEN_BYTES_MAX),
            _ => 1 + self.below(LEN_BYTES_MAX),
        };
        self.fresh_bytes_of_len(length)
    }

    /// So many of them.
    pub(super) fn fresh_bytes_of_len(&self, length: u64) -> Bytes {
        let mut inner = self.inner.borrow_mut();
        inner.stamp += 1;
        let stamp = inner.stamp.to_be_bytes();
        (0..length as usize).map(|at| stamp[at % stamp.len()]).collect()
    }

    /// Begins a change.
    pub(super) fn begin(&self, by: Actor, place: KeySet, what: ChangeEffect) -> ChangeId {
        let now = self.now();
        self.inner.borrow_mut().history.begin(by, place, what, now)
    }

    /// Begins a change of one key to one content.
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

    /// What somebody who has looked since a moment may have seen.
    pub(super) fn possible_contents(&self, key: &str, by: Actor, since: Moment) -> Option<BTreeSet<Content>> {
        let now = self.now();
        self.inner.borrow().history.possible_contents(key, by, (since, now))
    }

    /// Whether what was seen since a moment may be.
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
                Err(format!("'{key}' is {} for {by:?}, and may be {}", describe(seen), may.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a key may have been nothing at all since a moment.
    pub(super) fn may_be_absent(&self, key: &str, by: Actor, since: Moment) -> bool {
        self.possible_contents(key, by, since).is_none_or(|may| may.contains(&None))
    }

    /// Whether a key may have been something since a moment.
    pub(super) fn may_exist(&self, key: &str, by: Actor, since: Moment) -> bool {
        self.possible_contents(key, by, since).is_none_or(|may| may.iter().any(Option::is_some))
    }

    /// By inode an open file goes with its name: what it stores then is at neither key for sure.
    pub(super) fn forget_moved_open(&self, from: &str, to: &str) {
        let mut inner = self.inner.borrow_mut();
        if !self.by_path && inner.open_keys.iter().any(|open| open == from) {
            inner.history.mark_unknown(from);
            inner.history.mark_unknown(to);
        }
    }

    /// A tag never stands for other bytes.
    pub(super) fn check_tag(&self, key: &str, tag: &ETag, content: &Bytes) -> Result<(), String> {
        let mut inner = self.inner.borrow_mut();
        let known = inner.tags.entry((key.into(), tag.clone())).or_insert_with(|| content.clone());
        match known == content {
            true => Ok(()),
            false => Err(format!(
                "'{key}' with the tag {tag:?} was {} and is {}",
                describe(&Some(known.clone())),
                describe(&Some(content.clone()))
            )),
        }
    }

    /// What a tag of a key stands for.
    pub(super) fn bytes_of_tag(&self, key: &str, tag: &ETag) -> Option<Bytes> {
        self.inner.borrow().tags.get(&(key.into(), tag.clone())).cloned()
    }
}

/// Bytes for people.
pub(super) fn describe(content: &Content) -> String {
    match content {
        None => "nothing".into(),
        Some(bytes) => describe_bytes(bytes),
    }
}

/// Bytes for people: how many, and of which changes.
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
