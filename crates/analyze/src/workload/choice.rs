//! Distributions by which operations choose their objects.

use serde::Serialize;
use store::Entropy;

/// The distribution by which objects are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// Round-robin: each operation chooses the next object.
    InTurn,
    /// A fixed permutation in which consecutive objects are far apart. No object is chosen again before all others were.
    Scattered,
    /// All objects with equal probability.
    Uniform,
    /// YCSB's scrambled zipfian distribution: a few popular objects, spread over all objects.
    Zipfian,
}

impl Choice {
    /// Returns the object of an operation, a number below `objects`.
    pub(crate) fn object(self, operation: u64, objects: u64, entropy: &Entropy) -> u64 {
        match self {
            Self::InTurn => operation % objects,
            Self::Scattered => permuted(operation % objects, objects),
            Self::Uniform => entropy.below(objects),
            Self::Zipfian => fnv_hash(zipfian_rank(random_unit(entropy))) % objects,
        }
    }
}

/// Permutes the numbers below `objects` by multiplication with a number that is coprime to `objects`.
fn permuted(number: u64, objects: u64) -> u64 {
    const STEPS: [u64; 4] = [7919, 104_729, 1_299_709, 15_485_863];
    let step = STEPS.into_iter().find(|step| !objects.is_multiple_of(*step)).unwrap_or(1);
    (u128::from(number) * u128::from(step) % u128::from(objects.max(1))) as u64
}

/// Returns a random number in [0, 1).
fn random_unit(entropy: &Entropy) -> f64 {
    (entropy.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Number of ranks that YCSB draws from, whatever the number of objects; ranks are then hashed to objects (`ScrambledZipfianGenerator`).
const RANKS: f64 = 1e10;
/// YCSB's zipfian constant.
const THETA: f64 = 0.99;
/// The sum of `1 / rank^THETA` over all ranks, with YCSB's value.
const ZETA: f64 = 26.46902820178302;

/// Returns the rank at which the cumulative probability reaches `unit` (Gray et al., "Quickly Generating Billion-Record Synthetic
/// Databases", SIGMOD 1994). Exact for the first two ranks, a close approximation for the others.
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

/// Returns the FNV-1a hash of a number's bytes, which YCSB uses to scramble ranks and keys.
pub(crate) fn fnv_hash(number: u64) -> u64 {
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
    fn in_turn_chooses_all_objects_equally_often() {
        assert!(counts(Choice::InTurn, 100).iter().all(|&n| n == DRAWS / 100));
    }

    #[test]
    fn scattered_chooses_each_object_once() {
        for objects in [1, 2, 100, 4000, 7919, 16_384] {
            let chosen: std::collections::BTreeSet<u64> =
                (0..objects).map(|n| permuted(n, objects)).collect();
            assert_eq!((chosen.len() as u64, chosen.last().copied()), (objects, Some(objects - 1)));
        }
    }

    /// The frequencies of the first ranks are as 1 : 1/2^0.99 : 1/3^0.99 : 1/4^0.99.
    #[test]
    fn ranks_are_zipfian() {
        let entropy = Entropy::new(7);
        let mut counts = [0u64; 4];
        for _ in 0..DRAWS {
            if let Some(count) = counts.get_mut(zipfian_rank(random_unit(&entropy)) as usize) {
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
    fn popular_objects_of_a_zipfian_choice_are_spread() {
        let counts = counts(Choice::Zipfian, 1000);
        let hottest = (0..1000).max_by_key(|&at| counts[at as usize]).unwrap();
        assert_eq!(hottest, fnv_hash(0) % 1000);
        let share = counts[hottest as usize] as f64 / DRAWS as f64;
        assert!((0.036..0.041).contains(&share), "{share}");
        let mut sorted = counts;
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u64 = sorted[..100].iter().sum();
        assert!((0.20..0.40).contains(&(hot as f64 / DRAWS as f64)), "{hot}");
    }
}
