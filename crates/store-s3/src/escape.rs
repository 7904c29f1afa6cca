//! Encodings in requests and responses: percent encoding, base64, hexadecimal, and RFC 2047 words for metadata.
//!
//! Percent encoding follows SigV4: every byte but `A-Z a-z 0-9 - . _ ~` (and `/` in a path) becomes `%XX`, so that the
//! signature, the server and this client agree on the path.

use std::borrow::Cow;

const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a key as part of a path; keeps `/`.
pub(super) fn push_path(out: &mut Vec<u8>, key: &[u8]) {
    push_percent(out, key, |byte| byte == b'/');
}

/// Appends an encoded name or value of a query.
pub(super) fn push_query(out: &mut Vec<u8>, text: &[u8]) {
    push_percent(out, text, |_| false);
}

/// Encodes a name or value of a query, or of a tagging header.
pub(super) fn query(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    push_query(&mut out, text.as_bytes());
    String::from_utf8(out).unwrap_or_default()
}

/// Appends a text, percent-encoded except for unreserved characters and those that `also` accepts.
fn push_percent(out: &mut Vec<u8>, text: &[u8], also: impl Fn(u8) -> bool) {
    for &byte in text {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') || also(byte) {
            out.push(byte);
        } else {
            let (high, low) = (HEX_UPPER[usize::from(byte >> 4)], HEX_UPPER[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'%', high, low]);
        }
    }
}

/// Decodes the `encoding-type=url` of listings: `%XX`, and `+` for a space. Invalid escapes are kept.
pub(super) fn url_decode(bytes: &[u8]) -> Vec<u8> {
    decode(bytes, |byte| if byte == b'+' { b' ' } else { byte })
}

/// Decodes a path, or a name or value of a query: `%XX`. Invalid escapes are kept.
pub(super) fn percent_decode(bytes: &[u8]) -> Vec<u8> {
    decode(bytes, |byte| byte)
}

/// Decodes percent-encoded bytes. `plain` converts the others.
fn decode(bytes: &[u8], plain: impl Fn(u8) -> u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%').then(|| hex_pair(bytes.get(at + 1..at + 3)?)).flatten();
        out.push(escaped.unwrap_or_else(|| plain(byte)));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

fn hex_pair(pair: &[u8]) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)
}

/// Encodes in standard base64 with padding (RFC 4648).
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let index = (group >> (18 - 6 * digit)) as usize & 63;
            out.push(if digit <= chunk.len() { char::from(BASE64[index]) } else { '=' });
        }
    }
    out
}

fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut group = 0_u32;
        for &digit in chunk {
            group = group << 6 | BASE64.iter().position(|&known| known == digit)? as u32;
        }
        let bytes = (group << (6 * (4 - chunk.len()))).to_be_bytes();
        out.extend_from_slice(&bytes[1..chunk.len().max(1)]);
    }
    Some(out)
}

/// Encodes a metadata value for a header. Printable ASCII stays unchanged. Any other text, text that begins or ends
/// with a space, and text that contains `=?`, becomes one RFC 2047 word in base64 of UTF-8, the form that S3 itself
/// uses for metadata.
pub(super) fn metadata_value(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let edges = text.starts_with(' ') || text.ends_with(' ');
    if plain && !edges && !text.contains("=?") {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("=?UTF-8?B?{}?=", base64(text.as_bytes())))
}

/// Decodes [`metadata_value`], and the forms of other writers: several words, quoted-printable words, raw UTF-8.
pub(super) fn metadata_text(header: &[u8]) -> String {
    let raw = String::from_utf8_lossy(header).into_owned();
    let mut out = String::new();
    let mut rest = raw.as_str();
    let mut after_word = false;
    while let Some(start) = rest.find("=?") {
        let Some((text, len)) = decode_word(&rest[start..]) else {
            out.push_str(&rest[..start + 2]);
            rest = &rest[start + 2..];
            after_word = false;
            continue;
        };
        // White space between two words is not part of the text (RFC 2047).
        if !(after_word && rest[..start].trim().is_empty()) {
            out.push_str(&rest[..start]);
        }
        out.push_str(&text);
        rest = &rest[start + len..];
        after_word = true;
    }
    out.push_str(rest);
    out
}

/// Decodes the word `=?UTF-8?B?...?=` or `=?UTF-8?Q?...?=` at the beginning, and returns its text and length; `None` if
/// there is no such word.
fn decode_word(text: &str) -> Option<(String, usize)> {
    let inner = text.strip_prefix("=?")?;
    let mut parts = inner.splitn(3, '?');
    let (charset, encoding, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let end = rest.find("?=")?;
    let bytes = match encoding {
        "B" | "b" => base64_decode(&rest[..end])?,
        "Q" | "q" => quoted_decode(&rest[..end])?,
        _ => return None,
    };
    if !charset.eq_ignore_ascii_case("utf-8") && !charset.eq_ignore_ascii_case("us-ascii") {
        return None;
    }
    let len = 2 + charset.len() + 1 + encoding.len() + 1 + end + 2;
    Some((String::from_utf8(bytes).ok()?, len))
}

/// Decodes the Q encoding of RFC 2047; `None` if it is malformed.
fn quoted_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'=' => out.push(hex_pair(&[bytes.next()?, bytes.next()?])?),
            b'_' => out.push(b' '),
            _ => out.push(byte),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_rfcs_examples() {
        for (raw, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(raw.as_bytes()), text);
            assert_eq!(base64_decode(text).unwrap(), raw.as_bytes());
        }
    }

    #[test]
    fn paths_keep_every_byte() {
        let mut out = Vec::new();
        push_path(&mut out, b"a//b/../ +%\n\xc3\xbc~");
        assert_eq!(String::from_utf8(out).unwrap(), "a//b/../%20%2B%25%0A%C3%BC~");
    }

    #[test]
    fn listings_decode_what_servers_encode() {
        assert_eq!(url_decode(b"a+b%2Bc%20d%2"), b"a b+c d%2");
        assert_eq!(url_decode(b"%C3%BC%0a"), "ü\n".as_bytes());
    }

    #[test]
    fn foreign_words_are_read() {
        assert_eq!(metadata_text(b"=?UTF-8?Q?caf=C3=A9_au?= =?utf-8?b?IGxhaXQ=?="), "café au lait");
        assert_eq!(metadata_text("roh: ü".as_bytes()), "roh: ü");
        assert_eq!(metadata_text(b"=?KOI8-R?B?8A==?="), "=?KOI8-R?B?8A==?=");
        assert_eq!(metadata_text(b"a =? b"), "a =? b");
    }

    proptest::proptest! {
        #[test]
        fn metadata_comes_back(text in ".*") {
            let value = metadata_value(&text).into_owned();
            proptest::prop_assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            proptest::prop_assert_eq!(value.trim(), &value);
            proptest::prop_assert_eq!(metadata_text(value.as_bytes()), text);
        }

        #[test]
        fn encoded_queries_survive_decoding(text in ".*") {
            proptest::prop_assert_eq!(url_decode(query(&text).as_bytes()), text.as_bytes());
        }
    }
}
