//! What versions are called where Tenon names them: 26 digits of Crockford's base 32, of which the first holds three bits.
//! The later write has the greater name.

use crate::{NULL_VERSION, Result, StoreError, Timestamp, VersionId};

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LENGTH: usize = 26;

/// The name of what a write stored.
pub fn new(write: u64, modified: Timestamp) -> VersionId {
    let millis = (modified.0.max(0) / 1_000_000) as u128;
    let number = millis << 80 | u128::from(write);
    let digit = |at: usize| char::from(DIGITS[(number >> (5 * (LENGTH - 1 - at)) & 31) as usize]);
    (0..LENGTH).map(digit).collect::<String>().into()
}

/// Whether a text can be such a name.
pub fn is_one(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte)) && text < "8"
}

/// `Invalid` for a text that no version was ever named by.
pub fn check(text: &str) -> Result<()> {
    if is_one(text) || text == NULL_VERSION {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("'{text}' is no version's id")))
}
