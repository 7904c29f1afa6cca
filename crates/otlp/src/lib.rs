//! Export of traces to an OpenTelemetry collector by OTLP over HTTP, as Protocol Buffers
//! (<https://opentelemetry.io/docs/specs/otlp/>).
//!
//! Owns the spans ([`Span`]), their ids ([`Ids`]), their encoding, the queue of spans that wait, and the client that sends them in
//! batches ([`Exporter`]).
//!
//! Refuses to know what a span is about, to read a clock, and to wait: a span that finds the queue full is dropped and counted, and the
//! [`metrics::Sampler`] is paused until there is room.
//!
//! Invariants: spans that wait take at most [`QUEUE_BYTES_MAX`]; one batch is in flight at a time; an outage of the collector is logged
//! once.

mod collector_url;
mod delivery;
mod exporter;
mod headers;
mod ids;
mod message;
mod queue;
mod span;

pub use collector_url::CollectorUrl;
pub use exporter::{CollectorSettings, Exporter, Figures, Resource};
pub use headers::{Headers, HeadersError};
pub use ids::{Ids, SpanId, TraceId};
pub use queue::QUEUE_BYTES_MAX;
pub use span::{Kind, Span, Value};
