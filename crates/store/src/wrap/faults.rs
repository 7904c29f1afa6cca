//! Failures on demand: what servers and networks do, at the calls a test names or by a seed.

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

/// How a call fails.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// With this error, before it took effect.
    Before(fn() -> StoreError),
    /// With this error, though it took effect: the reply was lost.
    After(fn() -> StoreError),
    /// With `Unavailable`, before it took effect, after so long: a client tried in vain.
    InVain(Duration),
    /// Not before [`Faults::release`]: no answer.
    Stall,
    /// The body of a `get` breaks off with `Corrupt` after so many bytes.
    CutBody(u64),
    /// The byte at this offset of a `get`'s body is another; nobody says so.
    WrongByte(u64),
    /// A `get` answers with another etag than the object has.
    OtherEtag,
}

impl Fault {
    /// The server does not answer; the call did not reach it.
    pub fn unavailable() -> Self {
        Self::Before(|| StoreError::Unavailable("a fault on demand".into()))
    }

    /// The call took effect, and its reply was lost.
    pub fn lost_reply() -> Self {
        Self::After(|| StoreError::Unavailable("a reply lost on demand".into()))
    }

    /// The server asks to slow down.
    pub fn throttled() -> Self {
        Self::Before(|| StoreError::Throttled("a fault on demand".into()))
    }

    /// Whether it happens to the body, when the call itself has succeeded.
    fn is_of_body(self) -> bool {
        matches!(self, Self::CutBody(_) | Self::WrongByte(_) | Self::OtherEtag)
    }
}

/// Which calls fail, and how. Without conditions: the next call of any kind, once.
#[derive(Debug, Clone)]
pub struct Rule {
    fault: Fault,
    operation: Option<Operation>,
    prefix: Bytes,
    exact: bool,
    skip: u64,
    times: u64,
}

impl Rule {
    /// One call fails so.
    pub fn new(fault: Fault) -> Self {
        Self { fault, operation: None, prefix: Bytes::new(), exact: false, skip: 0, times: 1 }
    }

    /// Only calls of this kind.
    pub fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only calls about this key.
    pub fn at(mut self, key: &ObjectKey) -> Self {
        (self.prefix, self.exact) = (Bytes::copy_from_slice(key.as_bytes()), true);
        self
    }

    /// Only calls about keys that begin so.
    pub fn below(mut self, prefix: &[u8]) -> Self {
        (self.prefix, self.exact) = (Bytes::copy_from_slice(prefix), false);
        self
    }

    /// The first calls it fits pass.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// So many calls fail.
    pub fn times(mut self, calls: u64) -> Self {
        self.times = calls;
        self
    }

    /// Every call fails until [`Faults::clear`].
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    fn fits(&self, call: &Call) -> bool {
        let operation = self.operation.is_none_or(|operation| operation == call.operation);
        let body = !self.fault.is_of_body() || call.operation == Operation::Get;
        let key =
            if self.exact { call.subject == self.prefix } else { call.subject.starts_with(&self.prefix) };
        operation && body && key
    }

    /// Counts a call that fits; whether it fails.
    fn strikes(&mut self) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let left = self.times > 0;
        self.times = self.times.saturating_sub(u64::from(self.times < u64::MAX));
        left
    }
}

/// The plan of a faulty store, which tests change while it runs. Clones share it.
#[derive(Clone)]
pub struct Faults(Arc<Shared>);

struct Shared {
    plan: Mutex<Plan>,
    /// Counts the releases.
    released: watch::Sender<u64>,
}

#[derive(Default)]
struct Plan {
    down: bool,
    rules: Vec<Rule>,
    random: Option<Random>,
    struck: BTreeMap<Operation, u64>,
}

struct Random {
    entropy: Arc<Entropy>,
    per_thousand: u64,
    faults: Vec<Fault>,
}

impl Faults {
    /// Nothing fails yet.
    pub fn new() -> Self {
        Self(Arc::new(Shared { plan: Mutex::default(), released: watch::Sender::new(0) }))
    }

    /// Adds a rule; of several that fit, the first added strikes.
    pub fn add(&self, rule: Rule) {
        self.plan().rules.push(rule);
    }

    /// Lets so many of a thousand calls fail, each by one of these faults that can happen to it.
    pub fn at_random(&self, entropy: Arc<Entropy>, per_thousand: u64, faults: Vec<Fault>) {
        self.plan().random = Some(Random { entropy, per_thousand, faults });
    }

    /// Forgets all rules and chances. Calls that stall go on stalling.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.random = None;
    }

    /// While it is down every call fails as `Unavailable`, before it takes effect.
    pub fn set_down(&self, down: bool) {
        self.plan().down = down;
    }

    /// Lets every call that stalls now go on.
    pub fn release(&self) {
        self.0.released.send_modify(|count| *count += 1);
    }

    /// How many calls of this kind have failed on demand.
    pub fn struck(&self, operation: Operation) -> u64 {
        self.plan().struck.get(&operation).copied().unwrap_or(0)
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
    /// The fault that happens to a call, if any; those of the body have their own turn.
    fn strike(&mut self, call: &Call, of_body: bool) -> Option<Fault> {
        let rule = self
            .rules
            .iter_mut()
            .filter(|rule| rule.fault.is_of_body() == of_body && rule.fits(call))
            .find_map(|rule| rule.strikes().then_some(rule.fault));
        let fault = rule.or_else(|| self.random.as_ref()?.strike(of_body))?;
        *self.struck.entry(call.operation).or_default() += 1;
        Some(fault)
    }
}

impl Random {
    fn strike(&self, of_body: bool) -> Option<Fault> {
        let faults: Vec<Fault> =
            self.faults.iter().copied().filter(|fault| fault.is_of_body() == of_body).collect();
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
                return Err(StoreError::Unavailable("the store is down on demand".into()));
            }
            (plan.strike(call, false), self.0.released.subscribe())
        };
        match fault {
            Some(Fault::Before(error)) => return Err(error()),
            Some(Fault::After(error)) => {
                work.await?;
                return Err(error());
            }
            Some(Fault::InVain(so_long)) => {
                tokio::time::sleep(so_long).await;
                return Err(StoreError::Unavailable(format!("nothing came for {} s", so_long.as_secs_f32())));
            }
            // The sender lives as long as `self`, so the only end of the wait is a release.
            Some(Fault::Stall) => drop(released.changed().await),
            _ => {}
        }
        work.await
    }

    fn received(&self, call: &Call, object: Object) -> Object {
        match self.plan().strike(call, true) {
            Some(Fault::CutBody(after)) => Object { body: cut(object.body, after), ..object },
            Some(Fault::WrongByte(at)) => Object { body: with_wrong_byte(object.body, at), ..object },
            Some(Fault::OtherEtag) => with_other_etag(object),
            _ => object,
        }
    }
}

type Body = BoxStream<'static, Result<Bytes>>;

/// The beginning of a body, then an error, even if the body ends just there.
fn cut(body: Body, after: u64) -> Body {
    let beginning = body.scan(after, |left, chunk| {
        let chunk = chunk.map(|chunk| chunk.slice(..chunk.len().min(*left as usize)));
        *left -= chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        let ended = *left == 0 && chunk.as_ref().is_ok_and(Bytes::is_empty);
        std::future::ready((!ended).then_some(chunk))
    });
    let error = move || StoreError::Corrupt(format!("the body broke off after {after} bytes on demand"));
    beginning.chain(stream::once(async move { Err(error()) })).boxed()
}

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

fn flipped(chunk: &Bytes, at: usize, left: &mut u64) -> Bytes {
    *left = u64::MAX;
    let mut bytes = chunk.to_vec();
    bytes[at] ^= 0xff;
    bytes.into()
}

fn with_other_etag(mut object: Object) -> Object {
    let etag = format!("{}-other", object.meta.object.etag);
    object.meta.object.etag = ETag::new(&etag);
    object
}
