//! Injects latency, failures, repeated calls and crashes into calls of the store and commits of the metadata.
//!
//! Invariant: after the crash no call takes effect and no call returns.

use super::scenario::FaultRates;
use crate::trace::Trace;
use futures_util::{StreamExt as _, TryStreamExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use store::wrap::{Call, Fault, Faults, Layer, Operation};
use store::{Entropy, Object, StoreError};
use tokio::sync::Notify;

/// Maximum latency before a call and again after it, in milliseconds.
const LATENCY_MS_MAX: u64 = 4;
/// Maximum duration of a slow copy before its effect and again after it, in milliseconds. Exports and moves copy objects in the
/// background, so that programs change a file during its export and rename it again during its move.
const SLOW_COPY_MS_MAX: u64 = 1500;
/// Number of calls until the crash of a session whose crash was cancelled.
const CANCELLED: u64 = u64::MAX;
/// Name of the bucket in the trace.
pub(super) const BUCKET: &str = "bucket";
/// Duration of a stalled upload.
pub(super) const STALL: Duration = Duration::from_secs(3600);
/// Prefix of the keys of the first program, which are stalled or refused.
const FIRST_PROGRAM: &[u8] = b"p0/";
/// A body that is cut ends before this byte.
const BODY_BYTES_CUT: u64 = 7;

/// The fault injector of one session.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    pub(crate) entropy: Arc<Entropy>,
    rates: FaultRates,
    is_slow: bool,
    /// The bucket takes long for copies.
    has_slow_copies: bool,
    faults: Faults,
    /// Number of live [`FaultPause`] guards; faults are injected only while it is 0.
    pauses: AtomicUsize,
    /// Calls until the crash; 0: no crash.
    calls_left: AtomicU64,
    has_crashed: AtomicBool,
    crash_signal: Notify,
    repeated_calls: AtomicU64,
    disk_failures: AtomicU64,
    /// Failures whose result was returned. A waiter on another call's request learns of the failure only then.
    reported_failures: AtomicU64,
    /// Number of begins and ends of file system syncs by any program.
    syncs: AtomicU64,
    /// Events of the first program's uploads.
    first_program: FirstProgram,
    trace: Trace,
}

/// Events of the first program's uploads, which no other program must notice.
#[derive(Debug, Default)]
struct FirstProgram {
    /// One of its uploads takes [`STALL`].
    stalls: AtomicBool,
    /// The bucket refuses all its changes, and would refuse them again.
    is_refused: AtomicBool,
}

/// Where the crash is relative to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    NoCrash,
    Before,
    After,
}

/// A guard: no fault is injected while it exists.
#[derive(Debug)]
pub(crate) struct FaultPause(Arc<FaultInjector>);

impl FaultInjector {
    /// Makes an injector without faults until [`FaultInjector::start`].
    pub(crate) fn new(
        seed: u64,
        rates: FaultRates,
        (is_slow, has_slow_copies): (bool, bool),
        trace: Trace,
    ) -> Arc<Self> {
        Arc::new(Self {
            entropy: Arc::new(Entropy::new(seed)),
            rates,
            is_slow,
            has_slow_copies,
            faults: Faults::new(),
            pauses: AtomicUsize::new(0),
            calls_left: AtomicU64::new(0),
            has_crashed: AtomicBool::new(false),
            crash_signal: Notify::new(),
            repeated_calls: AtomicU64::new(0),
            disk_failures: AtomicU64::new(0),
            reported_failures: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            first_program: FirstProgram::default(),
            trace,
        })
    }

    /// Starts to inject faults, and a crash after this many calls; `None`: no crash.
    pub(crate) fn start(&self, calls_to_crash: Option<u64>) {
        self.calls_left.store(calls_to_crash.unwrap_or(0), Ordering::SeqCst);
        self.resume_faults();
    }

    /// Cancels the crash, so that the session ends with a clean shutdown.
    pub(crate) fn cancel_crash(&self) {
        self.calls_left.store(CANCELLED, Ordering::SeqCst);
    }

    fn is_crash_cancelled(&self) -> bool {
        self.calls_left.load(Ordering::SeqCst) == CANCELLED
    }

    pub(crate) fn pause_faults(self: &Arc<Self>) -> FaultPause {
        self.pauses.fetch_add(1, Ordering::SeqCst);
        self.faults.clear();
        FaultPause(self.clone())
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.has_crashed.load(Ordering::SeqCst)
    }

    /// Waits until the machine crashes.
    pub(crate) async fn wait_for_crash(&self) {
        loop {
            let signal = self.crash_signal.notified();
            if self.has_crashed() {
                return;
            }
            signal.await;
        }
    }

    /// Returns the number of injected faults and of failures returned so far.
    pub(crate) fn fault_count(&self) -> u64 {
        let failed: u64 = Operation::ALL.iter().map(|operation| self.faults.struck(*operation)).sum();
        let others = [&self.repeated_calls, &self.disk_failures, &self.reported_failures];
        failed + others.iter().map(|count| count.load(Ordering::SeqCst)).sum::<u64>()
    }

    /// Counts the begin or the end of a file system sync.
    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of begins and ends of syncs so far.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// Draws whether a call is sent twice, and counts it.
    pub(crate) fn draw_repeat(&self) -> bool {
        let repeats = self.draw_unless_paused(|| self.entropy.below(1000) < self.rates.repeats);
        self.repeated_calls.fetch_add(u64::from(repeats), Ordering::SeqCst);
        repeats
    }

    /// Draws whether the metadata disk is full, and counts it.
    pub(crate) fn draw_disk_failure(&self) -> bool {
        let fails = self.draw_unless_paused(|| self.entropy.below(1000) < self.rates.disk_failures);
        self.disk_failures.fetch_add(u64::from(fails), Ordering::SeqCst);
        fails
    }

    /// Makes the next upload of the first program take [`STALL`].
    pub(super) fn stall_first_program(&self) {
        self.first_program.stalls.store(true, Ordering::SeqCst);
    }

    /// Sets whether the bucket refuses all changes of the first program.
    pub(super) fn refuse_first_program(&self, is_refused: bool) {
        self.first_program.is_refused.store(is_refused, Ordering::SeqCst);
    }

    /// Returns whether a call changes an object of the first program in the bucket.
    fn is_of_first_program(&self, target: &str, call: &Call) -> bool {
        let is_read = matches!(
            call.operation,
            Operation::Get | Operation::Head | Operation::List | Operation::GetTags | Operation::Abort
        );
        target == BUCKET && !is_read && call.subject.starts_with(FIRST_PROGRAM)
    }

    /// Waits if this is the call that is stalled.
    async fn stall(&self, target: &str, call: &Call) {
        if self.is_of_first_program(target, call) && self.first_program.stalls.swap(false, Ordering::SeqCst) {
            self.trace.push(format!("    an upload takes {STALL:?}"));
            tokio::time::sleep(STALL).await;
        }
    }

    fn is_refused(&self, target: &str, call: &Call) -> bool {
        self.first_program.is_refused.load(Ordering::SeqCst) && self.is_of_first_program(target, call)
    }

    fn draw_unless_paused(&self, happens: impl FnOnce() -> bool) -> bool {
        self.pauses.load(Ordering::SeqCst) == 0 && happens()
    }

    /// Counts down a call or a commit, and returns whether the machine crashes there.
    pub(crate) fn next_crash_point(&self) -> CrashPoint {
        if self.is_crash_cancelled() {
            return CrashPoint::NoCrash;
        }
        let left = self.calls_left.load(Ordering::SeqCst);
        self.calls_left.store(left.saturating_sub(1), Ordering::SeqCst);
        match left {
            1 if self.entropy.below(2) == 0 => CrashPoint::Before,
            1 => CrashPoint::After,
            _ => CrashPoint::NoCrash,
        }
    }

    pub(crate) fn trace_line(&self, line: String) {
        self.trace.push(line);
    }

    pub(crate) fn crash(&self, what: &str) {
        self.trace.push(format!("    the machine crashes at {what}"));
        self.has_crashed.store(true, Ordering::SeqCst);
        self.crash_signal.notify_waiters();
    }

    /// Never returns if the machine has crashed.
    async fn hang_if_crashed(&self) {
        if self.has_crashed() {
            std::future::pending::<()>().await;
        }
    }

    async fn delay(&self) {
        if self.is_slow {
            tokio::time::sleep(Duration::from_millis(self.entropy.below(LATENCY_MS_MAX + 1))).await;
        }
    }

    /// Waits if this is a slow copy.
    async fn delay_copy(&self, target: &str, call: &Call) {
        if self.has_slow_copies && target == BUCKET && call.operation == Operation::Copy {
            tokio::time::sleep(Duration::from_millis(self.entropy.below(SLOW_COPY_MS_MAX))).await;
        }
    }

    fn resume_faults(&self) {
        if self.pauses.load(Ordering::SeqCst) == 0 && self.rates.failures > 0 {
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

impl Drop for FaultPause {
    fn drop(&mut self) {
        self.0.pauses.fetch_sub(1, Ordering::SeqCst);
        self.0.resume_faults();
    }
}

/// A layer between the file system and a store that applies the injector's faults.
#[derive(Debug, Clone)]
pub(crate) struct FaultLayer {
    pub(crate) injector: Arc<FaultInjector>,
    /// Name of the store in the trace.
    pub(crate) target: &'static str,
}

impl Layer for FaultLayer {
    async fn around<T: Send>(
        &self,
        call: &Call,
        work: impl Future<Output = store::Result<T>> + Send,
    ) -> store::Result<T> {
        let injector = &*self.injector;
        injector.hang_if_crashed().await;
        injector.delay().await;
        injector.delay_copy(self.target, call).await;
        injector.stall(self.target, call).await;
        injector.hang_if_crashed().await;
        let describe = || {
            let key = String::from_utf8_lossy(&call.subject);
            format!("{} {:?} '{key}'", self.target, call.operation)
        };
        match injector.next_crash_point() {
            CrashPoint::NoCrash => {}
            CrashPoint::Before => injector.crash(&format!("{}, before its effect", describe())),
            CrashPoint::After => {
                let done = work.await;
                if injector.is_crash_cancelled() {
                    // The programs have ended meanwhile.
                    return done;
                }
                injector.crash(&format!("{}, after its effect", describe()));
                return std::future::pending().await;
            }
        }
        injector.hang_if_crashed().await;
        let done = match injector.is_refused(self.target, call) {
            true => Err(StoreError::Denied("refused (injected)".into())),
            false => work.await,
        };
        injector.hang_if_crashed().await;
        injector.delay().await;
        injector.delay_copy(self.target, call).await;
        injector.hang_if_crashed().await;
        injector.trace.push(format!("    {}: {}", describe(), describe_outcome(&done)));
        injector.reported_failures.fetch_add(u64::from(done.is_err()), Ordering::SeqCst);
        done
    }

    fn received(&self, _: &Call, object: Object) -> Object {
        let injector = self.injector.clone();
        let count = move |_: &StoreError| {
            injector.reported_failures.fetch_add(1, Ordering::SeqCst);
        };
        Object { body: object.body.inspect_err(count).boxed(), ..object }
    }
}

fn describe_outcome<T>(done: &store::Result<T>) -> String {
    match done {
        Ok(_) => "done".into(),
        Err(StoreError::NotFound(_)) => "not found".into(),
        Err(error) => error.to_string(),
    }
}
