//! Random mutations of an input.

use store::Entropy;

/// Maximum length of a mutated input.
const LEN_BYTES_MAX: usize = 4096;

/// Numbers at the edges of integer and float types, as text.
const BOUNDARY_NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e9999",
];

/// Mutates a random input, with pieces of other inputs and words of the target's dictionary.
pub(crate) fn mutate(inputs: &[Vec<u8>], dictionary: &[&str], entropy: &Entropy) -> Vec<u8> {
    let mut bytes = pick(inputs, entropy).cloned().unwrap_or_default();
    for _ in 0..=entropy.below(6) {
        apply_random_change(&mut bytes, inputs, dictionary, entropy);
    }
    bytes.truncate(LEN_BYTES_MAX);
    bytes
}

fn pick<'a, T>(from: &'a [T], entropy: &Entropy) -> Option<&'a T> {
    if from.is_empty() { None } else { from.get(entropy.below(from.len() as u64) as usize) }
}

/// Returns a position up to and including the end.
fn random_position(bytes: &[u8], entropy: &Entropy) -> usize {
    entropy.below(bytes.len() as u64 + 1) as usize
}

/// Returns a range that is short in most cases.
fn random_range(bytes: &[u8], entropy: &Entropy) -> std::ops::Range<usize> {
    let start = random_position(bytes, entropy);
    let longest = if entropy.below(4) == 0 { bytes.len() } else { 8 };
    let len = entropy.below(longest as u64 + 1) as usize;
    start..(start + len).min(bytes.len())
}

fn apply_random_change(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], dictionary: &[&str], entropy: &Entropy) {
    let at = random_position(bytes, entropy);
    match entropy.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << entropy.below(8);
            }
        }
        1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = entropy.next_u64() as u8;
            }
        }
        2 => bytes.insert(at, entropy.next_u64() as u8),
        3 => drop(bytes.drain(random_range(bytes, entropy))),
        4 => {
            let piece = bytes[random_range(bytes, entropy)].to_vec();
            insert(bytes, at, &piece);
        }
        5 => replace_a_number(bytes, entropy),
        6 => {
            let other = pick(inputs, entropy).cloned().unwrap_or_default();
            let piece = random_range(&other, entropy);
            insert(bytes, at, &other[piece]);
        }
        7 => {
            let other = pick(inputs, entropy).cloned().unwrap_or_default();
            let from = random_position(&other, entropy);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let word = pick(dictionary, entropy).copied().unwrap_or_default();
            if entropy.below(3) == 0 {
                drop(bytes.drain(random_range(bytes, entropy)));
            }
            insert(bytes, at.min(bytes.len()), word.as_bytes());
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(bytes.splice(at..at, piece.iter().copied()));
}

/// Replaces a decimal number by a boundary number.
fn replace_a_number(bytes: &mut Vec<u8>, entropy: &Entropy) {
    let from = random_position(bytes, entropy);
    let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else { return };
    let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = pick(&BOUNDARY_NUMBERS, entropy).copied().unwrap_or_default();
    drop(bytes.splice(start..start + len, number.bytes()));
}
