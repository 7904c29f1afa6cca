//! Documents: small JSON objects that people can read, followed by a line with their checksum.

use log::Crc;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    let damaged = || "has a wrong checksum".to_owned();
    let line_at = bytes.len().checked_sub(LABEL.len() + 9).ok_or("is cut off")?;
    let (text, line) = bytes.split_at(line_at);
    if line != format!("{LABEL}{:08x}\n", Crc::of(text)).as_bytes() {
        return Err(damaged());
    }
    let value: serde_json::Value = serde_json::from_slice(text).map_err(|_| damaged())?;
    match value["version"].as_u64() {
        Some(version) if version <= u64::from(version_max) => {}
        Some(version) => return Err(format!("has version {version}; use a newer Tenon")),
        None => return Err("has no version".into()),
    }
    serde_json::from_value(value).map_err(|error| format!("cannot be read: {error}"))
}
