//! Export of traces to an OpenTelemetry collector (`--otlp`): a span for each request of the kernel or of an S3 client that is chosen, and
//! below it one for each commit of the metadata and each request to the store that was made for it; and a trace for each batch that ends, with its phases.
//!
//! Requests to the store without an operation in progress are traces of their own, except those of an operation that was already
//! answered: they belong to its trace.
//!
//! Invariant: nothing here waits. Spans that the collector does not accept are counted.

mod batch_spans;
mod spans;

use crate::bucket::Bucket;
use crate::process::VERSION;
use crate::process::context::ProcessContext;
use crate::serving::batches::Batches;
use crate::serving::batches::phases::EndedPhase;
use crate::serving::trace_export::spans::Recorder;
use ::metrics::{Observation, Sampler};
use anyhow::{Context, Result};
use fuse::Meter;
use otlp::{CollectorSettings, Exporter, Figures, Ids, Resource};
use s3::Endpoint;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::StoreRequest;
use vfs::Filesystem;

/// Maximum time that the end of the process waits for the collector.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings of the export.
#[derive(Debug, Clone)]
pub(crate) struct TraceExportSettings {
    /// The collector.
    pub(crate) collector: CollectorSettings,
    /// Share of the operations that are exported, from 0 to 1.
    pub(crate) share: f64,
}

/// The volume whose requests are exported.
#[derive(Debug)]
pub(crate) struct TracedVolume {
    pub(crate) volume: String,
    pub(crate) mount_points: Vec<String>,
    /// URL of the S3 endpoint.
    pub(crate) endpoint: Option<String>,
}

/// A running export. It lasts as long as the process.
#[derive(Debug)]
pub(crate) struct TraceExport {
    recorder: Arc<Recorder>,
    requests: Vec<Observation<StoreRequest>>,
    batches: Option<Observation<EndedPhase>>,
    /// The volume in the ids of the traces of its batches.
    volume: u64,
}

impl TraceExport {
    /// Starts an export, as yet of nothing.
    ///
    /// # Errors
    /// The certificates for the collector cannot be used.
    pub(crate) fn start(
        settings: TraceExportSettings,
        volume: &TracedVolume,
        context: &ProcessContext,
    ) -> Result<Self> {
        let random = || context.entropy.next_u64();
        let sampler = Arc::new(Sampler::new(settings.share, random()));
        let exporter = Exporter::start(settings.collector, resource(volume), Arc::clone(&sampler))
            .context("cannot export traces (--otlp)")?;
        let ids = Ids::new([random(), random(), random()]);
        let recorder = Recorder {
            exporter,
            sampler,
            ids,
            clock: Arc::clone(&context.clock),
            batch_moments: Mutex::default(),
        };
        let volume = batch_spans::volume_number(&volume.volume);
        Ok(Self { recorder: Arc::new(recorder), requests: Vec::new(), batches: None, volume })
    }

    /// Exports the operations of mount points of a file system from now on.
    pub(super) fn observe_mounts<'m>(
        &self,
        fs: &Arc<Filesystem>,
        meters: impl Iterator<Item = &'m Arc<Meter>>,
    ) {
        for meter in meters {
            let (recorder, fs) = (Arc::clone(&self.recorder), Arc::clone(fs));
            let sampler = Arc::clone(&recorder.sampler);
            meter.observe_sampled(sampler, move |operation| recorder.add_operation(&fs, operation));
        }
    }

    /// Exports the requests of S3 clients from now on.
    pub(crate) fn observe_endpoint(&self, endpoint: &Endpoint) {
        let recorder = Arc::clone(&self.recorder);
        let sampler = Arc::clone(&recorder.sampler);
        endpoint.observe_sampled(sampler, move |request| recorder.add_s3_request(request));
    }

    /// Exports requests to the store that belong to no operation in progress from now on.
    pub(super) fn observe_store(&mut self, bucket: &Bucket) {
        let recorder = Arc::clone(&self.recorder);
        self.requests.extend(bucket.observe_requests(move |request| recorder.add_store_request(request)));
    }

    /// Exports the ends of batches from now on. All are chosen, as they are few.
    pub(super) fn observe_batches(&mut self, batches: &Batches) {
        let (recorder, volume) = (Arc::clone(&self.recorder), self.volume);
        let observation = batches.observe_phases(move |ended| recorder.add_batch_phase(volume, ended));
        self.batches = Some(observation);
    }

    /// Returns the counts of spans.
    pub(super) fn figures(&self) -> Figures {
        self.recorder.exporter.figures()
    }

    /// Sends the queued spans, if the collector accepts them within [`CLOSE_TIMEOUT`].
    pub(crate) async fn close(&self) {
        self.recorder.exporter.close(CLOSE_TIMEOUT).await;
    }
}

/// Returns the attributes of this process, with the names of OpenTelemetry's semantic conventions where these have one.
fn resource(volume: &TracedVolume) -> Resource {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut resource: Resource = vec![
        ("service.name", "tenon".into()),
        ("service.version", VERSION.into()),
        ("service.instance.id", format!("{host}:{}", std::process::id()).into()),
        ("host.name", host.into()),
        ("process.pid", u64::from(std::process::id()).into()),
        ("tenon.volume", volume.volume.as_str().into()),
    ];
    if !volume.mount_points.is_empty() {
        resource.push(("tenon.mount_point", volume.mount_points.join(" ").into()));
    }
    if let Some(url) = &volume.endpoint {
        resource.push(("tenon.endpoint", url.as_str().into()));
    }
    resource
}
