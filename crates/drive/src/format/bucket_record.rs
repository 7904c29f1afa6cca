//! Bucket records: the values of buckets' index entries.

use super::BucketId;
use crate::codec::{Decoder, Encoder};
use std::ops::RangeInclusive;
use store::{Timestamp, Versioning};

/// The value of a bucket's index entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketRecord {
    pub(crate) id: BucketId,
    /// The time at which the bucket was created.
    pub(crate) made: Timestamp,
    pub(crate) versioning: Versioning,
    /// The last changes of `versioning`, oldest first: the state applies to writes from this number on, up to the next change. The list
    /// begins with the bucket's creation, unless a former version of Tenon created the bucket or there were too many changes.
    pub(crate) periods: Vec<(u64, Versioning)>,
}

/// Maximum number of changes of versioning that a record keeps.
const PERIODS_MAX: usize = 64;

impl BucketRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.number(self.id);
        to.fixed64(self.made.0 as u64);
        to.byte(number_of(self.versioning));
        to.list(self.periods.iter(), |to, &(write, versioning)| {
            to.number(write);
            to.byte(number_of(versioning));
        });
        to.0
    }

    /// Makes the record of a new bucket.
    pub(crate) fn new(id: BucketId, made: Timestamp) -> Self {
        let versioning = Versioning::Never;
        Self { id, made, versioning, periods: vec![(id, versioning)] }
    }

    /// Returns the record with another versioning state from a write on.
    pub(crate) fn with_versioning(mut self, versioning: Versioning, write: u64) -> Self {
        self.periods.push((write, versioning));
        if self.periods.len() > PERIODS_MAX {
            self.periods.remove(0);
        }
        Self { versioning, ..self }
    }

    /// Returns the ranges of write numbers that may have stored a version with the id `null`, the last range first.
    pub(crate) fn writes_of_null(&self) -> Vec<RangeInclusive<u64>> {
        let ends = self.periods.iter().skip(1).map(|(write, _)| write - 1).chain([u64::MAX]);
        let periods = self.periods.iter().zip(ends);
        let of_null = periods.filter(|((_, versioning), _)| *versioning != Versioning::Enabled);
        let of_null = of_null.map(|(&(first, _), last)| first..=last);
        let known_from = self.periods.first().map_or(u64::MAX, |(write, _)| *write);
        let before = (known_from > self.id).then(|| self.id..=known_from.saturating_sub(1));
        let mut writes: Vec<_> = before.into_iter().chain(of_null).collect();
        writes.reverse();
        writes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Decoder(bytes);
        let (id, made) = (from.number()?, Timestamp(from.fixed64()? as i64));
        let versioning = versioning_of(from.byte()?)?;
        let mut periods = Vec::new();
        // Records written before version 0.23 end here.
        if !from.0.is_empty() {
            for _ in 0..from.number()? {
                let write = from.number()?;
                let is_later = periods.last().is_none_or(|(last, _)| *last < write);
                periods.push((write, versioning_of(from.byte()?)?));
                if !is_later || periods.len() > PERIODS_MAX {
                    return None;
                }
            }
        }
        Some(Self { id, made, versioning, periods })
    }
}

fn number_of(versioning: Versioning) -> u8 {
    match versioning {
        Versioning::Never => 0,
        Versioning::Enabled => 1,
        Versioning::Suspended => 2,
    }
}

fn versioning_of(number: u8) -> Option<Versioning> {
    [Versioning::Never, Versioning::Enabled, Versioning::Suspended].get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_writes_with_null_versions_follow_from_versioning_periods() {
        let made = BucketRecord::new(7, Timestamp(1));
        assert_eq!(made.writes_of_null(), [7..=u64::MAX]);
        let enabled = made.with_versioning(Versioning::Enabled, 20);
        let record = enabled.clone().with_versioning(Versioning::Suspended, 30);
        let record = record.with_versioning(Versioning::Enabled, 40);
        assert_eq!(record.writes_of_null(), [30..=39, 7..=19]);
        assert_eq!(BucketRecord::decode(&record.encode()).unwrap(), record);
        // A former version of Tenon wrote no periods.
        let older = BucketRecord { periods: Vec::new(), ..enabled.clone() };
        assert_eq!(older.writes_of_null(), [7..=u64::MAX - 1]);
        let mut old_bytes = older.encode();
        old_bytes.pop();
        assert_eq!(BucketRecord::decode(&old_bytes).unwrap(), older);
        let mut many = older;
        for write in 0..100 {
            let state = if write % 2 == 0 { Versioning::Suspended } else { Versioning::Enabled };
            many = many.with_versioning(state, 100 + write);
        }
        assert_eq!(BucketRecord::decode(&many.encode()).unwrap(), many);
        assert_eq!(many.writes_of_null().last(), Some(&(7..=135)));
        assert_eq!(many.writes_of_null().len(), 33);
    }
}
