//! Several handlers, each for a part of all objects.
//!
//! The handler of a part receives hints of, and lists, only the objects of its part ([`Part::of_hints`],
//! [`Part::of_buckets`]). It need not know of the other handlers. A client asks one handler of each part ([`Union`]).
//! See `docs/decisions/0037-every-handler-receives-all-events.md`.
//!
//! Invariant: for a given number of parts, every object belongs to exactly one of them, and to the same one in every
//! process.

mod part_buckets;
mod part_sink;
mod union;

pub use union::Union;

use events::Sink;
use part_buckets::PartBuckets;
use part_sink::PartSink;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use store::Buckets;
use xxhash_rust::xxh3::Xxh3Default;

/// One of several parts: `2/3` is the second of three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Index of the part, from 0.
    index: u64,
    /// Number of parts, at least 1.
    count: u64,
}

impl Part {
    /// The only part, with all objects.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// Returns the number of parts.
    pub fn count(self) -> usize {
        self.count as usize
    }

    /// Returns the index of the part, from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// Returns whether an object belongs to the part.
    pub fn has(self, container: &str, key: &[u8]) -> bool {
        if self.count == 1 {
            return true;
        }
        let mut hash = Xxh3Default::new();
        hash.update(container.as_bytes());
        hash.update(&[0]);
        hash.update(key);
        hash.digest() % self.count == self.index
    }

    /// Returns a sink that passes the hints of the part's objects, and every report of lost hints, on to `sink`.
    pub fn of_hints(self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        if self == Self::ALL {
            return sink;
        }
        Arc::new(PartSink { part: self, sink })
    }

    /// Returns the buckets with listings that have only the part's objects.
    pub fn of_buckets(self, buckets: Arc<dyn Buckets>) -> Arc<dyn Buckets> {
        if self == Self::ALL {
            return buckets;
        }
        Arc::new(PartBuckets { part: self, buckets })
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || {
            format!(
                "'{text}' is not a part; write, for example, 2/3 for the second of three parts, of which there are at most 1024"
            )
        };
        let (index, count) = text.split_once('/').ok_or_else(malformed)?;
        let (index, count): (u64, u64) =
            (index.parse().map_err(|_| malformed())?, count.parse().map_err(|_| malformed())?);
        let is_part = (1..=1024).contains(&count) && (1..=count).contains(&index);
        if is_part { Ok(Self { index: index - 1, count }) } else { Err(malformed()) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}
