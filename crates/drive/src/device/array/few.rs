//! The engine of the code where members are few, as they are.
//!
//! `reed-solomon-simd` finds what each unit is multiplied with by transforms over all 65,536 places that a code of GF(2^16) can have,
//! whatever the number of units: 0.1 ms and more for each read that misses a device. Of a few members the sum itself is shorter.

use super::shape::MEMBERS_MAX;
use reed_solomon_simd::engine::tables::{self, Log};
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, GF_ORDER, GfElement, ShardsRefMut};

/// Units have places below this: data and parity, one of both filled up to a power of two.
const PLACES: usize = 2 * MEMBERS_MAX;

/// Computes as the default engine, and what is lost by its few places.
#[derive(Default)]
pub(super) struct FewEngine(DefaultEngine);

impl Engine for FewEngine {
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

    /// Of each place the logarithm of the product of its distances to all other places where something is lost. What is beyond
    /// the units' places is all lost, or not; the distances to all other places have the product 1.
    fn eval_poly(erasures: &mut [GfElement; GF_ORDER], _truncated_size: usize) {
        let beyond = erasures[PLACES];
        let others: Vec<usize> = (0..PLACES).filter(|&place| erasures[place] != beyond).collect();
        let log = &tables::get_exp_log().log;
        for (place, erasure) in erasures[..PLACES].iter_mut().enumerate() {
            let sum = logarithm(log, place, &others);
            *erasure = if beyond == 0 { sum } else { GF_MODULUS - sum };
        }
    }
}

fn logarithm(log: &Log, place: usize, others: &[usize]) -> GfElement {
    let distances = others.iter().map(|other| place ^ other).filter(|&distance| distance != 0);
    let sum: u64 = distances.map(|distance| u64::from(log[distance])).sum();
    (sum % u64::from(GF_MODULUS)) as GfElement
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the crate has it, where 0 and 65,535 are both the logarithm of 1.
    #[test]
    fn the_sum_is_what_the_transforms_give() {
        let mut seed = 7u64;
        for beyond in [0, 1] {
            for count in [1, 2, 7, 64, PLACES] {
                let mut erasures = [beyond; GF_ORDER];
                for _ in 0..count {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    erasures[(seed >> 33) as usize % PLACES] = 1 - beyond;
                }
                let mut expected = erasures;
                DefaultEngine::eval_poly(&mut expected, GF_ORDER);
                FewEngine::eval_poly(&mut erasures, GF_ORDER);
                let same =
                    erasures.iter().zip(&expected).map(|(one, other)| (one % GF_MODULUS, other % GF_MODULUS));
                assert!(
                    same.take(PLACES).all(|(one, other)| one == other),
                    "{count} places other than {beyond}"
                );
            }
        }
    }
}
