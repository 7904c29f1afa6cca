//! The order of a key's events.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Timestamp;

/// The position of an event among those of its key; greater is later. Events of different keys have no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// Writes a `sequencer` as AWS does: hexadecimal, here with a fixed length, so that texts sort like numbers.
impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl Sequence {
    /// Parses a `sequencer` of up to 16 digits after leading zeros; `None` for any other text. Shorter texts count as
    /// padded on the left, as AWS specifies.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim_start_matches('0');
        match digits {
            "" => (!text.is_empty()).then_some(Self(0)),
            digits => u64::from_str_radix(digits, 16).ok().map(Self),
        }
    }
}

/// Generates sequences. Each is greater than the one before, also across restarts as long as the clock is not set back.
#[derive(Debug, Default)]
pub struct Sequencer(AtomicU64);

impl Sequencer {
    /// Reserves two consecutive sequences, not below the nanoseconds of `now`, and returns the first.
    pub fn next_two(&self, now: Timestamp) -> Sequence {
        let now = u64::try_from(now.0).unwrap_or(0);
        let first = |last: u64| now.max(last.saturating_add(1));
        let update = |last| Some(first(last).saturating_add(1));
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        Sequence(first(last.unwrap_or_else(|last| last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_grow_whatever_the_clock_does() {
        let sequencer = Sequencer::default();
        let given: Vec<u64> =
            [5, 5, 100, 3].into_iter().map(|now| sequencer.next_two(Timestamp(now)).0).collect();
        assert_eq!(given, [5, 7, 100, 102]);
    }

    #[test]
    fn texts_sort_like_numbers_and_survive_a_round_trip() {
        let (low, high) = (Sequence(9), Sequence(0x10));
        assert!(low.to_string() < high.to_string());
        assert_eq!(Sequence::parse(&high.to_string()), Some(high));
        assert_eq!(Sequence::parse("0055AED6DCD90281E5"), Sequence::parse("55AED6DCD90281E5"));
        assert_eq!(Sequence::parse("000"), Some(Sequence(0)));
        assert_eq!((Sequence::parse(""), Sequence::parse("x")), (None, None));
    }
}
