//! Export of traces to an OpenTelemetry collector (`--otlp`): a span for each request of the kernel that is chosen, and below it one for
//! each commit of the metadata and each request to the store that was made for it.
//!
//! Requests to the store without an operation in progress are traces of their own, except those of an operation that was already
//! answered: they belong to its trace.
//!
//! Invariant: nothing here waits. Spans that the collector does not accept are counted.

use crate::bucket::Bucket;
use crate::process::VERSION;
use crate::process::context::ProcessContext;
use ::metrics::{Observation, Sampler};
use anyhow::{Context, Result};
use fuse::{Meter, Operation, TracedOperation};
use otlp::{CollectorUrl, Exporter, Figures, Ids, Kind, Resource, Span, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, ObjectKey, Outcome, StoreRequest};
use tokio::time::Instant;
use vfs::{Cause, Filesystem, Ino};

/// Maximum number of spans below an operation. Further requests are counted in an attribute of the operation.
const REQUESTS_MAX: usize = 128;
/// Maximum time that the end of the process waits for the collector.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Errors that are the fault of Tenon or of the store. Others, such as ENOENT, are normal answers to programs.
const FAILURES: [i32; 6] =
    [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::ESTALE, libc::ENOMEM, libc::ETIMEDOUT];

/// Settings of the export.
#[derive(Debug, Clone)]
pub(crate) struct TraceExportSettings {
    /// The collector.
    pub(crate) url: CollectorUrl,
    /// Share of the operations that are exported, from 0 to 1.
    pub(crate) share: f64,
    /// PEM file of certificate authorities to trust besides the system's.
    pub(crate) ca_bundle: Option<PathBuf>,
}

/// A running export. It goes on as long as the mount exists.
#[derive(Debug)]
pub(super) struct TraceExport {
    exporter: Arc<Exporter>,
    _requests: Vec<Observation<StoreRequest>>,
}

impl TraceExport {
    /// Begins to export the operations of a volume's mount points.
    ///
    /// # Errors
    /// The certificates for the collector cannot be used.
    pub(super) fn start<'m>(
        settings: TraceExportSettings,
        (volume, mount_points): (&str, &[String]),
        (fs, bucket): (&Arc<Filesystem>, &Bucket),
        meters: impl Iterator<Item = &'m Arc<Meter>>,
        context: &ProcessContext,
    ) -> Result<Self> {
        let random = || context.entropy.next_u64();
        let sampler = Arc::new(Sampler::new(settings.share, random()));
        let ca_bundle = settings.ca_bundle.as_deref();
        let resource = resource(volume, mount_points);
        let exporter = Exporter::start(settings.url, ca_bundle, resource, Arc::clone(&sampler));
        let exporter = Arc::new(exporter.context("cannot export traces (--otlp)")?);
        let recorder = Arc::new(Recorder {
            exporter: Arc::clone(&exporter),
            sampler: Arc::clone(&sampler),
            ids: Ids::new([random(), random(), random()]),
            clock: Arc::clone(&context.clock),
            fs: Arc::clone(fs),
        });
        for meter in meters {
            let recorder = Arc::clone(&recorder);
            meter.observe_sampled(Arc::clone(&sampler), move |operation| recorder.add_operation(operation));
        }
        let requests = bucket.observe_requests(move |request| recorder.add_request(request));
        Ok(Self { exporter, _requests: requests })
    }

    /// Returns the counts of spans.
    pub(super) fn figures(&self) -> Figures {
        self.exporter.figures()
    }

    /// Sends the queued spans, if the collector accepts them within [`CLOSE_TIMEOUT`].
    pub(super) async fn close(&self) {
        self.exporter.close(CLOSE_TIMEOUT).await;
    }
}

/// Returns the attributes of this process, with the names of OpenTelemetry's semantic conventions where these have one.
fn resource(volume: &str, mount_points: &[String]) -> Resource {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    vec![
        ("service.name", "tenon".into()),
        ("service.version", VERSION.into()),
        ("service.instance.id", format!("{host}:{}", std::process::id()).into()),
        ("host.name", host.into()),
        ("process.pid", u64::from(std::process::id()).into()),
        ("tenon.volume", volume.into()),
        ("tenon.mount_point", mount_points.join(" ").into()),
    ]
}

/// Makes spans of operations and requests.
struct Recorder {
    exporter: Arc<Exporter>,
    sampler: Arc<Sampler>,
    ids: Ids,
    clock: Arc<dyn Clock>,
    fs: Arc<Filesystem>,
}

impl Recorder {
    fn add_operation(&self, operation: &TracedOperation) {
        if operation.operation == Operation::Forget {
            return;
        }
        let (now, requests) = (self.now(), operation.requests.iter().take(REQUESTS_MAX));
        let mut spans = Vec::with_capacity(1 + requests.len());
        spans.push(Span {
            trace: self.ids.trace(operation.id),
            id: self.ids.span(operation.id),
            parent: None,
            name: operation.operation.name(),
            kind: Kind::Server,
            start_unix_ns: now.unix_ns_of(operation.began),
            took_ns: nanos(operation.took),
            attributes: self.attributes(operation),
            is_failed: FAILURES.contains(&operation.errno),
        });
        spans.extend(requests.map(|request| self.request_span(request, now)));
        self.exporter.add(spans);
    }

    fn add_request(&self, request: &StoreRequest) {
        let is_wanted = match request.operation {
            0 => self.sampler.admit(Cause::reserve_id()),
            operation => self.sampler.is_chosen(operation),
        };
        if is_wanted {
            self.exporter.add(vec![self.request_span(request, self.now())]);
        }
    }

    /// Returns the span of a request: below its operation, or a trace of its own.
    fn request_span(&self, request: &StoreRequest, now: Now) -> Span {
        let number = Cause::reserve_id();
        let operation = (request.operation != 0).then_some(request.operation);
        Span {
            trace: self.ids.trace(operation.unwrap_or(number)),
            id: self.ids.span(number),
            parent: operation.map(|operation| self.ids.span(operation)),
            name: request.kind,
            kind: if request.kind == vfs::COMMIT { Kind::Internal } else { Kind::Client },
            start_unix_ns: now.unix_ns_of(request.began),
            took_ns: nanos(request.took),
            attributes: request_attributes(request),
            is_failed: !matches!(request.outcome, Outcome::Ok | Outcome::NotFound | Outcome::Precondition)
                && request.kind != vfs::COMMIT,
        }
    }

    fn attributes(&self, operation: &TracedOperation) -> Vec<(&'static str, Value)> {
        let subject = &operation.subject;
        let mut attributes: Vec<(&'static str, Value)> = vec![
            ("file.path", self.path(subject.ino, &subject.name).into()),
            ("process.pid", u64::from(operation.process.id).into()),
            ("process.executable.name", operation.process.program.as_ref().into()),
            ("thread.id", u64::from(operation.thread).into()),
        ];
        if let Some((directory, name)) = &subject.target {
            attributes.push(("tenon.target_path", self.path(*directory, name).into()));
        }
        let numbers = [("tenon.offset", subject.offset), ("tenon.bytes", subject.bytes)];
        attributes.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, number?.into()))));
        if operation.errno != 0 {
            attributes.push(("error.type", fuse::errno_name(operation.errno).into_owned().into()));
        }
        let omitted = operation.requests.len().saturating_sub(REQUESTS_MAX) as u64;
        if omitted > 0 {
            attributes.push(("tenon.omitted_requests", omitted.into()));
        }
        attributes
    }

    /// Returns the path of an inode, or of a name in a directory; `#` and the inode's number if it has no name.
    fn path(&self, ino: u64, name: &[u8]) -> String {
        let path = self.fs.admin().path_of_inode(Ino(ino));
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

    /// Reads both clocks.
    fn now(&self) -> Now {
        Now { unix_ns: u64::try_from(self.clock.now().0).unwrap_or(0), at: Instant::now() }
    }
}

/// One moment by both clocks. All spans of a trace are computed from the same moment, so that their times fit together.
#[derive(Clone, Copy)]
struct Now {
    unix_ns: u64,
    at: Instant,
}

impl Now {
    /// Returns an earlier moment as nanoseconds since the Unix epoch.
    fn unix_ns_of(self, at: Instant) -> u64 {
        self.unix_ns.saturating_sub(nanos(self.at.saturating_duration_since(at)))
    }
}

fn request_attributes(request: &StoreRequest) -> Vec<(&'static str, Value)> {
    let mut attributes = vec![("tenon.outcome", Value::from(request.outcome.name()))];
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

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
