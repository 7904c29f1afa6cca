//! Bytes as JSON: a string if they are UTF-8, otherwise an object with their hexadecimal digits.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a name, a key or a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Utf8(String),
    Other { hex: String },
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.serialize(serializer),
            Err(_) => Form::Other { hex: store::hex(&self.0) }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Utf8(text) => Ok(Self(text.into_bytes())),
            Form::Other { hex } => {
                store::unhex(&hex).map(Self).ok_or_else(|| D::Error::custom("not hexadecimal"))
            }
        }
    }
}
