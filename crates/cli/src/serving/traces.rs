//! Traces of operations, for `tenon trace`: observes the kernel's requests and the store's, and reports those that match a filter.
//!
//! Invariants: nothing is observed, and no operation has a cost, while there is no trace. At most [`EVENTS_MAX`] events wait for a
//! client; further ones are counted as lost, so that a slow client slows no program down.

use crate::bucket::Bucket;
use crate::control::live_messages::{TraceBatch, TraceFilter, TracedCall, TracedProcess, TracedRequest};
use crate::serving::observed_mounts::ObservedMount;
use crate::serving::traced_paths::TracedPaths;
use ::metrics::Observation;
use anyhow::{Context, Result, bail};
use fuse::{Operation, OperationObservation, TracedOperation};
use globset::{GlobBuilder, GlobMatcher};
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{ObjectKey, StoreRequest};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Maximum number of events that wait for the client.
const EVENTS_MAX: usize = 200_000;
/// Maximum number of operations, and of background requests, in a message.
const BATCH_OPERATIONS: usize = 1000;
/// Time for which events are collected before a message is sent.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);

/// A trace that is being recorded. It ends when it is dropped.
pub(super) struct Trace {
    recorder: Arc<Recorder>,
    _operations: Vec<OperationObservation>,
    _requests: Vec<Observation<StoreRequest>>,
}

impl Trace {
    /// Begins to observe.
    ///
    /// # Errors
    /// The filter names an unknown operation, or has an invalid pattern.
    pub(super) fn start(mounts: &[ObservedMount], bucket: &Bucket, filter: &TraceFilter) -> Result<Self> {
        let recorder = Arc::new(Recorder {
            began: Instant::now(),
            conditions: Conditions::new(filter)?,
            waiting: Mutex::default(),
            has_events: Notify::new(),
        });
        let observer = Arc::clone(&recorder);
        let requests = bucket.observe_requests(move |request| observer.add_request(request));
        let mut operations = Vec::new();
        for mount in mounts {
            let paths = Arc::new(Mutex::new(TracedPaths::new(Arc::clone(&mount.fs), mount.root)));
            operations.extend(mount.meters.iter().map(|meter| {
                let (observer, paths) = (Arc::clone(&recorder), Arc::clone(&paths));
                meter.observe(move |operation| observer.add_operation(operation, &paths))
            }));
        }
        Ok(Self { _operations: operations, _requests: requests, recorder })
    }

    /// Waits for events, and returns them.
    pub(super) async fn next(&self) -> TraceBatch {
        loop {
            let batch = self.recorder.take();
            if batch != TraceBatch::default() {
                return batch;
            }
            self.recorder.has_events.notified().await;
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
    }
}

/// The events of a trace.
struct Recorder {
    began: Instant,
    conditions: Conditions,
    /// Events that wait for the client.
    waiting: Mutex<TraceBatch>,
    has_events: Notify,
}

impl Recorder {
    /// Adds an operation of a mount with these paths, if it fulfils the conditions.
    fn add_operation(&self, operation: &TracedOperation, paths: &Mutex<TracedPaths>) {
        let is_wanted = self.conditions.accept(operation);
        let mut paths = paths.lock().unwrap_or_else(PoisonError::into_inner);
        let named = is_wanted.then(|| describe_paths(operation, &mut paths));
        paths.apply(operation);
        drop(paths);
        let Some((path, to)) = named else { return };
        if !self.conditions.accept_path(&path)
            && !to.as_deref().is_some_and(|to| self.conditions.accept_path(to))
        {
            return;
        }
        let call = TracedCall {
            id: operation.id,
            at_us: self.micros(operation.began),
            took_us: micros(operation.took),
            operation: Cow::Borrowed(operation.operation.name()),
            path: path.as_ref().to_owned(),
            to: to.map(|to| to.as_ref().to_owned()),
            offset: operation.subject.offset,
            bytes: operation.subject.bytes,
            process: TracedProcess {
                pid: operation.process.id,
                thread: operation.thread,
                program: operation.process.program.as_ref().to_owned(),
            },
            error: (operation.errno != 0).then(|| fuse::errno_name(operation.errno)),
            requests: operation.requests.iter().map(|request| self.describe(request)).collect(),
        };
        self.add(|waiting| waiting.operations.push(call));
    }

    fn add_request(&self, request: &StoreRequest) {
        if self.conditions.reports_background {
            let described = self.describe(request);
            self.add(|waiting| waiting.background.push(described));
        }
    }

    /// Adds an event, or counts it as lost if too many wait.
    fn add(&self, event: impl FnOnce(&mut TraceBatch)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.operations.len() + waiting.background.len() < EVENTS_MAX {
            event(&mut waiting);
        } else {
            waiting.lost += 1;
        }
        drop(waiting);
        self.has_events.notify_one();
    }

    /// Takes the events that wait, as many as fit into a message.
    fn take(&self) -> TraceBatch {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let first = |len: usize| len.min(BATCH_OPERATIONS);
        let (operations, background) = (first(waiting.operations.len()), first(waiting.background.len()));
        TraceBatch {
            operations: waiting.operations.drain(..operations).collect(),
            background: waiting.background.drain(..background).collect(),
            lost: std::mem::take(&mut waiting.lost),
        }
    }

    fn describe(&self, request: &StoreRequest) -> TracedRequest {
        let key = || String::from_utf8_lossy(&request.key).into_owned();
        TracedRequest {
            operation: request.operation,
            at_us: self.micros(request.began),
            took_us: micros(request.took),
            kind: Cow::Borrowed(request.kind),
            key: ObjectKey::new(request.key.clone()).map_or_else(|_| key(), |key| key.to_string()),
            sent_bytes: request.sent_bytes,
            outcome: Cow::Borrowed(request.outcome.name()),
        }
    }

    /// Returns the time since the beginning of the trace, in microseconds.
    fn micros(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.began))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the path of an operation, and the path that a rename or link makes.
fn describe_paths(operation: &TracedOperation, paths: &mut TracedPaths) -> (Arc<str>, Option<Arc<str>>) {
    let subject = &operation.subject;
    let path = match subject.name.is_empty() {
        true => paths.of_inode(subject.ino),
        false => paths.of_name((subject.ino, &subject.name)),
    };
    let to = subject.target.as_ref().map(|(directory, name)| paths.of_name((*directory, name)));
    (path, to)
}

/// The conditions of a filter.
struct Conditions {
    operations: Vec<Operation>,
    /// The wanted path, as text and as a pattern.
    path: Option<(String, GlobMatcher)>,
    pid: Option<u32>,
    slower_than: Duration,
    reports_background: bool,
}

impl Conditions {
    fn new(filter: &TraceFilter) -> Result<Self> {
        let path = filter.path.as_ref().map(|path| {
            let pattern =
                GlobBuilder::new(path).build().with_context(|| format!("the pattern '{path}' is invalid"))?;
            anyhow::Ok((path.clone(), pattern.compile_matcher()))
        });
        Ok(Self {
            operations: filter.operations.iter().map(|name| operation_of(name)).collect::<Result<_>>()?,
            path: path.transpose()?,
            pid: filter.pid,
            slower_than: Duration::from_micros(filter.slower_than_us),
            reports_background: filter.background,
        })
    }

    /// Returns whether an operation fulfils the conditions, apart from that on paths.
    fn accept(&self, operation: &TracedOperation) -> bool {
        let is_kind = match self.operations.is_empty() {
            true => operation.operation != Operation::Forget,
            false => self.operations.contains(&operation.operation),
        };
        is_kind
            && self.pid.is_none_or(|pid| pid == operation.process.id)
            && operation.took >= self.slower_than
    }

    /// Returns whether a path is the wanted one, is below it, or matches its pattern as a whole or by its name.
    fn accept_path(&self, path: &str) -> bool {
        let Some((wanted, pattern)) = &self.path else { return true };
        let is_inside =
            path.strip_prefix(wanted.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let name = Path::new(path).file_name();
        is_inside
            || wanted.is_empty()
            || pattern.is_match(path)
            || name.is_some_and(|name| pattern.is_match(name))
    }
}

/// Returns the operation of a name, in upper or lower case.
fn operation_of(name: &str) -> Result<Operation> {
    let found = Operation::ALL.iter().find(|operation| operation.name().eq_ignore_ascii_case(name));
    match found {
        Some(operation) => Ok(*operation),
        None => {
            let names: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
            bail!("there is no operation '{name}'; operations are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_as_files_directories_and_patterns() {
        let conditions = |path: &str| {
            Conditions::new(&TraceFilter { path: Some(path.to_owned()), ..TraceFilter::default() }).unwrap()
        };
        assert!(conditions("a/b").accept_path("a/b") && conditions("a/b").accept_path("a/b/c"));
        assert!(!conditions("a/b").accept_path("a/bc") && !conditions("a/b").accept_path("a"));
        assert!(conditions("*.csv").accept_path("a/b.csv") && !conditions("*.csv").accept_path("a/b.txt"));
        assert!(
            conditions("a/*.csv").accept_path("a/b.csv") && !conditions("a/*.csv").accept_path("b/b.csv")
        );
        assert!(conditions("").accept_path("anything"));
    }

    #[test]
    fn unknown_operations_are_refused() {
        let filter = TraceFilter { operations: vec!["read".to_owned()], ..TraceFilter::default() };
        assert_eq!(Conditions::new(&filter).unwrap().operations, [Operation::Read]);
        let filter = TraceFilter { operations: vec!["SPEED".to_owned()], ..TraceFilter::default() };
        assert!(Conditions::new(&filter).is_err_and(|error| error.to_string().contains("LOOKUP, FORGET")));
    }
}
