//! An engine of the erasure code for few members.
//!
//! `reed-solomon-simd` computes the factor of each unit by transforms over all 65,536 positions of a code of GF(2^16), whatever the number
//! of units. That takes 0.1 ms or more for each read without a device. For few members a direct sum is shorter.

use super::shape::MEMBERS_MAX;
use reed_solomon_simd::engine::tables::{self, Log};
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, GF_ORDER, GfElement, ShardsRefMut};

/// Number of positions that units may have: data and parity, one of them padded to a power of two.
const POSITIONS: usize = 2 * MEMBERS_MAX;

/// Computes like the default engine, except for the factors of lost units, which it computes for few positions.
#[derive(Default)]
pub(super) struct SmallCodeEngine(DefaultEngine);

impl Engine for SmallCodeEngine {
    fn fft(
        &self,
        data: &mut ShardsRefMut<'_>,
        pos: usize,
        size: usize,
        truncated_size: usize,
        skew_delta: usize,
    ) {
        self.0.fft(data, pos, size, truncated_size, skew_delta);
    }

    fn ifft(
        &self,
        data: &mut ShardsRefMut<'_>,
        pos: usize,
        size: usize,
        truncated_size: usize,
        skew_delta: usize,
    ) {
        self.0.ifft(data, pos, size, truncated_size, skew_delta);
    }

    fn mul(&self, x: &mut [[u8; 64]], log_m: GfElement) {
        self.0.mul(x, log_m);
    }

    /// Computes for each position the logarithm of the product of its distances to all other lost positions. The positions beyond those
    /// of units are either all lost or all present, and the product of the distances to all positions is 1.
    fn eval_poly(erasures: &mut [GfElement; GF_ORDER], _truncated_size: usize) {
        let beyond = erasures[POSITIONS];
        let differing: Vec<usize> = (0..POSITIONS).filter(|&position| erasures[position] != beyond).collect();
        let log = &tables::get_exp_log().log;
        for (position, erasure) in erasures[..POSITIONS].iter_mut().enumerate() {
            let sum = logarithm(log, position, &differing);
            *erasure = if beyond == 0 { sum } else { GF_MODULUS - sum };
        }
    }
}

fn logarithm(log: &Log, position: usize, differing: &[usize]) -> GfElement {
    let distances = differing.iter().map(|other| position ^ other).filter(|&distance| distance != 0);
    let sum: u64 = distances.map(|distance| u64::from(log[distance])).sum();
    (sum % u64::from(GF_MODULUS)) as GfElement
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums equal those of the crate, where 0 and 65,535 are both the logarithm of 1.
    #[test]
    fn sums_equal_the_transforms_of_the_default_engine() {
        let mut seed = 7u64;
        for beyond in [0, 1] {
            for count in [1, 2, 7, 64, POSITIONS] {
                let mut erasures = [beyond; GF_ORDER];
                for _ in 0..count {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    erasures[(seed >> 33) as usize % POSITIONS] = 1 - beyond;
                }
                let mut expected = erasures;
                DefaultEngine::eval_poly(&mut expected, GF_ORDER);
                SmallCodeEngine::eval_poly(&mut erasures, GF_ORDER);
                let same =
                    erasures.iter().zip(&expected).map(|(one, other)| (one % GF_MODULUS, other % GF_MODULUS));
                assert!(
                    same.take(POSITIONS).all(|(one, other)| one == other),
                    "{count} positions other than {beyond}"
                );
            }
        }
    }
}
