//! Placement: chooses the drive of a new key.
//!
//! A drive is chosen with a probability proportional to its free space, so that drives of unequal lengths become full at the same time
//! and all of them work meanwhile. The hash of the key is the random number, so nothing is stored and no generator is needed.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Returns the number of the drive for a new key, given the free bytes of each drive. If no drive has room, returns the one with most.
pub(super) fn choose(hash: u64, free_bytes: &[u64], needed_bytes: u64) -> usize {
    let weight = |&free: &u64| if free > needed_bytes { u128::from(free) } else { 0 };
    let total: u128 = free_bytes.iter().map(weight).sum();
    let mut left = (u128::from(hash) * total) >> 64;
    for (place, free) in free_bytes.iter().enumerate() {
        match left.checked_sub(weight(free)) {
            Some(rest) => left = rest,
            None => return place,
        }
    }
    let roomiest = (0..free_bytes.len()).max_by_key(|&place| free_bytes[place]);
    roomiest.unwrap_or_default()
}

/// Returns the hash of a key.
pub(super) fn hash_of(bucket: &str, key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (bucket, key).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_chosen_in_proportion_to_free_space() {
        let mut counts = [0; 3];
        for number in 0..6000 {
            counts[choose(hash_of("photos", format!("key-{number}").as_bytes()), &[100, 200, 300], 0)] += 1;
        }
        for (count, expected) in counts.into_iter().zip([1000, 2000, 3000]) {
            assert!(expected - 150 < count && count < expected + 150, "{counts:?}");
        }
    }

    #[test]
    fn drives_without_room_are_not_chosen() {
        for hash in [0, u64::MAX / 2, u64::MAX] {
            assert_eq!(choose(hash, &[50, 90, 70], 80), 1);
            assert_eq!(choose(hash, &[50, 60, 90], 100), 2);
            assert_eq!(choose(hash, &[0, 0], 0), 1);
        }
    }
}
