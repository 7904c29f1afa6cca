//! Hexadecimal encoding and decoding.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Encodes bytes in lower-case hexadecimal, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    push_hex(&mut out, bytes);
    String::from_utf8(out).unwrap_or_default()
}

/// Appends bytes in lower-case hexadecimal, two digits each.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Decodes a text of two hexadecimal digits for each byte; `None` for any other text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

/// Returns the number of 16 hexadecimal digits; `None` for any other text, also one with a sign, which [`u64::from_str_radix`] accepts.
pub fn number_of_hex(text: &str) -> Option<u64> {
    let bytes = <[u8; 8]>::try_from(unhex(text)?).ok()?;
    Some(u64::from_be_bytes(bytes))
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_two_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0, 0x0f, 0xa0, 0xff]), "000fa0ff");
        assert_eq!(unhex("000FA0ff").unwrap(), [0, 0x0f, 0xa0, 0xff]);
        assert_eq!(["0", "0g", "+1", "é"].map(unhex), [const { None }; 4]);
    }

    #[test]
    fn a_number_has_16_digits_and_no_sign() {
        assert_eq!(number_of_hex("00000000000000ff"), Some(255));
        assert_eq!(["ff", "+0000000000000ff", "000000000000000ff"].map(number_of_hex), [None; 3]);
    }
}
