//! Documents: small JSON objects that people can read, followed by a line with their checksum.

use log::Crc;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const LABEL: &str = "crc32c ";

/// Encodes a document.
pub(crate) fn encode(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    let line = format!("{LABEL}{:08x}\n", Crc::of(&text));
    text.extend_from_slice(line.as_bytes());
    Ok(text)
}

/// Decodes a document of at most this version, or says what is wrong, as a predicate.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8], version_max: u32) -> Result<T, String> {
    let value = parse(bytes)?;
    match version_in(&value)? {
        version if version <= version_max => {}
        version => return Err(format!("has version {version}; use a newer Tenon")),
    }
    serde_json::from_value(value).map_err(|error| format!("cannot be read: {error}"))
}

/// Returns the version of a document, or says what is wrong, as a predicate.
pub(crate) fn version_of(bytes: &[u8]) -> Result<u32, String> {
    version_in(&parse(bytes)?)
}

/// Verifies the checksum of a document, and parses its JSON.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    let damaged = || "has a wrong checksum".to_owned();
    let line_at = bytes.len().checked_sub(LABEL.len() + 9).ok_or("is cut off")?;
    let (text, line) = bytes.split_at(line_at);
    if line != format!("{LABEL}{:08x}\n", Crc::of(text)).as_bytes() {
        return Err(damaged());
    }
    serde_json::from_slice(text).map_err(|_| damaged())
}

fn version_in(value: &Value) -> Result<u32, String> {
    let version = value["version"].as_u64().and_then(|version| u32::try_from(version).ok());
    version.ok_or_else(|| "has no version".into())
}
