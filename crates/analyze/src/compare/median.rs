//! The middle of several rounds: of figures, and of rounds themselves.

use super::Measurement;

/// The median of figures: of an even number of them the mean of the middle two.
pub(super) fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let (above, below) = (figures.get(figures.len() / 2)?, figures.get((figures.len() - 1) / 2)?);
    Some(f64::midpoint(*above, *below))
}

/// Rounds by their time.
pub(super) struct ByTime<'a>(Vec<&'a Measurement>);

impl<'a> ByTime<'a> {
    pub(super) fn of(rounds: impl Iterator<Item = &'a Measurement>) -> Self {
        let mut rounds: Vec<_> = rounds.collect();
        rounds.sort_by(|a, b| a.secs_per_operation().total_cmp(&b.secs_per_operation()));
        Self(rounds)
    }

    /// One round as it was, for the figures of a row to belong together: the middle one, of an even number the faster one of
    /// the middle two.
    pub(super) fn middle(&self) -> Option<&'a Measurement> {
        self.0.get(self.0.len().checked_sub(1)? / 2).copied()
    }

    /// The fastest and the slowest.
    pub(super) fn range(&self) -> Option<(&'a Measurement, &'a Measurement)> {
        self.0.first().copied().zip(self.0.last().copied())
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two rounds the slower one was called the median.
    #[test]
    fn the_middle_of_two_is_between_them() {
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(vec![4.0, 1.0, 9.0]), Some(4.0));
        assert_eq!(median(Vec::new()), None);
        let rounds = [3.0, 1.0].map(|wall_secs| {
            let mut round = Measurement::default();
            round.done.wall_secs = wall_secs;
            round
        });
        let sorted = ByTime::of(rounds.iter());
        assert_eq!(sorted.middle().unwrap().done.wall_secs, 1.0);
        let (fastest, slowest) = sorted.range().unwrap();
        assert_eq!((fastest.done.wall_secs, slowest.done.wall_secs), (1.0, 3.0));
        assert!(ByTime::of(std::iter::empty()).middle().is_none());
    }
}
