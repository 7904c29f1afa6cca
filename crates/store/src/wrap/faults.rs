//! Fault injection: failures of servers and networks, at the calls that a test names or at random by a seed.

use super::{Call, Layer, Operation};
use crate::{ETag, Entropy, Object, ObjectKey, Result, StoreError};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A fault of a call.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// The call fails with this error before it takes effect.
    Before(fn() -> StoreError),
    /// The call takes effect and fails with this error: the reply was lost.
    After(fn() -> StoreError),
    /// The call fails with `Unavailable` before it takes effect, after this time: a client retried in vain.
    InVain(Duration),
    /// The call gets no answer before [`Faults::release`].
    Stall,
    /// The body of a `get` ends with `Corrupt` after this many bytes.
    CutBody(u64),
    /// The byte at this offset of a `get`'s body is wrong, without an error.
    WrongByte(u64),
    /// A `get` returns another etag than the object has.
    OtherEtag,
}

impl Fault {
    /// Returns a fault: the server does not answer, and the call does not reach it.
    pub fn unavailable() -> Self {
        Self::Before(|| StoreError::Unavailable("an injected fault".into()))
    }

    /// Returns a fault: the call takes effect, and its reply is lost.
    pub fn lost_reply() -> Self {
        Self::After(|| StoreError::Unavailable("an injected loss of the reply".into()))
    }

    /// Returns a fault: the server asks to slow down.
    pub fn throttled() -> Self {
        Self::Before(|| StoreError::Throttled("an injected fault".into()))
    }

    /// Returns whether the fault affects the body, after the call itself has succeeded.
    fn affects_body(self) -> bool {
        matches!(self, Self::CutBody(_) | Self::WrongByte(_) | Self::OtherEtag)
    }
}

/// A rule that decides which calls fail, and how. Without conditions the next call of any kind fails, once.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    operation: Option<Operation>,
    prefix: Bytes,
    /// Whether `prefix` is a whole key.
    exact: bool,
    /// Number of matching calls that still pass.
    skip: u64,
    /// Number of calls that fail, after those that are skipped.
    times: u64,
}

impl Rule {
    /// Makes one call fail with this fault.
    pub fn new(fault: Fault) -> Self {
        Self { fault, operation: None, prefix: Bytes::new(), exact: false, skip: 0, times: 1 }
    }

    /// Restricts the rule to calls of this kind.
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Restricts the rule to calls about this key.
    pub fn at(mut self, key: &ObjectKey) -> Self {
        (self.prefix, self.exact) = (Bytes::copy_from_slice(key.as_bytes()), true);
        self
    }

    /// Restricts the rule to calls about keys with this prefix.
    pub fn below(mut self, prefix: &[u8]) -> Self {
        (self.prefix, self.exact) = (Bytes::copy_from_slice(prefix), false);
        self
    }

    /// Lets the first matching calls pass.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Makes this many calls fail.
    pub fn times(mut self, calls: u64) -> Self {
        self.times = calls;
        self
    }

    /// Makes every call fail until [`Faults::clear`].
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// Returns whether the rule applies to a call.
    fn fits(&self, call: &Call) -> bool {
        let operation = self.operation.is_none_or(|operation| operation == call.operation);
        let body = !self.fault.affects_body() || call.operation == Operation::Get;
        let key =
            if self.exact { call.subject == self.prefix } else { call.subject.starts_with(&self.prefix) };
        operation && body && key
    }

    /// Counts a matching call. Returns whether the rule's fault applies to the call.
    fn count_call(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let left = self.times > 0;
        self.times = self.times.saturating_sub(u64::from(self.times < u64::MAX));
        left
    }
}

/// The faults of a store, which tests change while it runs. Clones share them.
#[derive(Clone)]
pub struct Faults(Arc<State>);

struct State {
    plan: Mutex<Plan>,
    /// Number of releases.
    released: watch::Sender<u64>,
}

/// The planned faults, and the counts of those that happened.
#[derive(Default)]
struct Plan {
    /// Whether the store is down: all calls fail.
    down: bool,
    rules: Vec<Rule>,
    random: Option<Random>,
    fault_counts: BTreeMap<Operation, u64>,
}

/// Faults at random.
struct Random {
    entropy: Arc<Entropy>,
    /// Faults per thousand calls.
    per_thousand: u64,
    faults: Vec<Fault>,
}

impl Faults {
    /// Creates a plan without faults.
    pub fn new() -> Self {
        Self(Arc::new(State { plan: Mutex::default(), released: watch::Sender::new(0) }))
    }

    /// Adds a rule. Of several matching rules the first added applies.
    pub fn add(&self, rule: Rule) {
        self.plan().rules.push(rule);
    }

    /// Makes `per_thousand` of a thousand calls fail at random, each with one of the faults that can affect it.
    /// Faults of the body are drawn separately, for `get` calls that have succeeded.
    pub fn at_random(&self, entropy: Arc<Entropy>, per_thousand: u64, faults: Vec<Fault>) {
        self.plan().random = Some(Random { entropy, per_thousand, faults });
    }

    /// Removes all rules and random faults. Stalled calls stay stalled.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.random = None;
    }

    /// Makes every call fail with `Unavailable`, before it takes effect, as long as the store is set down.
    pub fn set_down(&self, down: bool) {
        self.plan().down = down;
    }

    /// Releases every call that is stalled now.
    pub fn release(&self) {
        self.0.released.send_modify(|count| *count += 1);
    }

    /// Returns how many calls of this kind got an injected fault, those of the body included. Calls that failed because
    /// the store is down do not count.
    pub fn struck(&self, operation: Operation) -> u64 {
        self.plan().fault_counts.get(&operation).copied().unwrap_or(0)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = self.plan();
        f.debug_struct("Faults").field("down", &plan.down).field("rules", &plan.rules).finish_non_exhaustive()
    }
}

impl Plan {
    /// Returns the fault of a call, if any, and counts it. Faults of the body are picked separately (`body_only`),
    /// after the call.
    fn pick_fault(&mut self, call: &Call, body_only: bool) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .filter(|rule| rule.fault.affects_body() == body_only && rule.fits(call))
            .find_map(|rule| rule.count_call().then_some(rule.fault));
        let fault = rule.or_else(|| self.random.as_ref()?.pick_fault(body_only))?;
        *self.fault_counts.entry(call.operation).or_default() += 1;
        Some(fault)
    }
}

impl Random {
    fn pick_fault(&self, body_only: bool) -> Option<Fault> {
        let faults: Vec<Fault> =
            self.faults.iter().copied().filter(|fault| fault.affects_body() == body_only).collect();
        if faults.is_empty() || self.entropy.below(1000) >= self.per_thousand {
            return None;
        }
        faults.get(self.entropy.below(faults.len() as u64) as usize).copied()
    }
}

impl Layer for Faults {
    async fn around<T: Send>(&self, call: &Call, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let (fault, mut released) = {
            let mut plan = self.plan();
            if plan.down {
                return Err(StoreError::Unavailable("the store is down by an injected fault".into()));
            }
            (plan.pick_fault(call, false), self.0.released.subscribe())
        };
        match fault {
            Some(Fault::Before(error)) => return Err(error()),
            Some(Fault::After(error)) => {
                work.await?;
                return Err(error());
            }
            Some(Fault::InVain(delay)) => {
                tokio::time::sleep(delay).await;
                return Err(StoreError::Unavailable(format!(
                    "an injected fault: no answer for {} s",
                    delay.as_secs_f32()
                )));
            }
            // The sender lives as long as `self`, so the wait can only end by a release.
            Some(Fault::Stall) => drop(released.changed().await),
            _ => {}
        }
        work.await
    }

    fn received(&self, call: &Call, object: Object) -> Object {
        match self.plan().pick_fault(call, true) {
            Some(Fault::CutBody(after)) => Object { body: cut(object.body, after), ..object },
            Some(Fault::WrongByte(at)) => Object { body: with_wrong_byte(object.body, at), ..object },
            Some(Fault::OtherEtag) => with_other_etag(object),
            _ => object,
        }
    }
}

type Body = BoxStream<'static, Result<Bytes>>;

/// Returns the beginning of a body, then an error, even if the body ends exactly there.
fn cut(body: Body, after: u64) -> Body {
    let beginning = body.scan(after, |left, chunk| {
        let chunk = chunk.map(|chunk| chunk.slice(..chunk.len().min(*left as usize)));
        *left -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let ended = *left == 0 && chunk.as_ref().is_ok_and(Bytes::is_empty);
        std::future::ready((!ended).then_some(chunk))
    });
    let error = move || StoreError::Corrupt(format!("an injected fault ended the body after {after} bytes"));
    beginning.chain(stream::once(async move { Err(error()) })).boxed()
}

/// Returns a body in which the byte at an offset is wrong.
fn with_wrong_byte(body: Body, at: u64) -> Body {
    body.scan(at, |left, chunk| {
        let chunk = chunk.map(|chunk| {
            let before = *left;
            *left = left.saturating_sub(chunk.len() as u64);
            if before < chunk.len() as u64 { flipped(&chunk, before as usize, left) } else { chunk }
        });
        std::future::ready(Some(chunk))
    })
    .boxed()
}

/// Returns a chunk with all bits of one byte inverted, and notes that this is done.
fn flipped(chunk: &Bytes, at: usize, left: &mut u64) -> Bytes {
    *left = u64::MAX;
    let mut bytes = chunk.to_vec();
    bytes[at] ^= 0xff;
    bytes.into()
}

/// Returns an object with another etag than it has in the store.
fn with_other_etag(mut object: Object) -> Object {
    let etag = format!("{}-other", object.meta.object.etag);
    object.meta.object.etag = ETag::new(&etag);
    object
}
