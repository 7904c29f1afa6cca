//! Statistics of repeats: medians, spread, slow repeats, and ratios with confidence intervals.

use store::Entropy;

/// Number of samples of a bootstrap.
const SAMPLES: usize = 2000;
/// Share of the samples inside a confidence interval.
const CONFIDENCE: f64 = 0.95;
/// A repeat is marked if it is slower than the median by more than this factor.
const SLOW_FACTOR: f64 = 3.0;
/// Fewer repeats give no interval: their bootstrap samples hardly differ.
const REPEATS_MIN: usize = 3;

/// The distribution of the rates of a cell's repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Number of repeats.
    pub count: usize,
    /// Lowest rate.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Highest rate, the paper's PEAK.
    pub peak: f64,
    /// Number of repeats that were slower than the median by more than a factor of three. They stay in the spread.
    pub slow: usize,
}

/// A ratio of two medians with its confidence interval of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// Ratio of the medians.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The conclusion from a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// The whole interval lies above 1.
    Faster,
    /// The whole interval lies below 1.
    Slower,
    /// The interval contains 1: noise forbids a conclusion.
    None,
}

impl Spread {
    /// Returns the distribution of these rates; `None` without any.
    pub fn of(rates: &[f64]) -> Option<Self> {
        let mut sorted = rates.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 0.5)?;
        Some(Self {
            count: sorted.len(),
            min: *sorted.first()?,
            q1: quantile(&sorted, 0.25)?,
            median,
            q3: quantile(&sorted, 0.75)?,
            peak: *sorted.last()?,
            slow: sorted.iter().filter(|rate| **rate * SLOW_FACTOR < median).count(),
        })
    }
}

impl Ratio {
    /// Returns the ratio of the medians of `a` and `b`, with an interval by the bootstrap: both are drawn anew, with replacement, from
    /// their own repeats. `None` if either has fewer than three repeats.
    pub fn of(a: &[f64], b: &[f64], seed: u64) -> Option<Self> {
        if a.len().min(b.len()) < REPEATS_MIN {
            return None;
        }
        let entropy = Entropy::new(seed);
        let mut ratios: Vec<f64> =
            (0..SAMPLES).map(|_| median(&draw(a, &entropy)) / median(&draw(b, &entropy))).collect();
        ratios.sort_by(f64::total_cmp);
        let tail = (1.0 - CONFIDENCE) / 2.0;
        Some(Self {
            value: median(a) / median(b),
            low: quantile(&ratios, tail)?,
            high: quantile(&ratios, 1.0 - tail)?,
        })
    }

    /// Returns what the interval allows to say.
    pub fn conclusion(&self) -> Conclusion {
        match (self.low > 1.0, self.high < 1.0) {
            (true, _) => Conclusion::Faster,
            (_, true) => Conclusion::Slower,
            _ => Conclusion::None,
        }
    }
}

/// Returns as many values, drawn at random with replacement.
fn draw(values: &[f64], entropy: &Entropy) -> Vec<f64> {
    values.iter().map(|_| values[entropy.below(values.len() as u64) as usize]).collect()
}

/// Returns the median; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile(&sorted, 0.5).unwrap_or(f64::NAN)
}

/// Returns a quantile of sorted values, interpolated between neighbours.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_repeat_stays_in_the_spread_and_is_marked() {
        let spread = Spread::of(&[100.0, 102.0, 98.0, 10.0, 101.0]).unwrap();
        assert_eq!((spread.count, spread.min, spread.median, spread.peak), (5, 10.0, 100.0, 102.0));
        assert_eq!(spread.slow, 1);
        assert_eq!(Spread::of(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn an_interval_that_contains_one_allows_no_conclusion() {
        let (a, b) = ([100.0, 103.0, 99.0, 101.0, 98.0], [50.0, 52.0, 49.0, 51.0, 50.5]);
        let ratio = Ratio::of(&a, &b, 1).unwrap();
        assert!(ratio.low <= ratio.value && ratio.value <= ratio.high);
        assert!((ratio.value - 100.0 / 50.5).abs() < 1e-9);
        assert_eq!(ratio.conclusion(), Conclusion::Faster);
        assert_eq!(Ratio::of(&b, &a, 1).unwrap().conclusion(), Conclusion::Slower);
        let noisy = [60.0, 140.0, 99.0, 75.0, 120.0];
        assert_eq!(Ratio::of(&noisy, &a, 1).unwrap().conclusion(), Conclusion::None);
        assert_eq!(Ratio::of(&a[..2], &b, 1), None);
        assert_eq!(Ratio::of(&a, &b, 7), Ratio::of(&a, &b, 7));
    }
}
