//! Medians of values and of rounds.

use super::Measurement;

/// Returns the median of values; for an even number of values, the mean of the middle two. `None` without any.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (above, below) = (values.get(values.len() / 2)?, values.get((values.len() - 1) / 2)?);
    Some(f64::midpoint(*above, *below))
}

/// Rounds, sorted by their time per operation.
pub(super) struct SortedRounds<'a>(Vec<&'a Measurement>);

impl<'a> SortedRounds<'a> {
    pub(super) fn new(rounds: impl Iterator<Item = &'a Measurement>) -> Self {
        let mut rounds: Vec<_> = rounds.collect();
        rounds.sort_by(|a, b| a.secs_per_operation().total_cmp(&b.secs_per_operation()));
        Self(rounds)
    }

    /// Returns the median round; for an even number of rounds, the faster of the middle two. It is a single round, so that all figures of a
    /// row belong together.
    pub(super) fn median(&self) -> Option<&'a Measurement> {
        self.0.get(self.0.len().checked_sub(1)? / 2).copied()
    }

    /// Returns the fastest and the slowest round.
    pub(super) fn range(&self) -> Option<(&'a Measurement, &'a Measurement)> {
        self.0.first().copied().zip(self.0.last().copied())
    }

    /// Returns the number of rounds.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bug: the slower of two rounds was called the median.
    #[test]
    fn the_median_of_two_values_is_their_mean() {
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![4.0, 1.0, 9.0]), Some(4.0));
        assert_eq!(median(Vec::new()), None);
        let rounds = [3.0, 1.0].map(|wall_secs| {
            let mut round = Measurement::default();
            round.done.wall_secs = wall_secs;
            round
        });
        let sorted = SortedRounds::new(rounds.iter());
        assert_eq!(sorted.median().unwrap().done.wall_secs, 1.0);
        let (fastest, slowest) = sorted.range().unwrap();
        assert_eq!((fastest.done.wall_secs, slowest.done.wall_secs), (1.0, 3.0));
        assert!(SortedRounds::new(std::iter::empty()).median().is_none());
    }
}
