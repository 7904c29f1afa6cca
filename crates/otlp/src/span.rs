//! A span: the time that an operation or a request took, with its attributes.

use crate::ids::{SpanId, TraceId};
use std::borrow::Cow;

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace that the span belongs to.
    pub trace: TraceId,
    /// Id of the span.
    pub id: SpanId,
    /// The span that caused this one; `None` for the first of its trace.
    pub parent: Option<SpanId>,
    /// Name, one of few.
    pub name: Cow<'static, str>,
    /// Role in the trace.
    pub kind: Kind,
    /// Beginning, in nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Duration in nanoseconds.
    pub took_ns: u64,
    /// Attributes, each with its name.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether the span failed in a way that an operator should see.
    pub is_failed: bool,
}

/// Role of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work inside of the process.
    Internal,
    /// A request that the process answers.
    Server,
    /// A request that the process makes.
    Client,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Span {
    /// Returns the memory that the span takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = self.attributes.iter().map(|(_, value)| match value {
            Value::Text(text) => text.capacity(),
            Value::Number(_) => 0,
        });
        size_of::<Self>()
            + self.name.len()
            + self.attributes.capacity() * size_of::<(&'static str, Value)>()
            + texts.sum::<usize>()
    }
}
