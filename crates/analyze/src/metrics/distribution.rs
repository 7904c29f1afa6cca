//! Cumulative distributions with few enough steps to draw.

use crate::model::{Distribution, Step};

/// Approximate maximum number of steps; a drawn curve with more looks the same.
const STEPS_MAX: usize = 256;

/// Computes the cumulative distribution of the values.
pub(super) fn distribution(mut values: Vec<u64>) -> Distribution {
    values.sort_unstable();
    let count = values.len();
    let share = |rank: usize| rank as f64 / count as f64;
    let mut steps: Vec<Step> = Vec::new();
    let mut kept = 0;
    for (index, value) in values.iter().enumerate() {
        let rank = index + 1;
        let is_last = rank == count;
        if !is_last && values[rank] == *value {
            continue;
        }
        if is_last || steps.is_empty() || (rank - kept) * STEPS_MAX >= count {
            steps.push(Step { at_most: *value, share: share(rank) });
            kept = rank;
        }
    }
    Distribution { count: count as u64, steps }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_distribution_is_exact() {
        let found = distribution(vec![4096, 4096, 16384, 4096]);
        assert_eq!(found.count, 4);
        assert_eq!(found.steps, [Step { at_most: 4096, share: 0.75 }, Step { at_most: 16384, share: 1.0 }]);
        assert_eq!(distribution(Vec::new()), Distribution::default());
    }

    #[test]
    fn a_large_distribution_keeps_its_shape() {
        let found = distribution((1..=100_000).collect());
        assert!(found.steps.len() <= STEPS_MAX + 2, "{}", found.steps.len());
        assert_eq!(found.steps.last(), Some(&Step { at_most: 100_000, share: 1.0 }));
        assert!(found.steps.iter().all(|step| (step.share - step.at_most as f64 / 1e5).abs() < 0.01));
    }
}
