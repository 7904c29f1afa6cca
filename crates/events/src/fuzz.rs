//! Fuzz target for the crate `fuzz`: for any input nothing panics, and the hints read are plausible.

use crate::{Dialect, Message};
use store::KEY_BYTES_MAX;

/// Reads the input as a message in every dialect. If it begins with `#`, attribute lines precede the body, up to an empty line.
pub fn messages(bytes: &[u8]) {
    crate::dialect::fuzz_json(bytes);
    let (attributes, body) = match bytes.strip_prefix(b"#") {
        None => (Vec::new(), bytes),
        Some(rest) => {
            let end = rest.windows(2).position(|two| two == b"\n\n").unwrap_or(rest.len());
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let pairs = head.lines().filter_map(|line| line.split_once(':'));
            let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            (pairs, rest.get(end + 2..).unwrap_or_default())
        }
    };
    let message = Message { body: bytes::Bytes::copy_from_slice(body), attributes };
    for dialect in Dialect::ALL {
        let mut read = 0;
        let outcome = dialect.read(&message, &mut |hint| {
            assert!(!hint.bucket.is_empty() && (1..=KEY_BYTES_MAX).contains(&hint.key.len()));
            assert_eq!(hint.clone().into_owned(), hint);
            read += 1;
        });
        // A message can have the attributes of one format and the body of another; detection then goes by the attributes.
        let is_of_one_format = message.attributes.is_empty() || dialect == Dialect::Gcs;
        if dialect != Dialect::Detected && is_of_one_format && outcome.is_ok() {
            let mut detected = 0;
            let again = Dialect::Detected.read(&message, &mut |_| detected += 1);
            assert!(read == 0 || again.is_err() || detected > 0);
        }
    }
}
