//! What happens to calls on their way: they take time, fail, are made twice, and the machine crashes at one of them.
//!
//! Invariant: after the crash no call takes effect and none is answered.

use super::scenario::Rates;
use crate::trace::Tale;
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use store::wrap::{Call, Fault, Faults, Layer, Operation};
use store::{Entropy, Object, StoreError};
use tokio::sync::Notify;

/// A call takes up to twice so long, in milliseconds.
const LATENCY_MS_MAX: u64 = 4;
/// A body that breaks off does so before this byte.
const BODY_BYTES_CUT: u64 = 7;

/// The weather of one life.
#[derive(Debug)]
pub(crate) struct Weather {
    pub(crate) entropy: Arc<Entropy>,
    rates: Rates,
    is_slow: bool,
    faults: Faults,
    /// How many look at the file system while nothing may fail.
    calm: AtomicUsize,
    /// Calls until the crash; 0: there is none.
    calls_left: AtomicU64,
    has_crashed: AtomicBool,
    crash: Notify,
    repeats: AtomicU64,
    disk_failures: AtomicU64,
    /// Failures that were answered: who waits for what another call asked for hears of it then.
    answered: AtomicU64,
    /// Syncs of everything, by any program, that began or ended.
    syncs: AtomicU64,
    tale: Tale,
}

/// What a call finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sky {
    Clear,
    CrashBefore,
    CrashAfter,
}

/// The weather is fine until this is dropped.
#[derive(Debug)]
pub(crate) struct Calm(Arc<Weather>);

impl Weather {
    /// Fine, until [`Weather::begin`].
    pub(crate) fn new(seed: u64, rates: Rates, is_slow: bool, tale: Tale) -> Arc<Self> {
        Arc::new(Self {
            entropy: Arc::new(Entropy::new(seed)),
            rates,
            is_slow,
            faults: Faults::new(),
            calm: AtomicUsize::new(0),
            calls_left: AtomicU64::new(0),
            has_crashed: AtomicBool::new(false),
            crash: Notify::new(),
            repeats: AtomicU64::new(0),
            disk_failures: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            tale,
        })
    }

    /// From now on calls fail, and after so many the machine crashes.
    pub(crate) fn begin(&self, calls_to_crash: Option<u64>) {
        self.calls_left.store(calls_to_crash.unwrap_or(0), Ordering::SeqCst);
        self.unsettle();
    }

    /// No more crash: the life ends as it should.
    pub(crate) fn end(&self) {
        self.calls_left.store(0, Ordering::SeqCst);
    }

    pub(crate) fn calm(self: &Arc<Self>) -> Calm {
        self.calm.fetch_add(1, Ordering::SeqCst);
        self.faults.clear();
        Calm(self.clone())
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.has_crashed.load(Ordering::SeqCst)
    }

    /// Returns when the machine crashes.
    pub(crate) async fn crash(&self) {
        loop {
            let crash = self.crash.notified();
            if self.has_crashed() {
                return;
            }
            crash.await;
        }
    }

    /// How many calls did not go as they should so far.
    pub(crate) fn struck(&self) -> u64 {
        let failed: u64 = Operation::ALL.iter().map(|operation| self.faults.struck(*operation)).sum();
        let others = [&self.repeats, &self.disk_failures, &self.answered];
        failed + others.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>()
    }

    /// A program's sync of everything begins or ends.
    pub(crate) fn note_sync(&self) {
        self.syncs.fetch_add(1, Ordering::SeqCst);
    }

    /// How many syncs began or ended so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Whether a call is made twice.
    pub(crate) fn repeats(&self) -> bool {
        let repeats = self.may_happen(|| self.entropy.below(1000) < self.rates.repeats);
        self.repeats.fetch_add(u64::from(repeats), Ordering::SeqCst);
        repeats
    }

    /// Whether the disk of the metadata is full.
    pub(crate) fn disk_fails(&self) -> bool {
        let fails = self.may_happen(|| self.entropy.below(1000) < self.rates.disk_failures);
        self.disk_failures.fetch_add(u64::from(fails), Ordering::SeqCst);
        fails
    }

    fn may_happen(&self, happens: impl FnOnce() -> bool) -> bool {
        self.calm.load(Ordering::SeqCst) == 0 && happens()
    }

    /// Counts a call, or a commit of the metadata.
    pub(crate) fn sky(&self) -> Sky {
        let left = self.calls_left.load(Ordering::SeqCst);
        self.calls_left.store(left.saturating_sub(1), Ordering::SeqCst);
        match left {
            1 if self.entropy.below(2) == 0 => Sky::CrashBefore,
            1 => Sky::CrashAfter,
            _ => Sky::Clear,
        }
    }

    pub(crate) fn tell(&self, line: String) {
        self.tale.tell(line);
    }

    pub(crate) fn strike(&self, what: &str) {
        self.tale.tell(format!("    the machine crashes at {what}"));
        self.has_crashed.store(true, Ordering::SeqCst);
        self.crash.notify_waiters();
    }

    /// Never returns once the machine has crashed.
    async fn alive(&self) {
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
    }

    async fn delay(&self) {
        if self.is_slow {
            tokio::time::sleep(Duration::from_millis(self.entropy.below(LATENCY_MS_MAX + 1))).await;
        }
    }

    fn unsettle(&self) {
        if self.calm.load(Ordering::SeqCst) == 0 && self.rates.failures > 0 {
            let faults = vec![
                Fault::unavailable(),
                Fault::throttled(),
                Fault::lost_reply(),
                Fault::lost_reply(),
                Fault::CutBody(self.entropy.below(BODY_BYTES_CUT)),
            ];
            self.faults.at_random(self.entropy.clone(), self.rates.failures, faults);
        }
    }
}

impl Drop for Calm {
    fn drop(&mut self) {
        self.0.calm.fetch_sub(1, Ordering::SeqCst);
        self.0.unsettle();
    }
}

/// Between the file system and what keeps its bytes.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) weather: Arc<Weather>,
    /// For the tale.
    pub(crate) to: &'static str,
}

impl Layer for Way {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let weather = &*self.weather;
        weather.alive().await;
        weather.delay().await;
        weather.alive().await;
        let told = || {
            let key = String::from_utf8_lossy(&call.subject);
            format!("{} {:?} '{key}'", self.to, call.operation)
        };
        match weather.sky() {
            Sky::Clear => {}
            Sky::CrashBefore => weather.strike(&format!("{}, before it", told())),
            Sky::CrashAfter => {
                drop(work.await);
                weather.strike(&format!("{}, after it", told()));
                return std::future::pending().await;
            }
        }
        weather.alive().await;
        let done = work.await;
        weather.alive().await;
        weather.delay().await;
        weather.alive().await;
        weather.tale.tell(format!("    {}: {}", told(), outcome(&done)));
        weather.answered.fetch_add(u64::from(done.is_err()), Ordering::SeqCst);
        done
    }

    fn received(&self, _: &Call, object: Object) -> Object {
        let weather = self.weather.clone();
        let count = move |_: &StoreError| {
            weather.answered.fetch_add(1, Ordering::SeqCst);
        };
        Object { body: object.body.inspect_err(count).boxed(), ..object }
    }
}

fn outcome<T>(done: &store::Result<T>) -> String {
    match done {
        Ok(_) => "done".into(),
        Err(StoreError::NotFound(_)) => "not found".into(),
        Err(error) => error.to_string(),
    }
}
