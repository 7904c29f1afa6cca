//! Shared parts of listings: the start position, grouping by delimiter, and page tokens.
//!
//! A page's token is the text (key or common prefix) of its last entry in hexadecimal. So a listing continues after
//! that text, no matter which keys were written or removed meanwhile.

use crate::{ListRequest, Result, StoreError};
use bytes::Bytes;

/// Maximum entries of a page: S3's 1,000, and one more that tells an endpoint whether another page follows.
pub const PAGE_ENTRIES_MAX: usize = 1001;

/// A [`ListRequest`] with its token decoded and its limit capped.
#[derive(Debug, Clone)]
pub struct Scan {
    /// Return only keys with this prefix.
    pub prefix: Bytes,
    /// Group keys up to the first occurrence of this byte after the prefix.
    pub delimiter: Option<u8>,
    /// Return only texts greater than this.
    pub after: Option<Bytes>,
    /// Maximum number of entries.
    pub limit: usize,
    /// Return the attributes of objects, see [`ListRequest::with_attributes`].
    pub with_attributes: bool,
}

impl Scan {
    /// Parses a request; a malformed token is `Invalid`.
    pub fn new(request: ListRequest, limit_max: usize) -> Result<Self> {
        let after = match request.token {
            Some(token) => Some(decode_token(&token)?),
            None => request.start_after,
        };
        let limit = request.limit.min(limit_max);
        let ListRequest { prefix, delimiter, with_attributes, .. } = request;
        Ok(Self { prefix, delimiter, after, limit, with_attributes })
    }

    /// Returns the common prefix that `key` belongs to, if any. The key must begin with the scan's prefix.
    pub fn fold<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let delimiter = self.delimiter?;
        let at = key[self.prefix.len()..].iter().position(|&byte| byte == delimiter)?;
        Some(&key[..self.prefix.len() + at + 1])
    }

    /// Returns whether a key or common prefix lies after the scan's start position.
    pub fn is_after(&self, text: &[u8]) -> bool {
        self.after.as_ref().is_none_or(|after| text > after.as_ref())
    }
}

/// Returns the smallest byte string greater than all strings that begin with `prefix`; `None` if there is none.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// Returns the token of the page that follows an entry with this text.
pub fn token_after(text: &[u8]) -> String {
    crate::hex(text)
}

fn decode_token(token: &str) -> Result<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let text: Option<Vec<u8>> = token.as_bytes().chunks(2).map(byte).collect();
    text.map(Bytes::from).ok_or_else(|| StoreError::Invalid("invalid token of a listing".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back() {
        for text in [b"".as_slice(), b"a", b"\x00\xff/", "ü".as_bytes()] {
            assert_eq!(decode_token(&token_after(text)).unwrap(), text);
        }
        assert!(decode_token("abc").is_err());
        assert!(decode_token("zz").is_err());
    }

    #[test]
    fn a_successor_is_above_everything_with_the_prefix() {
        assert_eq!(successor(b"a/"), Some(b"a0".to_vec()));
        assert_eq!(successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(successor(b"\xff"), None);
        assert_eq!(successor(b""), None);
    }
}
