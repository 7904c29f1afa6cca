//! The keys of the records that a commit changes, as a part of the log.
//!
//! Other sessions read them to drop these records from their caches. A key is its length in 2 bytes, big-endian, and its bytes.

use meta::{Commit, EngineError};

/// Returns the keys of the records that a commit changes.
pub fn of(commit: &Commit) -> impl Iterator<Item = &[u8]> {
    commit.written_keys().chain(commit.merges.iter().map(|(key, _)| key.as_slice()))
}

/// Returns keys as the log has them.
///
/// # Panics
/// Panics if a key has more than 65,535 bytes. The longest key is that of an object's use, with about 1 KiB.
pub fn encode<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Vec<u8> {
    let mut encoded = Vec::new();
    for key in keys {
        let length = u16::try_from(key.len());
        assert!(length.is_ok(), "keys of records are short");
        encoded.extend_from_slice(&length.unwrap_or_default().to_be_bytes());
        encoded.extend_from_slice(key);
    }
    encoded
}

/// Returns the keys of an entry of the log.
pub fn decode(mut encoded: &[u8]) -> Result<Vec<&[u8]>, EngineError> {
    let mut keys = Vec::new();
    while !encoded.is_empty() {
        let split = encoded
            .split_first_chunk::<2>()
            .and_then(|(length, rest)| rest.split_at_checked(usize::from(u16::from_be_bytes(*length))));
        let (key, rest) = split
            .ok_or_else(|| EngineError::Corrupt("the log has a damaged list of changed records".into()))?;
        keys.push(key);
        encoded = rest;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_as_they_were_encoded() {
        let keys: [&[u8]; 3] = [b"one", b"", &[7; 300]];
        let encoded = encode(keys.into_iter());
        assert_eq!(decode(&encoded).unwrap(), keys);
        assert!(decode(&encoded[..encoded.len() - 1]).is_err() && decode(b"x").is_err());
    }
}
