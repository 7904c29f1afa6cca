//! Times as text, for messages and JSON (RFC 3339).

use std::time::SystemTime;

/// Formats a time in whole seconds; the beginning of 1970 if the format cannot express its year.
pub(crate) fn rfc3339(at: store::Timestamp) -> String {
    jiff::Timestamp::from_second(at.secs()).unwrap_or_default().to_string()
}

/// Formats a time with its fraction; `None` outside the years that the format can express.
pub(crate) fn rfc3339_exact(at: store::Timestamp) -> Option<String> {
    jiff::Timestamp::from_nanosecond(i128::from(at.0)).ok().map(|at| at.to_string())
}

/// Formats a time of the system with its fraction; `None` outside the years that the format can express.
pub(crate) fn rfc3339_system(at: SystemTime) -> Option<String> {
    jiff::Timestamp::try_from(at).ok().map(|at| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_are_in_utc() {
        let at = store::Timestamp(1_764_000_000_250_000_000);
        assert_eq!(rfc3339(at), "2025-11-24T16:00:00Z");
        assert_eq!(rfc3339_exact(at).unwrap(), "2025-11-24T16:00:00.25Z");
        assert_eq!(
            rfc3339_system(UNIX_EPOCH + Duration::from_millis(1500)).unwrap(),
            "1970-01-01T00:00:01.5Z"
        );
        assert_eq!(rfc3339_exact(store::Timestamp(i64::MAX)).unwrap(), "2262-04-11T23:47:16.854775807Z");
    }
}
