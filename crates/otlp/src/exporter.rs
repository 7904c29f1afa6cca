//! The exporter: a queue of spans, and a task that sends them in batches.

use crate::collector_url::CollectorUrl;
use crate::delivery::{Collector, Outcome};
use crate::headers::Headers;
use crate::message::{
    ExportTraceServiceRequest, InstrumentationScope, KeyValue, ResourceMessage, ResourceSpans, ScopeSpans,
    SpanMessage,
};
use crate::queue::Queue;
use crate::span::{Span, Value};
use bytes::Bytes;
use connect::CertificateError;
use metrics::Sampler;
use prost::Message;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum time that a span waits for others before it is sent.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// First pause after a failure; it doubles with each further failure.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause after a failure.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Attributes of the process, which every message has.
pub type Resource = Vec<(&'static str, Value)>;

/// How a collector is reached.
#[derive(Debug, Clone)]
pub struct CollectorSettings {
    /// Its URL.
    pub url: CollectorUrl,
    /// Headers of each request.
    pub headers: Headers,
    /// PEM file of certificate authorities to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
}

/// Sends spans to a collector. Adding spans never waits.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    /// Whether the exporter is closing.
    closing: watch::Sender<bool>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Queue,
    sent: AtomicU64,
    refused: AtomicU64,
}

/// Counts of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Spans that the collector accepted.
    pub sent: u64,
    /// Spans that the collector refused.
    pub refused: u64,
    /// Spans that found the queue full, and operations that were not recorded for this reason.
    pub dropped: u64,
}

impl Exporter {
    /// Starts to send spans to a collector, on the current runtime. `sampler` is paused while the queue is full.
    ///
    /// # Errors
    /// If there is no trusted certificate for an `https` URL, or the file of certificates cannot be used.
    pub fn start(
        collector: CollectorSettings,
        resource: Resource,
        sampler: Arc<Sampler>,
    ) -> Result<Self, CertificateError> {
        let collector = Collector::new(collector)?;
        let attributes = resource.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
        let queue = Queue::new(sampler);
        let shared = Arc::new(Shared { queue, sent: AtomicU64::new(0), refused: AtomicU64::new(0) });
        let (closing, is_closing) = watch::channel(false);
        let sender = Sender {
            shared: Arc::clone(&shared),
            collector,
            resource: ResourceMessage { attributes },
            is_closing,
            has_warned: false,
        };
        let task = Mutex::new(Some(tokio::spawn(sender.run())));
        Ok(Self { shared, closing, task })
    }

    /// Adds the spans of a trace. They are dropped if the queue is full.
    pub fn add(&self, spans: Vec<Span>) {
        self.shared.queue.add(spans);
    }

    /// Returns the counts so far.
    pub fn figures(&self) -> Figures {
        Figures {
            sent: self.shared.sent.load(Ordering::Relaxed),
            refused: self.shared.refused.load(Ordering::Relaxed),
            dropped: self.shared.queue.dropped(),
        }
    }

    /// Sends the queued spans, and ends. Spans that the collector has not accepted within this time are lost.
    pub async fn close(&self, within: Duration) {
        // This fails only if the task has ended.
        let _ = self.closing.send(true);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut task) = task else { return };
        if tokio::time::timeout(within, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}

/// The task that sends batches.
struct Sender {
    shared: Arc<Shared>,
    collector: Collector,
    resource: ResourceMessage,
    is_closing: watch::Receiver<bool>,
    /// Whether the present failure of the collector was logged.
    has_warned: bool,
}

impl Sender {
    /// Sends batches until the exporter closes and the queue is empty, or the collector fails during closing.
    async fn run(mut self) {
        loop {
            let batch = self.shared.queue.take();
            if !batch.is_empty() {
                if !self.deliver(batch).await {
                    return;
                }
            } else if *self.is_closing.borrow() {
                return;
            } else {
                self.wait_for_batch().await;
            }
        }
    }

    async fn wait_for_batch(&mut self) {
        tokio::select! {
            () = self.shared.queue.has_batch.notified() => (),
            () = tokio::time::sleep(BATCH_INTERVAL) => (),
            _ = self.is_closing.changed() => (),
        }
    }

    /// Sends a batch until the collector accepts or refuses it. Returns false if the exporter closes before that.
    async fn deliver(&mut self, batch: Vec<Span>) -> bool {
        let (count, message) = (batch.len() as u64, self.encode(batch));
        let mut pause = PAUSE_FIRST;
        loop {
            let (reason, asked) = match self.collector.post(message.clone()).await {
                Outcome::Accepted { rejected, reason } => {
                    self.note_accepted(count, rejected.min(count), &reason);
                    return true;
                }
                Outcome::Refused(reason) => {
                    self.shared.refused.fetch_add(count, Ordering::Relaxed);
                    self.warn_once(&reason);
                    return true;
                }
                Outcome::Failed { reason, pause } => (reason, pause),
            };
            self.warn_once(&reason);
            if *self.is_closing.borrow() {
                return false;
            }
            // A change of `is_closing` ends the pause for a last attempt.
            let _ = tokio::time::timeout(asked.unwrap_or(pause), self.is_closing.changed()).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn note_accepted(&mut self, count: u64, rejected: u64, reason: &str) {
        self.shared.sent.fetch_add(count - rejected, Ordering::Relaxed);
        self.shared.refused.fetch_add(rejected, Ordering::Relaxed);
        if rejected > 0 {
            self.warn_once(reason);
        } else if std::mem::take(&mut self.has_warned) {
            tracing::info!("the collector of traces accepts spans again");
        }
    }

    /// Logs a failure of the collector, unless it is already known.
    fn warn_once(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                "the collector of traces does not accept spans ({reason}); spans are kept or dropped, and counted, until it does"
            );
        }
    }

    fn encode(&self, batch: Vec<Span>) -> Bytes {
        let scope =
            InstrumentationScope { name: "tenon".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let spans =
            ScopeSpans { scope: Some(scope), spans: batch.into_iter().map(SpanMessage::from).collect() };
        let resource_spans =
            ResourceSpans { resource: Some(self.resource.clone()), scope_spans: vec![spans] };
        ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec().into()
    }
}
