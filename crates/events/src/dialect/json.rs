//! A JSON reader for messages of which only a few fields matter. It skips the rest without validating it, several times as fast as a
//! validating reader (see `docs/decisions/0033`).
//!
//! Invariants: values returned are those that a validating reader would return. A skipped value ends where a validating reader would end
//! it. No function is recursive, so that nesting of any depth is harmless.

use std::borrow::Cow;

/// The error for bytes that are not JSON, or not of the expected form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {wanted} at byte {at}")]
pub struct JsonError {
    at: usize,
    wanted: &'static str,
}

/// A reading position in a document.
#[derive(Debug, Clone)]
pub(super) struct Json<'a> {
    text: &'a str,
    at: usize,
    /// The number of the block of the text that was last scanned.
    block: usize,
    /// The quotes and backslashes in that block, as a bit mask.
    special: u64,
}

/// Number of bytes scanned at once for quotes and backslashes: one bit of a word each.
const BLOCK_BYTES: usize = 64;

/// Pairs of names and values.
pub(super) type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

impl<'a> Json<'a> {
    pub(super) fn new(body: &'a [u8]) -> Result<Self, JsonError> {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|error| JsonError { at: error.valid_up_to(), wanted: "UTF-8" })?;
        // No block has this number, so the first access scans.
        Ok(Self { text, at: 0, block: usize::MAX, special: 0 })
    }

    /// Skips white space and returns the next byte without consuming it; `None` at the end of the text.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return Some(*byte),
            }
        }
        None
    }

    /// Reads an object. `field` must read or skip each value.
    pub(super) fn fields<E: From<JsonError>>(
        &mut self,
        mut field: impl FnMut(&mut Self, &'a [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            // Names are compared without unescaping, because no known name contains an escape.
            let (start, end, _) = self.string()?;
            let name = &self.text.as_bytes()[start..end];
            self.expect(b':', "a colon")?;
            field(self, name)?;
            if !self.take(b',') {
                return Ok(self.expect(b'}', "a comma or a brace")?);
            }
        }
    }

    /// Reads an array. `element` must read or skip each value.
    pub(super) fn elements<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "an array")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.take(b',') {
                return Ok(self.expect(b']', "a comma or a bracket")?);
            }
        }
    }

    /// Reads a string. A number is read as it is written, and `null` as an empty string.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() == Some(b'"') {
            let (start, end, is_escaped) = self.string()?;
            let raw = &self.text[start..end];
            return if is_escaped { self.unescaped(raw) } else { Ok(Cow::Borrowed(raw)) };
        }
        let word = self.word()?;
        match word.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => Ok(Cow::Borrowed(word)),
            _ if word == "null" => Ok(Cow::Borrowed("")),
            _ => Err(self.error("a string")),
        }
    }

    /// Reads an unsigned integer, as digits or as a string of digits; `None` for any other number or string, and for
    /// `null`.
    pub(super) fn integer(&mut self) -> Result<Option<u64>, JsonError> {
        Ok(self.text()?.parse().ok())
    }

    /// Reads names and values from an object, or from an array of objects with the fields `key` and `val` or `value`.
    /// Any other value is skipped and has no pairs.
    pub(super) fn pairs(&mut self) -> Result<Pairs<'a>, JsonError> {
        let mut pairs = Vec::new();
        match self.peek() {
            Some(b'{') => self.entries(|name, value| pairs.push((name, value)))?,
            Some(b'[') => self.elements(|json| {
                let (mut name, mut value) = (Cow::Borrowed(""), Cow::Borrowed(""));
                json.fields(|json, field| {
                    match field {
                        b"key" => name = json.text()?,
                        b"val" | b"value" => value = json.text()?,
                        _ => json.skip()?,
                    }
                    Ok::<_, JsonError>(())
                })?;
                pairs.push((name, value));
                Ok::<_, JsonError>(())
            })?,
            _ => self.skip()?,
        }
        Ok(pairs)
    }

    fn entries(&mut self, mut entry: impl FnMut(Cow<'a, str>, Cow<'a, str>)) -> Result<(), JsonError> {
        self.fields(|json, name| {
            let name = std::str::from_utf8(name).map_err(|_| json.error("a name"))?;
            let name = if name.contains('\\') { json.unescaped(name)? } else { Cow::Borrowed(name) };
            entry(name, json.text()?);
            Ok(())
        })
    }

    /// Skips a value.
    pub(super) fn skip(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.skip_nested(),
            _ => self.word().map(drop),
        }
    }

    /// Checks that nothing follows.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("the end")),
        }
    }

    fn skip_nested(&mut self) -> Result<(), JsonError> {
        let mut depth = 0_usize;
        while let Some(byte) = self.text.as_bytes().get(self.at) {
            match byte {
                b'"' => drop(self.string()?),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(self.error("a closing brace or bracket"))
    }

    /// Reads a number, `true`, `false` or `null`.
    fn word(&mut self) -> Result<&'a str, JsonError> {
        self.peek();
        let rest = &self.text[self.at..];
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = rest.bytes().take_while(|byte| is_part(*byte)).count();
        if len == 0 {
            return Err(self.error("a value"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// Reads a string. Returns the range between its quotes, and whether it contains escapes.
    #[inline]
    fn string(&mut self) -> Result<(usize, usize, bool), JsonError> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let end = self.next_special(start);
        if self.text.as_bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok((start, end, false));
        }
        self.escaped(start, end)
    }

    /// Continues [`Json::string`] at the first backslash.
    #[cold]
    fn escaped(&mut self, start: usize, mut at: usize) -> Result<(usize, usize, bool), JsonError> {
        while self.text.as_bytes().get(at) == Some(&b'\\') {
            at = self.next_special(at + 2);
        }
        if at >= self.text.len() {
            return Err(self.error("a closing quote"));
        }
        self.at = at + 1;
        Ok((start, at, true))
    }

    /// Returns the offset of the next quote or backslash at or after `at`, or the length of the text.
    #[inline]
    fn next_special(&mut self, at: usize) -> usize {
        let mut block = at / BLOCK_BYTES;
        if self.block != block {
            self.load_block(block);
        }
        let mut ahead = self.special & u64::MAX << (at % BLOCK_BYTES);
        while ahead == 0 {
            block += 1;
            if block * BLOCK_BYTES >= self.text.len() {
                return self.text.len();
            }
            self.load_block(block);
            ahead = self.special;
        }
        block * BLOCK_BYTES + ahead.trailing_zeros() as usize
    }

    #[inline]
    fn load_block(&mut self, block: usize) {
        let bytes = self.text.as_bytes().get(block * BLOCK_BYTES..).unwrap_or_default();
        self.block = block;
        self.special = match bytes.first_chunk() {
            Some(bytes) => special_mask(bytes),
            None => special_mask_of_last(bytes),
        };
    }

    /// Unescapes a string. Escapes are rare enough to be left to a validating reader.
    fn unescaped(&self, raw: &str) -> Result<Cow<'a, str>, JsonError> {
        let quoted = format!("\"{raw}\"");
        serde_json::from_str(&quoted).map(Cow::Owned).map_err(|_| self.error("a string"))
    }

    #[inline]
    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), JsonError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(wanted)) }
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        // Most documents have no white space, so the byte is tried before `peek`.
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte) || self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn error(&self, wanted: &'static str) -> JsonError {
        JsonError { at: self.at, wanted }
    }
}

/// Returns a bit mask of the quotes and backslashes in a block. Compilers turn this code into a dozen vector instructions.
#[inline]
fn special_mask(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut bits = [0; BLOCK_BYTES];
    for (at, (bit, byte)) in bits.iter_mut().zip(block).enumerate() {
        let is_sign = (*byte == b'"') | (*byte == b'\\');
        *bit = if is_sign { 1 << (at % 8) } else { 0 };
    }
    let byte = |eight: &[u8; 8]| eight.iter().fold(0_u8, |byte, bit| byte.wrapping_add(*bit));
    (0..).zip(bits.as_chunks().0).fold(0, |special, (at, eight)| special | u64::from(byte(eight)) << (8 * at))
}

/// Like [`special_mask`], for the incomplete last block.
#[cold]
fn special_mask_of_last(bytes: &[u8]) -> u64 {
    let mut block = [0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    special_mask(&block)
}

/// Asserts that this reader accepts all that a validating reader accepts, and reads the same strings.
#[cfg(feature = "fuzz")]
pub(crate) fn fuzz_json(bytes: &[u8]) {
    let strict = serde_json::from_slice::<serde_json::Value>(bytes);
    let Ok(mut json) = Json::new(bytes) else {
        assert!(strict.is_err());
        return;
    };
    let mut whole = json.clone();
    let passed = whole.skip().and_then(|()| whole.end());
    let Ok(strict) = strict else { return };
    assert_eq!(passed, Ok(()));
    let Some(strict) = strict.as_object() else { return };
    let mut last = std::collections::BTreeMap::new();
    let read = json.fields(|json, name| {
        let text = if json.peek() == Some(b'"') { Some(json.text()?) } else { json.skip().map(|()| None)? };
        last.insert(String::from_utf8_lossy(name), text);
        Ok::<_, JsonError>(())
    });
    assert_eq!(read, Ok(()));
    // A name with an escape may equal another name once it is unescaped.
    if last.keys().all(|name| !name.contains('\\')) {
        for (name, text) in last {
            assert_eq!(text.as_deref(), strict[&*name].as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn strings_and_numbers_equal_those_of_a_validating_reader() {
        for text in
            [r#""""#, r#" "a""#, r#""a\"b\\""#, r#""\u00fc\n""#, r#""ü ist kein \"u\"""#, r#""123456\"8""#]
        {
            let strict: String = serde_json::from_str(text).unwrap();
            let mut json = json(text);
            assert_eq!(json.text().unwrap(), strict);
            json.end().unwrap();
        }
        assert_eq!(json("17 ").integer(), Ok(Some(17)));
        assert_eq!(
            (json("\"17\"").integer(), json("-1").integer(), json("null").integer()),
            (Ok(Some(17)), Ok(None), Ok(None))
        );
        assert_eq!(json("null").text().unwrap(), "");
        for text in ["", "true", "{}", "\"", "\"\\", "\"\\\"", r#""\x""#, "\"\\ü"] {
            assert!(json(text).text().is_err(), "{text}");
        }
    }

    #[test]
    fn skipped_values_end_where_they_should() {
        for text in [r#"{"a":[1,{"]":"}\""}],"b":null}"#, "[[],[[]]]", "1.5e+3", "false", r#""\\""#] {
            let followed = format!(" {text} ,7");
            let mut json = json(&followed);
            json.skip().unwrap();
            assert!(json.take(b','), "{text}");
        }
        for text in ["{", "[", "[\"]", "", ","] {
            assert!(json(text).skip().is_err(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        json(&deep).skip().unwrap();
    }

    #[test]
    fn pairs_are_objects_or_lists() {
        let expected = [("a", "1"), ("b", "\"")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(json(r#"{"a":1,"b":"\""}"#).pairs().unwrap(), expected);
        assert_eq!(
            json(r#"[{"key":"a","val":"1"},{"value":"\"","x":{},"key":"b"}]"#).pairs().unwrap(),
            expected
        );
        assert_eq!(json("null").pairs().unwrap(), []);
    }

    #[test]
    fn scanning_stops_at_the_first_quote_or_backslash() {
        for before in 0..200 {
            for sign in ['"', '\\'] {
                let text = format!("{}{sign}{}", "ü".repeat(before), "\"".repeat(9));
                assert_eq!(json(&text).next_special(0), 2 * before);
                assert_eq!(json(&text).next_special(2 * before + 5), 2 * before + 5);
            }
            assert_eq!(json(&"!".repeat(before)).next_special(0), before);
        }
        assert_eq!((json("ab").next_special(2), json("ab").next_special(9)), (2, 2));
    }
}
