//! Verified reads: read data that has a checksum, and use the redundancy of the device if it does not match.

use super::{AlternateReader, BlockDevice};
use crate::error::Error;
use crate::verdict::Verdict;

/// Reads blocks, and checks them with `is_right`. If they are wrong, tries the alternatives of the device, which
/// repairs them once one is right. A failed read is not tried again. `what` names the data in errors.
pub(crate) fn read_verified(
    device: &dyn BlockDevice,
    what: &'static str,
    at: u64,
    into: &mut [u8],
    mut is_right: impl FnMut(&[u8]) -> bool,
) -> Verdict {
    if let Err(error) = device.read_at(at, into) {
        return Verdict::Unreadable(Error::device(at)(error));
    }
    if is_right(into) {
        return Verdict::Right(());
    }
    let found =
        reconstruct(device, |reader| (reader.read_at(at, into).is_ok() && is_right(into)).then_some(()));
    match found {
        Some(()) => Verdict::Right(()),
        None => Verdict::Wrong(Error::damaged(what, at)),
    }
}

/// Calls `attempt` with the alternative ways to read a device until it returns a value, as [`BlockDevice::reconstruct`] does.
pub(crate) fn reconstruct<T>(
    device: &dyn BlockDevice,
    mut attempt: impl FnMut(&mut AlternateReader<'_>) -> Option<T>,
) -> Option<T> {
    let mut found = None;
    let is_found = device.reconstruct(&mut |reader| {
        found = attempt(reader);
        found.is_some()
    });
    assert_eq!(is_found, found.is_some(), "the last attempt decides");
    found
}
