//! Several handlers, each of a part of all objects.
//!
//! A handler of a part is one that hears and lists nothing else ([`Part::of_hints`], [`Part::of_buckets`]): it need not know that
//! there are others. A client asks one of each part ([`Union`]). See `docs/decisions/0037-every-handler-hears-all.md`.
//!
//! Invariant: every object belongs to exactly one of so many parts, and to the same one for everybody.

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

/// One of some parts: `2/3` is the second of three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// From 0.
    index: u64,
    count: u64,
}

impl Part {
    /// The only one of one.
    pub const ALL: Self = Self { index: 0, count: 1 };

    /// How many parts there are.
    pub fn count(self) -> usize {
        self.count as usize
    }

    /// Which one it is, from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// Whether an object belongs to it.
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

    /// Hands on the hints of objects that belong to it.
    pub fn of_hints(self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        if self == Self::ALL {
            return sink;
        }
        Arc::new(PartSink { part: self, sink })
    }

    /// The buckets, whose listings show what belongs to it.
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
        let wrong = || format!("'{text}' is no part; the second of three is 2/3");
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let (index, count): (u64, u64) =
            (index.parse().map_err(|_| wrong())?, count.parse().map_err(|_| wrong())?);
        let is_part = (1..=1024).contains(&count) && (1..=count).contains(&index);
        if is_part { Ok(Self { index: index - 1, count }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}
