//! Version ids made by Tenon's own stores: 26 digits of Crockford's base 32, the first of which holds three bits. Ids
//! begin with the modification time in milliseconds, followed by a 64-bit number of the write (the ULID layout), so
//! that a later write has a greater id unless the clock was set back.

use crate::{NULL_VERSION, Result, StoreError, Timestamp, Version, VersionId};

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const LENGTH: usize = 26;

/// Makes the id of the version that a write stored.
pub fn new(write: u64, modified: Timestamp) -> VersionId {
    let millis = (modified.0.max(0) / 1_000_000) as u128;
    let number = millis << 80 | u128::from(write);
    let digit = |at: usize| char::from(DIGITS[(number >> (5 * (LENGTH - 1 - at)) & 31) as usize]);
    (0..LENGTH).map(digit).collect::<String>().into()
}

/// Returns the number of the write from an id; `None` if the text is not an id of this form.
pub fn write_of(text: &str) -> Option<u64> {
    if !is_one(text) {
        return None;
    }
    let place = |byte: u8| DIGITS.iter().position(|&digit| digit == byte).map(|at| at as u128);
    let number = text.bytes().filter_map(place).fold(0, |number, digit| number << 5 | digit);
    Some(number as u64)
}

/// Returns the versions of a key (newest first) that a listing has still to return after the version `marker`. If the
/// marker was removed, all versions follow that are not known to be newer: no version is left out, but the version `null`,
/// whose id contains no write number, may be returned twice.
pub fn after(versions: Vec<Version>, marker: &str) -> impl Iterator<Item = Version> {
    let listed = versions.iter().position(|version| *version.id == *marker).or_else(|| {
        let write = write_of(marker)?;
        versions.iter().rposition(|version| write_of(&version.id).is_some_and(|later| later >= write))
    });
    versions.into_iter().skip(listed.map_or(0, |last| last + 1))
}

/// Returns whether a text has the form of an id made by [`new`].
pub fn is_one(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte)) && text < "8"
}

/// Fails with `Invalid` for a text that cannot be a version's id.
pub fn check(text: &str) -> Result<()> {
    if is_one(text) || text == NULL_VERSION {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("invalid version id '{text}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_write() {
        for write in [0, 1, 31, 32, 1 << 40, u64::MAX] {
            let name = new(write, Timestamp(1_767_268_800_123_456_789));
            assert_eq!(write_of(&name), Some(write), "{name}");
        }
        for text in [NULL_VERSION, "", "80000000000000000000000000", "0000000000000000000000000U"] {
            assert_eq!(write_of(text), None, "{text}");
        }
    }
}
