//! Messages of OTLP, as far as traces use them: `opentelemetry/proto/collector/trace/v1/trace_service.proto` and the files that it
//! includes. Names and tags are those of the published schema.

use crate::span::{Kind, Span, Value};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<ExportTracePartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExportTracePartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<ResourceMessage>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResourceMessage {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<SpanMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SpanMessage {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    pub(crate) value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum AnyValueKind {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(int64, tag = "3")]
    IntValue(i64),
}

/// `StatusCode.STATUS_CODE_ERROR`.
const STATUS_ERROR: i32 = 2;

impl KeyValue {
    pub(crate) fn new(key: &str, value: Value) -> Self {
        let value = match value {
            Value::Text(text) => AnyValueKind::StringValue(text),
            Value::Number(number) => AnyValueKind::IntValue(number),
        };
        Self { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}

impl From<Span> for SpanMessage {
    fn from(span: Span) -> Self {
        let attributes = span.attributes.into_iter();
        Self {
            trace_id: span.trace.0.to_vec(),
            span_id: span.id.0.to_vec(),
            parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.0.to_vec()),
            name: span.name.into_owned(),
            kind: match span.kind {
                Kind::Internal => 1,
                Kind::Server => 2,
                Kind::Client => 3,
            },
            start_time_unix_nano: span.start_unix_ns,
            end_time_unix_nano: span.start_unix_ns.saturating_add(span.took_ns),
            attributes: attributes.map(|(key, value)| KeyValue::new(key, value)).collect(),
            status: span.is_failed.then_some(Status { code: STATUS_ERROR }),
        }
    }
}
