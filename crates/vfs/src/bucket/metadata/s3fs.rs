//! Extended attributes in one header, in the format of s3fs: `x-amz-meta-xattr` is a percent-encoded JSON object that maps full
//! names to base64 values.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::collections::BTreeMap;

/// The name of the header among user metadata.
pub(super) const HEADER: &str = "xattr";

/// Characters to percent-encode.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the attributes in a header, empty without a header. `None` if the header has another format.
pub(super) fn unpack(header: Option<&String>) -> Option<BTreeMap<Vec<u8>, Bytes>> {
    let Some(header) = header else { return Some(BTreeMap::new()) };
    let json = percent_decode_str(header).decode_utf8().ok()?;
    let pairs: BTreeMap<String, String> = serde_json::from_str(&json).ok()?;
    let value =
        |(name, value): (String, String)| Some((name.into_bytes(), STANDARD.decode(value).ok()?.into()));
    pairs.into_iter().map(value).collect()
}

/// Returns the header for a set of attributes. All names must be valid text.
pub(super) fn pack(attributes: &BTreeMap<Vec<u8>, Bytes>) -> String {
    let pair = |(name, value): (&Vec<u8>, &Bytes)| {
        (String::from_utf8_lossy(name).into_owned(), STANDARD.encode(value))
    };
    let pairs: BTreeMap<String, String> = attributes.iter().map(pair).collect();
    let json = serde_json::json!(pairs).to_string();
    utf8_percent_encode(&json, ESCAPED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_written_by_s3fs_are_read() {
        let header = "%7B%22user.color%22%3A%22Ymx1ZQ%3D%3D%22%2C%22user.empty%22%3A%22%22%7D".to_owned();
        let found = unpack(Some(&header)).unwrap();
        assert_eq!(found[&b"user.color"[..]], "blue");
        assert_eq!(found[&b"user.empty"[..]], "");
        assert_eq!(pack(&found), header);
        assert_eq!(unpack(Some(&"{\"a\":\"Yg==\"}".to_owned())).unwrap()[&b"a"[..]], "b");
        assert_eq!(unpack(Some(&"mine".to_owned())), None);
    }
}
