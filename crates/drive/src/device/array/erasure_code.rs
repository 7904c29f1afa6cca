//! Erasure code: computes parity from data, and missing data from parity.
//!
//! Uses Reed-Solomon over GF(2^16) from `reed-solomon-simd`. The code treats each 64 bytes of a unit separately, so units of many
//! rows can be computed in one call.

use super::shape::Shape;
use super::small_code::SmallCodeEngine;
use crate::device::Buffer;
use reed_solomon_simd::rate::{DefaultRateDecoder, RateDecoder as _};
use reed_solomon_simd::{Error, ReedSolomonEncoder};
use std::io;

/// Returns the units of each parity member for these units of data.
pub(super) fn parity(shape: Shape, data: &[impl AsRef<[u8]>]) -> io::Result<Vec<Buffer>> {
    let bytes = data.first().map_or(0, |units| units.as_ref().len());
    if shape.parity == 0 || bytes == 0 {
        return Ok((0..shape.parity).map(|_| Buffer::zeroed(0)).collect());
    }
    let compute = || {
        let mut encoder = ReedSolomonEncoder::new(shape.data, shape.parity, bytes)?;
        data.iter().try_for_each(|units| encoder.add_original_shard(units))?;
        Ok(encoder.encode()?.recovery_iter().map(|units| Buffer::gathered([units])).collect())
    };
    compute().map_err(failed)
}

/// Returns the units of all data members. `units` has an element for each member, data first: the units that were read,
/// of at least as many members as hold data, and `None` for the others.
pub(super) fn restore(shape: Shape, mut units: Vec<Option<Buffer>>) -> io::Result<Vec<Buffer>> {
    let bytes = units.iter().flatten().map(|units| units.len()).max().unwrap_or(0);
    if bytes > 0 && units[..shape.data].iter().any(Option::is_none) {
        for (member, restored) in missing(shape, &units, bytes).map_err(failed)? {
            units[member] = Some(restored);
        }
    }
    units.truncate(shape.data);
    Ok(units.into_iter().map(|units| units.unwrap_or_else(|| Buffer::zeroed(0))).collect())
}

fn missing(shape: Shape, units: &[Option<Buffer>], bytes: usize) -> Result<Vec<(usize, Buffer)>, Error> {
    let engine = SmallCodeEngine::default();
    let mut decoder = DefaultRateDecoder::new(shape.data, shape.parity, bytes, engine, None)?;
    let (data, parity) = units.split_at(shape.data);
    for (member, units) in data.iter().enumerate() {
        units.iter().try_for_each(|units| decoder.add_original_shard(member, units))?;
    }
    for (member, units) in parity.iter().enumerate() {
        units.iter().try_for_each(|units| decoder.add_recovery_shard(member, units))?;
    }
    let decoded = decoder.decode()?;
    Ok(decoded.restored_original_iter().map(|(member, units)| (member, Buffer::gathered([units]))).collect())
}

fn failed(error: Error) -> io::Error {
    io::Error::other(format!("erasure code: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::array::shape::UNIT_BYTES;

    fn data(shape: Shape, rows: usize) -> Vec<Buffer> {
        let mut bytes = vec![0; rows * shape.data * UNIT_BYTES];
        let words = bytes.chunks_exact_mut(8).enumerate();
        words.for_each(|(n, word)| {
            word.copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        });
        shape.split(&bytes)
    }

    /// Checks that data is restored when these members are lost.
    fn assert_restored(shape: Shape, lost: &[usize]) {
        let data = data(shape, 3);
        let all =
            data.iter().map(|units| Buffer::gathered([&units[..]])).chain(parity(shape, &data).unwrap());
        let left =
            all.enumerate().map(|(member, units)| (!lost.contains(&member)).then_some(units)).collect();
        let back = restore(shape, left).unwrap();
        assert!(back.iter().zip(&data).all(|(back, data)| **back == **data), "{shape:?} without {lost:?}");
    }

    #[test]
    fn data_is_restored_from_any_sufficient_set_of_units() {
        for (data, parity) in [(1, 1), (1, 2), (2, 1), (3, 2), (4, 2), (12, 4), (60, 4)] {
            let shape = Shape { data, parity };
            for first in 0..shape.members() {
                let lost: Vec<usize> = (first..first + parity).map(|n| n % shape.members()).collect();
                assert_restored(shape, &lost);
                assert_restored(shape, &lost[..1]);
            }
        }
        assert_restored(Shape { data: 12, parity: 4 }, &[1, 5, 12, 15]);
        assert_restored(Shape { data: 3, parity: 0 }, &[]);
    }

    #[test]
    fn rows_are_computed_independently() {
        let shape = Shape { data: 5, parity: 3 };
        let all = data(shape, 4);
        let parity_of_all = parity(shape, &all).unwrap();
        for row in 0..4 {
            let range = row * UNIT_BYTES..(row + 1) * UNIT_BYTES;
            let one: Vec<&[u8]> = all.iter().map(|units| &units[range.clone()]).collect();
            let parity = parity(shape, &one).unwrap();
            assert!(parity.iter().zip(&parity_of_all).all(|(one, all)| one[..] == all[range.clone()]));
        }
    }

    #[test]
    fn a_mirror_has_the_same_bytes_on_all() {
        let shape = Shape { data: 1, parity: 2 };
        let data = data(shape, 2);
        assert!(parity(shape, &data).unwrap().iter().all(|units| **units == *data[0]));
    }
}
