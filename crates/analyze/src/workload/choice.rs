//! Which object an operation is about.

use serde::Serialize;
use store::Entropy;

/// How objects are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Operation after operation the next one.
    InTurn,
    /// Each once, far from the one before: an object is not read again before all others were.
    Scattered,
    /// Each as often as any other.
    Uniform,
    /// YCSB's scrambled zipfian: few often, most seldom, and the frequent ones anywhere among the others.
    Zipfian,
}

impl Choice {
    /// The object of an operation, below `objects`.
    pub(crate) fn object(self, operation: u64, objects: u64, entropy: &Entropy) -> u64 {
        match self {
            Self::InTurn => operation % objects,
            Self::Scattered => scattered(operation % objects, objects),
            Self::Uniform => entropy.below(objects),
            Self::Zipfian => scrambled(zipfian_rank(unit(entropy))) % objects,
        }
    }
}

/// A permutation of the numbers below `objects`: multiplication by a number without a common divisor.
fn scattered(number: u64, objects: u64) -> u64 {
    const STEPS: [u64; 4] = [7919, 104_729, 1_299_709, 15_485_863];
    let step = STEPS.into_iter().find(|step| !objects.is_multiple_of(*step)).unwrap_or(1);
    (u128::from(number) * u128::from(step) % u128::from(objects.max(1))) as u64
}

/// A number from 0 to below 1.
fn unit(entropy: &Entropy) -> f64 {
    (entropy.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// YCSB draws from so many ranks whatever the number of objects, and folds them (`ScrambledZipfianGenerator`).
const RANKS: f64 = 1e10;
/// YCSB's zipfian constant.
const THETA: f64 = 0.99;
/// The sum of `1 / rank^THETA` over all ranks, as YCSB has it.
const ZETA: f64 = 26.46902820178302;

/// The rank at which the cumulated probability reaches `unit` (Gray et al., "Quickly Generating Billion-Record
/// Synthetic Databases", SIGMOD 1994): exact for the first two, closely approximated for the others.
fn zipfian_rank(unit: f64) -> u64 {
    let second = 0.5_f64.powf(THETA);
    let reached = unit * ZETA;
    if reached < 1.0 {
        return 0;
    }
    if reached < 1.0 + second {
        return 1;
    }
    let eta = (1.0 - (2.0 / RANKS).powf(1.0 - THETA)) / (1.0 - (1.0 + second) / ZETA);
    (RANKS * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - THETA))) as u64
}

/// The FNV-1a hash of a number's bytes, as YCSB scrambles ranks and makes keys.
pub(crate) fn scrambled(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 200_000;

    fn counts(choice: Choice, objects: u64) -> Vec<u64> {
        let entropy = Entropy::new(7);
        let mut counts = vec![0; objects as usize];
        for operation in 0..DRAWS {
            counts[choice.object(operation, objects, &entropy) as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_is_uniform() {
        let counts = counts(Choice::Uniform, 100);
        let expected = DRAWS as f64 / 100.0;
        let chi_squared: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
        // 99 degrees of freedom: above 149 once in a thousand.
        assert!(chi_squared < 149.0, "{chi_squared}");
    }

    #[test]
    fn in_turn_meets_each_equally() {
        assert!(counts(Choice::InTurn, 100).iter().all(|&n| n == DRAWS / 100));
    }

    #[test]
    fn scattered_meets_each_once() {
        for objects in [1, 2, 100, 4000, 7919, 16_384] {
            let met: std::collections::BTreeSet<u64> = (0..objects).map(|n| scattered(n, objects)).collect();
            assert_eq!((met.len() as u64, met.last().copied()), (objects, Some(objects - 1)));
        }
    }

    /// The first ranks come as often as 1, 1/2^0.99, 1/3^0.99, 1/4^0.99 say.
    #[test]
    fn ranks_are_zipfian() {
        let entropy = Entropy::new(7);
        let mut counts = [0u64; 4];
        for _ in 0..DRAWS {
            if let Some(count) = counts.get_mut(zipfian_rank(unit(&entropy)) as usize) {
                *count += 1;
            }
        }
        for (rank, count) in counts.into_iter().enumerate() {
            let expected = DRAWS as f64 / ZETA / (rank as f64 + 1.0).powf(THETA);
            // The approximation is a few percent off at the third rank.
            let allowed = if rank < 2 { 4.0 * expected.sqrt() } else { 0.25 * expected };
            assert!((count as f64 - expected).abs() < allowed, "rank {rank}: {count}, not {expected}");
        }
    }

    #[test]
    fn a_zipfian_choice_has_its_favourites_anywhere() {
        let counts = counts(Choice::Zipfian, 1000);
        let hottest = (0..1000).max_by_key(|&at| counts[at as usize]).unwrap();
        assert_eq!(hottest, scrambled(0) % 1000);
        let share = counts[hottest as usize] as f64 / DRAWS as f64;
        assert!((0.036..0.041).contains(&share), "{share}");
        let mut sorted = counts;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = sorted[..100].iter().sum();
        assert!((0.20..0.40).contains(&(hot as f64 / DRAWS as f64)), "{hot}");
    }
}
