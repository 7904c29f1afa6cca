//! Random changes of an input.

use store::Entropy;

/// Inputs do not grow beyond this, in bytes.
const LEN_MAX: usize = 4096;

/// Numbers at which programs go wrong, as text.
const NUMBERS: [&str; 12] = [
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

/// Another input, made of one of these and of the words that mean something to the target.
pub(crate) fn mutated(inputs: &[Vec<u8>], words: &[&str], entropy: &Entropy) -> Vec<u8> {
    let mut bytes = pick(inputs, entropy).cloned().unwrap_or_default();
    for _ in 0..=entropy.below(6) {
        change(&mut bytes, inputs, words, entropy);
    }
    bytes.truncate(LEN_MAX);
    bytes
}

fn pick<'a, T>(from: &'a [T], entropy: &Entropy) -> Option<&'a T> {
    if from.is_empty() { None } else { from.get(entropy.below(from.len() as u64) as usize) }
}

/// A position up to and including the end.
fn place(bytes: &[u8], entropy: &Entropy) -> usize {
    entropy.below(bytes.len() as u64 + 1) as usize
}

/// A range, mostly short.
fn range(bytes: &[u8], entropy: &Entropy) -> std::ops::Range<usize> {
    let start = place(bytes, entropy);
    let longest = if entropy.below(4) == 0 { bytes.len() } else { 8 };
    let len = entropy.below(longest as u64 + 1) as usize;
    start..(start + len).min(bytes.len())
}

fn change(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], words: &[&str], entropy: &Entropy) {
    let at = place(bytes, entropy);
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
        3 => drop(bytes.drain(range(bytes, entropy))),
        4 => {
            let piece = bytes[range(bytes, entropy)].to_vec();
            insert(bytes, at, &piece);
        }
        5 => replace_number(bytes, entropy),
        6 => {
            let other = pick(inputs, entropy).cloned().unwrap_or_default();
            let piece = range(&other, entropy);
            insert(bytes, at, &other[piece]);
        }
        7 => {
            let other = pick(inputs, entropy).cloned().unwrap_or_default();
            let from = place(&other, entropy);
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => {
            let word = pick(words, entropy).copied().unwrap_or_default();
            if entropy.below(3) == 0 {
                drop(bytes.drain(range(bytes, entropy)));
            }
            insert(bytes, at.min(bytes.len()), word.as_bytes());
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    drop(bytes.splice(at..at, piece.iter().copied()));
}

/// Puts another number where one stands.
fn replace_number(bytes: &mut Vec<u8>, entropy: &Entropy) {
    let from = place(bytes, entropy);
    let Some(start) = bytes[from..].iter().position(u8::is_ascii_digit).map(|at| from + at) else { return };
    let len = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = pick(&NUMBERS, entropy).copied().unwrap_or_default();
    drop(bytes.splice(start..start + len, number.bytes()));
}
