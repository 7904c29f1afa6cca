//! Parts of answers.

use crate::failure::unexpected;
use meta::Seqno;
use meta_remote::Failure;
use redis::Value;

/// Takes the values of an array one after another.
pub(crate) struct Values(std::vec::IntoIter<Value>);

impl Values {
    /// Fails if the answer is not an array.
    pub(crate) fn of(answer: Value) -> Result<Self, Failure> {
        match answer {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn next_value(&mut self) -> Result<Value, Failure> {
        self.0.next().ok_or_else(unexpected)
    }

    pub(crate) fn array(&mut self) -> Result<Self, Failure> {
        Self::of(self.next_value()?)
    }

    /// Takes an integer, or an integer as text.
    pub(crate) fn int(&mut self) -> Result<i64, Failure> {
        int(&self.next_value()?)
    }

    /// Takes a sequence number.
    pub(crate) fn seqno(&mut self) -> Result<Seqno, Failure> {
        let number = u64::try_from(self.int()?);
        number.map(Seqno).map_err(|_| unexpected())
    }

    /// Takes a sequence number that is negative if there is none.
    pub(crate) fn optional_seqno(&mut self) -> Result<Option<Seqno>, Failure> {
        Ok(u64::try_from(self.int()?).ok().map(Seqno))
    }

    /// Takes a text of bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Failure> {
        self.optional_bytes()?.ok_or_else(unexpected)
    }

    /// Takes a text of bytes that may be missing.
    pub(crate) fn optional_bytes(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        optional_bytes(self.next_value()?)
    }

    /// Returns whether all values have been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

/// Returns an integer, or an integer as text.
pub(crate) fn int(value: &Value) -> Result<i64, Failure> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::BulkString(text) => {
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)
        }
        _ => Err(unexpected()),
    }
}

/// Returns a text of bytes; `None` for a missing value.
pub(crate) fn optional_bytes(value: Value) -> Result<Option<Vec<u8>>, Failure> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        _ => Err(unexpected()),
    }
}
