//! Figures of the kernel's requests: counts, failures, bytes and, while they are measured, times by operation and by
//! process. While there are observers, it also passes each answered request to them.
//!
//! Invariant: a request is in progress from its decoding until its reply was sent, or was dropped.

use crate::errno_names::ERRORS;
use crate::operations::{Operation, RequestCounts};
use crate::processes::Processes;
use crate::profile::{Profile, ProfileRow};
use crate::reply::log_errno;
use crate::traced_operation::{
    ObservedRequest, OperationObservation, ReplySummary, Subject, SubjectRef, TracedOperation,
};
use fuser::Errno;
use metrics::{Histogram, HistogramSnapshot, Observers, SampledObserver, Sampler, Switch, SwitchedOn};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use tokio::time::Instant;
use vfs::{Cause, Error};

/// The operation that may wait for another program. It is not counted as in progress, because it does not hang.
const WAITING: Operation = Operation::SetLkW;

/// Name under which errors that are not in [`ERRORS`] are counted.
const OTHER_ERRORS: &str = "other";

thread_local! {
    /// The request that this thread is decoding, while times are measured.
    static ARRIVED: Cell<Option<Arrival>> = const { Cell::new(None) };
    /// Subject of that request, while requests are observed.
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

/// Time of arrival of a request, and the thread of the program that made it.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at: Instant,
    thread: u32,
    /// The request's number and choice, if it is reported to observers.
    observed: Option<Observed>,
}

/// The number of a request that is observed.
#[derive(Debug, Clone, Copy)]
struct Observed {
    id: u64,
    /// Whether the sampler has chosen the request.
    is_sampled: bool,
}

/// The figures of a mount's requests.
#[derive(Debug)]
pub struct Meter {
    counts: RequestCounts,
    /// Numbers of replies with each of [`ERRORS`], and with another error.
    errors: [AtomicU64; ERRORS.len() + 1],
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    in_progress: AtomicU64,
    latencies: [Histogram; Operation::ALL.len()],
    /// On while times are measured.
    timing: Switch,
    /// On while a profile is recorded.
    profiling: Switch,
    profiles: Mutex<Vec<Weak<Profile>>>,
    observers: Observers<TracedOperation>,
    /// The observer of a share of the requests, and what measures their times for it.
    sampled: OnceLock<(SampledObserver<TracedOperation>, SwitchedOn)>,
    processes: Processes,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            counts: RequestCounts::default(),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            in_progress: AtomicU64::new(0),
            latencies: std::array::from_fn(|_| Histogram::default()),
            timing: Switch::default(),
            profiling: Switch::default(),
            profiles: Mutex::default(),
            observers: Observers::default(),
            sampled: OnceLock::new(),
            processes: Processes::default(),
        }
    }

    /// Measures the times of requests until the returned value is dropped.
    pub fn measure_times(&self) -> SwitchedOn {
        self.timing.turn_on()
    }

    /// Returns the numbers of requests by operation.
    pub fn counts(&self) -> &RequestCounts {
        &self.counts
    }

    /// Returns how many requests were answered with an error, by the error's name.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ERRORS.iter().map(|(_, name)| *name).chain([OTHER_ERRORS]);
        names.zip(self.errors.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Returns the times of the requests of this operation that arrived while times were measured.
    pub fn latencies(&self, operation: Operation) -> HistogramSnapshot {
        self.latencies[operation as usize].snapshot()
    }

    /// Returns how many bytes programs have read.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many bytes programs have written.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns how many requests are in progress, without those that wait for locks.
    pub fn in_progress(&self) -> u64 {
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Records operations by process until the returned value is dropped.
    pub fn profile(self: &Arc<Self>) -> ProfileRun {
        let profile = Arc::new(Profile::default());
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.retain(|profile| profile.strong_count() > 0);
        profiles.push(Arc::downgrade(&profile));
        ProfileRun { profile, _timing: self.timing.turn_on(), _profiling: self.profiling.turn_on() }
    }

    /// Calls `observer` with each request that was answered, until the returned value is dropped. The observer runs on the threads
    /// that send replies, so it must be short.
    pub fn observe(
        &self,
        observer: impl Fn(&TracedOperation) + Send + Sync + 'static,
    ) -> OperationObservation {
        OperationObservation {
            _observation: self.observers.observe(observer),
            _timing: self.timing.turn_on(),
        }
    }

    /// Calls `observer` with the answered requests that the sampler admits, as long as the mount exists. Only the first such observer
    /// counts.
    pub fn observe_sampled(
        &self,
        sampler: Arc<Sampler>,
        observer: impl Fn(&TracedOperation) + Send + Sync + 'static,
    ) {
        self.sampled.get_or_init(|| (SampledObserver::new(sampler, observer), self.timing.turn_on()));
    }

    /// Notes the arrival of a request that this thread decodes next.
    pub(crate) fn note_arrival(&self, thread: u32, subject: SubjectRef<'_>) {
        if !self.timing.is_on() {
            return ARRIVED.set(None);
        }
        let observed = self.choose();
        if observed.is_some() {
            SUBJECT.set(Some(subject.to_subject()));
        }
        ARRIVED.set(Some(Arrival { at: Instant::now(), thread, observed }));
    }

    /// Returns the number of a request that arrives now, if an observer wants it.
    fn choose(&self) -> Option<Observed> {
        let (sampled, is_any) = (self.sampled.get(), self.observers.is_any());
        if sampled.is_none() && !is_any {
            return None;
        }
        let id = Cause::reserve_id();
        let is_sampled = sampled.is_some_and(|(sampled, _)| sampled.admit(id));
        (is_any || is_sampled).then_some(Observed { id, is_sampled })
    }

    /// Counts a request. It is in progress until the returned value is dropped.
    pub(crate) fn start(self: &Arc<Self>, operation: Operation) -> InProgress {
        self.counts.count(operation);
        if operation != WAITING {
            self.in_progress.fetch_add(1, Ordering::Relaxed);
        }
        let arrived = ARRIVED.take();
        if let (Some(arrived), true) = (arrived, self.profiling.is_on()) {
            // The program waits for its reply, so it still exists.
            self.each_profile(|profile| profile.note_process(arrived.thread));
        }
        let observed = arrived.and_then(|arrived| {
            let Observed { id, is_sampled } = arrived.observed?;
            Some(Box::new(ObservedRequest {
                cause: Cause::begin_as(id),
                process: self.processes.of_thread(arrived.thread),
                subject: SUBJECT.take().unwrap_or_default(),
                reply: ReplySummary::default(),
                is_sampled,
            }))
        });
        InProgress { meter: Arc::clone(self), operation, arrived, errno: 0, observed }
    }

    pub(crate) fn add_read(&self, bytes: usize) {
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_written(&self, bytes: u32) {
        self.written_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
    }

    /// Calls `record` with each profile that is being recorded.
    fn each_profile(&self, record: impl Fn(&Profile)) {
        let profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.iter().filter_map(Weak::upgrade).for_each(|profile| record(&profile));
    }
}

/// A request that is in progress.
#[derive(Debug)]
pub(crate) struct InProgress {
    meter: Arc<Meter>,
    operation: Operation,
    arrived: Option<Arrival>,
    /// The error of the reply; 0 for none.
    errno: i32,
    /// Details, if the request is observed.
    observed: Option<Box<ObservedRequest>>,
}

impl InProgress {
    /// Marks the request as answered with an error.
    pub(crate) fn fail(&mut self, errno: i32) {
        self.errno = errno;
    }

    /// Returns the cause of the store's requests that are made for this request, if it is observed.
    pub(crate) fn cause(&self) -> Option<Arc<Cause>> {
        self.observed.as_ref().map(|observed| Arc::clone(&observed.cause))
    }

    /// Notes what the reply contains. `summary` is called only if the request is observed.
    pub(crate) fn note_reply(&mut self, summary: impl FnOnce() -> ReplySummary) {
        if let Some(observed) = &mut self.observed {
            observed.reply = summary();
        }
    }

    /// Marks the request as answered with an errno, and returns it for the reply.
    pub(crate) fn refuse_with(&mut self, errno: Errno) -> Errno {
        self.fail(errno.code());
        errno
    }

    /// Marks the request as answered with an error, and returns the errno for the reply.
    pub(crate) fn refuse(&mut self, error: &Error) -> Errno {
        self.fail(error.errno());
        log_errno(error)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let meter = &self.meter;
        if self.operation != WAITING {
            meter.in_progress.fetch_sub(1, Ordering::Relaxed);
        }
        if self.errno != 0 {
            let at = ERRORS.iter().position(|(errno, _)| *errno == self.errno).unwrap_or(ERRORS.len());
            meter.errors[at].fetch_add(1, Ordering::Relaxed);
        }
        let Some(Arrival { at, thread, .. }) = self.arrived else { return };
        let took = at.elapsed();
        meter.latencies[self.operation as usize].record(took);
        if meter.profiling.is_on() {
            meter.each_profile(|profile| profile.record(thread, self.operation, took));
        }
        if let Some(observed) = self.observed.take() {
            let ObservedRequest { cause, process, subject, reply, is_sampled } = *observed;
            let operation = TracedOperation {
                id: cause.id(),
                operation: self.operation,
                process,
                thread,
                subject,
                began: at,
                took,
                errno: self.errno,
                reply,
                requests: cause.end(),
            };
            meter.observers.publish(&operation);
            if let (true, Some((sampled, _))) = (is_sampled, meter.sampled.get()) {
                sampled.report(&operation);
            }
        }
    }
}

/// A profile that is being recorded.
#[derive(Debug)]
pub struct ProfileRun {
    profile: Arc<Profile>,
    _timing: SwitchedOn,
    _profiling: SwitchedOn,
}

impl ProfileRun {
    /// Returns what was recorded so far, the longest total time first.
    pub fn rows(&self) -> Vec<ProfileRow> {
        self.profile.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_measured_on_request() {
        let meter = Arc::new(Meter::new());
        let request = |errno| {
            meter.note_arrival(0, SubjectRef::default());
            let mut request = meter.start(Operation::Read);
            assert_eq!(meter.in_progress(), 1);
            request.fail(errno);
        };
        request(0);
        assert_eq!(meter.latencies(Operation::Read).count(), 0);
        let on = meter.measure_times();
        request(libc::EIO);
        drop(on);
        request(libc::EDOM);
        assert_eq!(meter.latencies(Operation::Read).count(), 1);
        assert_eq!(meter.counts().of(Operation::Read), 3);
        let errors: Vec<_> = meter.errors().filter(|(_, count)| *count > 0).collect();
        assert_eq!(errors, [("EIO", 1), ("other", 1)]);
        assert_eq!(meter.in_progress(), 0);
    }

    #[test]
    fn a_profile_has_the_operations_of_its_time_by_process() {
        let meter = Arc::new(Meter::new());
        let thread = std::process::id();
        let request = |operation| {
            meter.note_arrival(thread, SubjectRef::default());
            drop(meter.start(operation));
        };
        request(Operation::Open);
        let run = meter.profile();
        request(Operation::Read);
        request(Operation::Read);
        request(Operation::Write);
        let mut rows = run.rows();
        rows.sort_by_key(|row| row.operation);
        let found: Vec<_> = rows.iter().map(|row| (row.process, row.operation, row.count)).collect();
        assert_eq!(found, [(thread, Operation::Read, 2), (thread, Operation::Write, 1)]);
        assert!(!rows[0].program.is_empty() && rows[0].longest <= rows[0].total);
        drop(run);
        request(Operation::Read);
        assert!(meter.profiles.lock().unwrap().iter().all(|profile| profile.strong_count() == 0));
    }

    #[test]
    fn observers_get_requests_with_subject_and_result() {
        use std::sync::Mutex;
        let meter = Arc::new(Meter::new());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let request = |name: &[u8]| {
            meter.note_arrival(std::process::id(), SubjectRef::name(fuser::INodeNo(7), name).at(5));
            let mut request = meter.start(Operation::Lookup);
            request.note_reply(|| ReplySummary { ino: 8, bytes: 0 });
            request.refuse_with(Errno::EIO);
        };
        request(b"before");
        let sink = Arc::clone(&seen);
        let observation = meter.observe(move |operation| sink.lock().unwrap().push(operation.clone()));
        request(b"during");
        drop(observation);
        request(b"after");
        let seen = seen.lock().unwrap();
        let [found] = &seen[..] else { panic!("{seen:?}") };
        let subject = Subject { ino: 7, name: b"during".to_vec(), offset: Some(5), ..Subject::default() };
        assert_eq!((&found.subject, found.errno, found.reply.ino), (&subject, libc::EIO, 8));
        assert_eq!(found.process.id, std::process::id());
        assert!(!found.process.program.is_empty() && found.id > 0 && found.requests.is_empty());
    }

    #[test]
    fn s765_a_sampled_observer_gets_only_requests_that_the_sampler_admits() {
        use std::sync::Mutex;
        let (meter, seen) = (Arc::new(Meter::new()), Arc::new(Mutex::new(Vec::new())));
        let (sampler, sink) = (Arc::new(Sampler::new(0.5, 7)), Arc::clone(&seen));
        meter.observe_sampled(Arc::clone(&sampler), move |operation| sink.lock().unwrap().push(operation.id));
        let request = || {
            meter.note_arrival(0, SubjectRef::default());
            drop(meter.start(Operation::Read));
        };
        (0..1000).for_each(|_| request());
        sampler.set_paused(true);
        (0..100).for_each(|_| request());
        let seen = seen.lock().unwrap();
        assert!((400..600).contains(&seen.len()), "{}", seen.len());
        assert!(seen.iter().all(|id| sampler.is_chosen(*id)));
        assert!((20..80).contains(&sampler.missed()), "{}", sampler.missed());
        assert_eq!(meter.latencies(Operation::Read).count(), 1100);
    }

    /// Requests of a measurement.
    const MEASURED_REQUESTS: u64 = 1000;

    /// Does with the meter what a READ does.
    #[inline(always)]
    fn measure(meter: &Arc<Meter>, thread: u32) {
        for at in 0..MEASURED_REQUESTS {
            let subject = SubjectRef::inode(fuser::INodeNo(at)).at(at).bytes(4096);
            meter.note_arrival(std::hint::black_box(thread), std::hint::black_box(subject));
            let mut request = meter.start(Operation::Read);
            meter.add_read(4096);
            request.note_reply(|| ReplySummary { ino: 0, bytes: 4096 });
            drop(std::hint::black_box(request));
        }
    }

    #[inline(never)]
    fn measured_off(meter: &Arc<Meter>, thread: u32) {
        measure(meter, thread);
    }

    #[inline(never)]
    fn measured_timed(meter: &Arc<Meter>, thread: u32) {
        measure(meter, thread);
    }

    #[inline(never)]
    fn measured_observed(meter: &Arc<Meter>, thread: u32) {
        measure(meter, thread);
    }

    /// Runs what docs/metrics.md has the instructions of: `valgrind --tool=callgrind --toggle-collect='*measured_off*'` of this test in a
    /// release build, and likewise for the other two functions.
    #[test]
    fn requests_are_counted_whatever_is_measured() {
        let (meter, thread) = (Arc::new(Meter::new()), std::process::id());
        measured_off(&meter, thread);
        let timed = meter.measure_times();
        measured_timed(&meter, thread);
        let observed = meter.observe(|_| {});
        measured_observed(&meter, thread);
        drop((timed, observed));
        assert_eq!(meter.counts().of(Operation::Read), 3 * MEASURED_REQUESTS);
        assert_eq!(meter.latencies(Operation::Read).count(), 2 * MEASURED_REQUESTS);
    }
}
