//! What everybody in a world shares: the keys, the bytes, the history, and what was learned of tags.

use super::conditional_writes::Conditions;
use super::key_history::{By, ChangeId, Content, History, Moment, Place, What};
use crate::files::scenario::Setting;
use crate::trace::Tale;
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
const BESIDE: &str = "d";
/// So long is what is written mostly, in bytes.
const LENGTH_MAX: u64 = 3000;
/// And sometimes so long: an `fsync` stores it beside its path.
const LENGTH_LARGE: u64 = 140 << 10;

/// The wall clock is set in one of so many worlds, before one of so many steps, by up to a day forward or back.
const CLOCK_SET_WORLDS: u64 = 3;
const CLOCK_SET_ONE_OF: u64 = 12;
const CLOCK_SET_MINUTES_MAX: u64 = 24 * 60;
/// Such that the other worlds stay as they are.
const CLOCK_SALT: u64 = 83 << 32;

fn clock_setter(seed: u64) -> Option<Rc<Entropy>> {
    let entropy = Entropy::new(!seed ^ CLOCK_SALT);
    (entropy.below(CLOCK_SET_WORLDS) == 0).then(|| Rc::new(entropy))
}

/// What everybody shares. One thread has it; nobody keeps a borrow while waiting.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) by_path: bool,
    pub(super) write_back: bool,
    /// What is written to a file that stays open is stored so long after, in nanoseconds.
    pub(super) publishes_after: Option<Moment>,
    /// Calls may be made twice: that a condition did not hold says nothing then.
    pub(super) has_repeats: bool,
    has_beside: bool,
    clock: Arc<RuntimeClock>,
    /// In some worlds the machine's wall clock is set now and then.
    clock_setter: Option<Rc<Entropy>>,
    pub(super) entropy: Rc<Entropy>,
    pub(super) tale: Tale,
    pub(super) inner: Rc<RefCell<Inner>>,
    pub(super) conditions: Rc<RefCell<Conditions>>,
}

pub(super) struct Inner {
    pub(super) history: History,
    /// Which bytes a tag of a key stands for.
    tags: BTreeMap<(String, ETag), Bytes>,
    /// What of the files lost to the bucket, and when: any one of each.
    pub(super) kept: Vec<(Moment, Vec<Bytes>)>,
    /// Everything that any key ever was: a program moves and edits what others stored, too.
    pub(super) written: BTreeSet<Bytes>,
    /// What would have been written by who failed half-way, nobody knows where.
    pub(super) torn: Vec<Bytes>,
    /// The number that is in all bytes of one change.
    stamp: u32,
    /// What the header says of bytes that the endpoint was given.
    pub(super) described: BTreeMap<Bytes, String>,
    /// Keys of files that are open to be written.
    pub(super) open: Vec<String>,
    pub(super) report: Report,
    /// So many things were begun.
    pub(super) steps: u64,
}

impl Stage {
    pub(super) fn new(
        setting: Setting,
        clock: Arc<RuntimeClock>,
        seed: u64,
        tale: Tale,
        (notice, publishes_after): (Moment, Option<Moment>),
    ) -> Self {
        let entropy = Entropy::new(seed);
        let (by_path, write_back) = (setting.by_path(), setting.write_back);
        let endpoint_notice = if by_path && setting.rates.failures > 0 { notice } else { 0 };
        let inner = Inner {
            history: History::new((!write_back).then_some(notice), endpoint_notice),
            tags: BTreeMap::new(),
            kept: Vec::new(),
            written: BTreeSet::new(),
            torn: Vec::new(),
            stamp: 0,
            described: BTreeMap::new(),
            open: Vec::new(),
            report: Report::default(),
            steps: 0,
        };
        Self {
            by_path,
            write_back,
            publishes_after,
            has_repeats: setting.rates.repeats > 0,
            has_beside: entropy.below(6) == 0,
            clock,
            clock_setter: clock_setter(seed),
            entropy: Rc::new(entropy),
            tale,
            inner: Rc::new(RefCell::new(inner)),
            conditions: Rc::default(),
        }
    }

    /// By the monotonic clock: the history is not rewritten when the wall clock is set.
    pub(super) fn now(&self) -> Moment {
        self.clock.monotonic().as_nanos() as Moment
    }

    /// Whether the wall clock is set at times in this world.
    pub(super) fn sets_clock(&self) -> bool {
        self.clock_setter.is_some()
    }

    pub(super) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    pub(super) fn tell(&self, line: String) {
        self.tale.tell(line);
    }

    pub(super) fn count(&self, what: &'static str) {
        self.inner.borrow_mut().report.count(what);
    }

    pub(super) fn step(&self) {
        self.inner.borrow_mut().steps += 1;
        if let Some(setter) = &self.clock_setter
            && setter.below(CLOCK_SET_ONE_OF) == 0
        {
            let minutes = setter.below(2 * CLOCK_SET_MINUTES_MAX) as i64 - CLOCK_SET_MINUTES_MAX as i64;
            self.tale.tell(format!("the clock is set by {minutes} minutes"));
            self.count("clock set");
            self.clock.set_by(minutes * 60_000_000_000);
        }
    }

    /// One of the keys.
    pub(super) fn key(&self) -> String {
        match self.has_beside && self.below(6) == 0 {
            true => BESIDE.into(),
            false => KEYS[self.below(KEYS.len() as u64) as usize].into(),
        }
    }

    /// Bytes that nobody has written before.
    pub(super) fn bytes(&self) -> Bytes {
        let length = match self.below(40) {
            0 => 0,
            1 => LENGTH_LARGE + self.below(LENGTH_MAX),
            _ => 1 + self.below(LENGTH_MAX),
        };
        self.bytes_of(length)
    }

    /// So many of them.
    pub(super) fn bytes_of(&self, length: u64) -> Bytes {
        let mut inner = self.inner.borrow_mut();
        inner.stamp += 1;
        let stamp = inner.stamp.to_be_bytes();
        (0..length as usize).map(|at| stamp[at % stamp.len()]).collect()
    }

    /// Begins a change.
    pub(super) fn begin(&self, by: By, place: Place, what: What) -> ChangeId {
        let now = self.now();
        self.inner.borrow_mut().history.begin(by, place, what, now)
    }

    /// Begins a change of one key to one content.
    pub(super) fn becomes(&self, by: By, key: &str, content: Content) -> ChangeId {
        if let Some(bytes) = &content {
            self.inner.borrow_mut().written.insert(bytes.clone());
        }
        self.begin(by, Place::Key(key.into()), What::Becomes(vec![content]))
    }

    pub(super) fn done(&self, id: ChangeId, survives_power: bool) {
        let now = self.now();
        self.inner.borrow_mut().history.done(id, now, survives_power);
    }

    pub(super) fn doubt(&self, id: ChangeId) {
        let now = self.now();
        self.inner.borrow_mut().history.doubt(id, now);
    }

    pub(super) fn in_vain(&self, id: ChangeId) {
        let now = self.now();
        self.inner.borrow_mut().history.in_vain(id, now);
    }

    /// What somebody who has looked since a moment may have seen.
    pub(super) fn may_be(&self, key: &str, by: By, since: Moment) -> Option<BTreeSet<Content>> {
        let now = self.now();
        self.inner.borrow().history.may_be(key, by, (since, now))
    }

    /// Whether what was seen since a moment may be.
    pub(super) fn must_be(&self, key: &str, by: By, since: Moment, seen: &Content) -> Result<(), String> {
        match self.may_be(key, by, since) {
            Some(may) if !may.contains(seen) => {
                let may: Vec<String> = may.iter().map(told).collect();
                Err(format!("'{key}' is {} for {by:?}, and may be {}", told(seen), may.join(" or ")))
            }
            _ => Ok(()),
        }
    }

    /// Whether a key may have been nothing at all since a moment.
    pub(super) fn may_be_absent(&self, key: &str, by: By, since: Moment) -> bool {
        self.may_be(key, by, since).is_none_or(|may| may.contains(&None))
    }

    /// Whether a key may have been something since a moment.
    pub(super) fn may_be_there(&self, key: &str, by: By, since: Moment) -> bool {
        self.may_be(key, by, since).is_none_or(|may| may.iter().any(Option::is_some))
    }

    /// By inode an open file goes with its name: what it stores then is at neither key for sure.
    pub(super) fn moves_open(&self, from: &str, to: &str) {
        let mut inner = self.inner.borrow_mut();
        if !self.by_path && inner.open.iter().any(|open| open == from) {
            inner.history.is_wild(from);
            inner.history.is_wild(to);
        }
    }

    /// A tag never stands for other bytes.
    pub(super) fn has_tag(&self, key: &str, tag: &ETag, content: &Bytes) -> Result<(), String> {
        let mut inner = self.inner.borrow_mut();
        let known = inner.tags.entry((key.into(), tag.clone())).or_insert_with(|| content.clone());
        match known == content {
            true => Ok(()),
            false => Err(format!(
                "'{key}' with the tag {tag:?} was {} and is {}",
                told(&Some(known.clone())),
                told(&Some(content.clone()))
            )),
        }
    }

    /// What a tag of a key stands for.
    pub(super) fn tagged(&self, key: &str, tag: &ETag) -> Option<Bytes> {
        self.inner.borrow().tags.get(&(key.into(), tag.clone())).cloned()
    }
}

/// Bytes for people.
pub(super) fn told(content: &Content) -> String {
    match content {
        None => "nothing".into(),
        Some(bytes) => told_bytes(bytes),
    }
}

/// Bytes for people: how many, and of which changes.
pub(super) fn told_bytes(content: &Bytes) -> String {
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
