//! The spans of operations of programs, of requests of S3 clients, and of requests to the store.

use ::metrics::Sampler;
use fuse::{Operation, TracedOperation};
use otlp::{Exporter, Ids, Kind, Span, SpanId, TraceId, Value};
use s3::{AccessRecord, TracedRequest};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Clock, ObjectKey, Outcome, StoreRequest};
use tokio::time::Instant;
use vfs::{Cause, Filesystem, Ino};

/// Maximum number of spans below an operation. Further requests are counted in an attribute of the operation.
const REQUESTS_MAX: usize = 128;
/// Errors that are the fault of Tenon or of the store. Others, such as ENOENT, are normal answers to programs.
const FAILURES: [i32; 6] =
    [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::ESTALE, libc::ENOMEM, libc::ETIMEDOUT];
/// Name of the spans of S3 requests that were refused before their operation was known.
const UNKNOWN_OPERATION: &str = "S3";

/// Attributes, each with its name.
pub(super) type Attributes = Vec<(&'static str, Value)>;

/// Makes spans, and gives them to the exporter.
#[derive(Debug)]
pub(super) struct Recorder {
    pub(super) exporter: Exporter,
    pub(super) sampler: Arc<Sampler>,
    pub(super) ids: Ids,
    pub(super) clock: Arc<dyn Clock>,
    /// The moment from which the times of each batch in progress are computed.
    pub(super) batch_moments: Mutex<HashMap<TraceId, Now>>,
}

impl Recorder {
    /// Adds the spans of an operation of a program.
    pub(super) fn add_operation(&self, fs: &Filesystem, operation: &TracedOperation) {
        if operation.operation == Operation::Forget {
            return;
        }
        let now = self.now();
        let root = Span {
            name: operation.operation.name().into(),
            attributes: operation_attributes(fs, operation),
            is_failed: FAILURES.contains(&operation.errno),
            ..self.root(operation.id, now.span_times(operation.began, operation.took))
        };
        self.add(root, &operation.requests, now);
    }

    /// Adds the spans of a request of an S3 client.
    pub(super) fn add_s3_request(&self, request: &TracedRequest) {
        let (now, record) = (self.now(), &request.record);
        let name = record.operation.clone().map_or(UNKNOWN_OPERATION.into(), Into::into);
        let root = Span {
            name,
            attributes: s3_attributes(record),
            is_failed: record.status >= 500,
            ..self.root(request.id, now.span_times(request.began, record.duration))
        };
        self.add(root, &request.store_requests, now);
    }

    /// Adds the span of a request to the store that ended after its operation, or that belongs to none.
    pub(super) fn add_store_request(&self, request: &StoreRequest) {
        let is_wanted = match request.operation {
            0 => self.sampler.admit(Cause::reserve_id()),
            operation => self.sampler.is_chosen(operation),
        };
        if is_wanted {
            self.exporter.add(vec![self.store_request_span(request, self.now())]);
        }
    }

    /// Adds a span with the store requests that were made for it.
    fn add(&self, root: Span, requests: &[StoreRequest], now: Now) {
        self.add_with_requests(root, requests, |request| self.store_request_span(request, now));
    }

    /// Adds a span and those of the store requests that were made for it, which `describe` makes.
    pub(super) fn add_with_requests(
        &self,
        mut root: Span,
        requests: &[StoreRequest],
        describe: impl Fn(&StoreRequest) -> Span,
    ) {
        let omitted = requests.len().saturating_sub(REQUESTS_MAX) as u64;
        if omitted > 0 {
            root.attributes.push(("tenon.omitted_requests", omitted.into()));
        }
        let below = requests.iter().take(REQUESTS_MAX).map(describe);
        self.exporter.add([root].into_iter().chain(below).collect());
    }

    /// Returns the first span of the trace with this number, as yet without name and attributes.
    fn root(&self, id: u64, (start_unix_ns, took_ns): (u64, u64)) -> Span {
        Span {
            trace: self.ids.trace(id),
            id: self.ids.span(id),
            parent: None,
            name: "".into(),
            kind: Kind::Server,
            start_unix_ns,
            took_ns,
            attributes: Vec::new(),
            is_failed: false,
        }
    }

    /// Returns the span of a request to the store: below its operation, or a trace of its own.
    fn store_request_span(&self, request: &StoreRequest, now: Now) -> Span {
        let operation = (request.operation != 0).then_some(request.operation);
        let place = operation.map(|operation| (self.ids.trace(operation), self.ids.span(operation)));
        self.request_span(request, place, now)
    }

    /// Returns the span of a request to the store: below a span of a trace, or a trace of its own.
    pub(super) fn request_span(
        &self,
        request: &StoreRequest,
        place: Option<(TraceId, SpanId)>,
        now: Now,
    ) -> Span {
        let number = Cause::reserve_id();
        let (start_unix_ns, took_ns) = now.span_times(request.began, request.took);
        Span {
            trace: place.map_or_else(|| self.ids.trace(number), |(trace, _)| trace),
            id: self.ids.span(number),
            parent: place.map(|(_, parent)| parent),
            name: request.kind.into(),
            kind: if request.kind == vfs::COMMIT { Kind::Internal } else { Kind::Client },
            start_unix_ns,
            took_ns,
            attributes: store_request_attributes(request),
            is_failed: !matches!(request.outcome, Outcome::Ok | Outcome::NotFound | Outcome::Precondition)
                && request.kind != vfs::COMMIT,
        }
    }

    /// Reads both clocks.
    pub(super) fn now(&self) -> Now {
        Now { unix_ns: u64::try_from(self.clock.now().0).unwrap_or(0), at: Instant::now() }
    }
}

/// One moment by both clocks. All spans of a trace are computed from the same moment, so that their times fit together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    unix_ns: u64,
    at: Instant,
}

impl Now {
    /// Returns the beginning of a span, in nanoseconds since the Unix epoch, and its duration in nanoseconds.
    pub(super) fn span_times(self, began: Instant, took: Duration) -> (u64, u64) {
        let before = nanos(self.at.saturating_duration_since(began));
        let after = nanos(began.saturating_duration_since(self.at));
        (self.unix_ns.saturating_sub(before).saturating_add(after), nanos(took))
    }
}

fn operation_attributes(fs: &Filesystem, operation: &TracedOperation) -> Attributes {
    let subject = &operation.subject;
    let mut attributes: Attributes = vec![
        ("file.path", path(fs, subject.ino, &subject.name).into()),
        ("process.pid", u64::from(operation.process.id).into()),
        ("process.executable.name", operation.process.program.as_ref().into()),
        ("thread.id", u64::from(operation.thread).into()),
    ];
    if let Some((directory, name)) = &subject.target {
        attributes.push(("tenon.target_path", path(fs, *directory, name).into()));
    }
    let numbers = [("tenon.offset", subject.offset), ("tenon.bytes", subject.bytes)];
    attributes.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, number?.into()))));
    if operation.errno != 0 {
        attributes.push(("error.type", fuse::errno_name(operation.errno).into_owned().into()));
    }
    attributes
}

fn s3_attributes(record: &AccessRecord) -> Attributes {
    let mut attributes: Attributes = vec![
        ("http.request.method", record.method.as_str().into()),
        ("http.response.status_code", u64::from(record.status).into()),
        ("http.request.body.size", record.received_bytes.into()),
        ("http.response.body.size", record.sent_bytes.into()),
        ("client.address", record.peer.to_string().into()),
        ("aws.request_id", record.id.as_str().into()),
    ];
    let texts = [
        ("aws.s3.bucket", record.bucket.clone()),
        ("aws.s3.key", record.decoded_key()),
        ("user.name", record.user.clone()),
    ];
    attributes.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?.into()))));
    attributes
}

fn store_request_attributes(request: &StoreRequest) -> Attributes {
    let mut attributes: Attributes = vec![("tenon.outcome", request.outcome.name().into())];
    if request.kind != vfs::COMMIT {
        let key = ObjectKey::new(request.key.clone()).map(|key| key.to_string());
        let key = key.unwrap_or_else(|_| String::from_utf8_lossy(&request.key).into_owned());
        attributes.push(("tenon.key", key.into()));
    }
    if request.sent_bytes > 0 {
        attributes.push(("tenon.sent_bytes", request.sent_bytes.into()));
    }
    attributes
}

/// Returns the path of an inode, or of a name in a directory; `#` and the inode's number if it has no name.
fn path(fs: &Filesystem, ino: u64, name: &[u8]) -> String {
    let path = fs.admin().path_of_inode(Ino(ino));
    let mut path = match path {
        Some(path) => String::from_utf8_lossy(&path).into_owned(),
        None => format!("#{ino}"),
    };
    if !name.is_empty() {
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&String::from_utf8_lossy(name));
    }
    path
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
