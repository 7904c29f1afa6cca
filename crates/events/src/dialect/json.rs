//! JSON, read for a few of its fields: the rest is passed over without a closer look, several times as fast as a reader that
//! checks it (see `docs/decisions/0033`).
//!
//! Invariants: what is handed out is what a strict reader would hand out; what is passed over ends where a strict reader would
//! say that it ends; nothing here calls itself, so that no depth of nesting matters.

use std::borrow::Cow;

/// Bytes that are no JSON, or JSON of another form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} is expected at byte {at}")]
pub struct Broken {
    at: usize,
    wanted: &'static str,
}

/// A place in a document.
#[derive(Debug, Clone)]
pub(super) struct Json<'a> {
    text: &'a str,
    at: usize,
    /// The block of the text that was last looked at, and where the quotes and backslashes in it are.
    block: usize,
    signs: u64,
}

/// So many bytes are searched at once for quotes and backslashes: a word has a bit of each.
const BLOCK_BYTES: usize = 64;

/// Names and values.
pub(super) type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

impl<'a> Json<'a> {
    pub(super) fn new(body: &'a [u8]) -> Result<Self, Broken> {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|error| Broken { at: error.valid_up_to(), wanted: "UTF-8" })?;
        // No text has a block of this number.
        Ok(Self { text, at: 0, block: usize::MAX, signs: 0 })
    }

    /// The first byte of what comes next, after white space.
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

    /// Reads an object: `field` reads or passes over each value.
    pub(super) fn fields<E: From<Broken>>(
        &mut self,
        mut field: impl FnMut(&mut Self, &'a [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            // No name that is known has an escape in it.
            let (start, end, _) = self.string()?;
            let name = &self.text.as_bytes()[start..end];
            self.expect(b':', "a colon")?;
            field(self, name)?;
            if !self.take(b',') {
                return Ok(self.expect(b'}', "a comma or a brace")?);
            }
        }
    }

    /// Reads a list: `element` reads or passes over each value.
    pub(super) fn elements<E: From<Broken>>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'[', "a list")?;
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

    /// Reads a text; a number is taken for its digits, and `null` for no text.
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, Broken> {
        if self.peek() == Some(b'"') {
            let (start, end, is_escaped) = self.string()?;
            let raw = &self.text[start..end];
            return if is_escaped { self.unescaped(raw) } else { Ok(Cow::Borrowed(raw)) };
        }
        let word = self.word()?;
        match word.as_bytes().first() {
            Some(b'-' | b'0'..=b'9') => Ok(Cow::Borrowed(word)),
            _ if word == "null" => Ok(Cow::Borrowed("")),
            _ => Err(self.broken("a text")),
        }
    }

    /// Reads a whole number, in digits or in a text of digits; anything else is not said.
    pub(super) fn whole(&mut self) -> Result<Option<u64>, Broken> {
        Ok(self.text()?.parse().ok())
    }

    /// Reads names and values: an object, or a list of objects with `key` and `val` or `value`.
    pub(super) fn pairs(&mut self) -> Result<Pairs<'a>, Broken> {
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
                    Ok::<_, Broken>(())
                })?;
                pairs.push((name, value));
                Ok::<_, Broken>(())
            })?,
            _ => self.skip()?,
        }
        Ok(pairs)
    }

    fn entries(&mut self, mut entry: impl FnMut(Cow<'a, str>, Cow<'a, str>)) -> Result<(), Broken> {
        self.fields(|json, name| {
            let name = std::str::from_utf8(name).map_err(|_| json.broken("a name"))?;
            let name = if name.contains('\\') { json.unescaped(name)? } else { Cow::Borrowed(name) };
            entry(name, json.text()?);
            Ok(())
        })
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Result<(), Broken> {
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{' | b'[') => self.skip_nested(),
            _ => self.word().map(drop),
        }
    }

    /// Nothing comes any more.
    pub(super) fn end(&mut self) -> Result<(), Broken> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.broken("the end")),
        }
    }

    fn skip_nested(&mut self) -> Result<(), Broken> {
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
        Err(self.broken("a brace or a bracket"))
    }

    /// A number, or one of JSON's three words.
    fn word(&mut self) -> Result<&'a str, Broken> {
        self.peek();
        let rest = &self.text[self.at..];
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = rest.bytes().take_while(|byte| is_part(*byte)).count();
        if len == 0 {
            return Err(self.broken("a value"));
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// Where what stands between quotes begins and ends, and whether there are escapes in it.
    #[inline]
    fn string(&mut self) -> Result<(usize, usize, bool), Broken> {
        self.expect(b'"', "a text")?;
        let start = self.at;
        let end = self.sign(start);
        if self.text.as_bytes().get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok((start, end, false));
        }
        self.escaped(start, end)
    }

    /// The same, from the first backslash on.
    #[cold]
    fn escaped(&mut self, start: usize, mut at: usize) -> Result<(usize, usize, bool), Broken> {
        while self.text.as_bytes().get(at) == Some(&b'\\') {
            at = self.sign(at + 2);
        }
        if at >= self.text.len() {
            return Err(self.broken("a quote"));
        }
        self.at = at + 1;
        Ok((start, at, true))
    }

    /// Where the next quote or backslash is from `at` on, or the end.
    #[inline]
    fn sign(&mut self, at: usize) -> usize {
        let mut block = at / BLOCK_BYTES;
        if self.block != block {
            self.see(block);
        }
        let mut ahead = self.signs & u64::MAX << (at % BLOCK_BYTES);
        while ahead == 0 {
            block += 1;
            if block * BLOCK_BYTES >= self.text.len() {
                return self.text.len();
            }
            self.see(block);
            ahead = self.signs;
        }
        block * BLOCK_BYTES + ahead.trailing_zeros() as usize
    }

    #[inline]
    fn see(&mut self, block: usize) {
        let bytes = self.text.as_bytes().get(block * BLOCK_BYTES..).unwrap_or_default();
        self.block = block;
        self.signs = match bytes.first_chunk() {
            Some(bytes) => signs(bytes),
            None => last_signs(bytes),
        };
    }

    /// Rare enough to be left to a strict reader.
    fn unescaped(&self, raw: &str) -> Result<Cow<'a, str>, Broken> {
        let quoted = format!("\"{raw}\"");
        serde_json::from_str(&quoted).map(Cow::Owned).map_err(|_| self.broken("a text"))
    }

    #[inline]
    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), Broken> {
        if self.take(byte) { Ok(()) } else { Err(self.broken(wanted)) }
    }

    #[inline]
    fn take(&mut self, byte: u8) -> bool {
        // Most have no white space.
        let is_next = self.text.as_bytes().get(self.at) == Some(&byte) || self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn broken(&self, wanted: &'static str) -> Broken {
        Broken { at: self.at, wanted }
    }
}

/// Which of the bytes are quotes or backslashes, a bit of each. As written, compilers make a dozen instructions on vectors of it.
#[inline]
fn signs(block: &[u8; BLOCK_BYTES]) -> u64 {
    let mut bits = [0; BLOCK_BYTES];
    for (at, (bit, byte)) in bits.iter_mut().zip(block).enumerate() {
        let is_sign = (*byte == b'"') | (*byte == b'\\');
        *bit = if is_sign { 1 << (at % 8) } else { 0 };
    }
    let byte = |eight: &[u8; 8]| eight.iter().fold(0_u8, |byte, bit| byte.wrapping_add(*bit));
    (0..).zip(bits.as_chunks().0).fold(0, |signs, (at, eight)| signs | u64::from(byte(eight)) << (8 * at))
}

/// The same of what is left.
#[cold]
fn last_signs(bytes: &[u8]) -> u64 {
    let mut block = [0; BLOCK_BYTES];
    block[..bytes.len()].copy_from_slice(bytes);
    signs(&block)
}

/// What a strict reader takes, this one takes, and reads the same texts in it.
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
        Ok::<_, Broken>(())
    });
    assert_eq!(read, Ok(()));
    // An escaped name may be one of the others.
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
    fn values_are_what_a_strict_reader_says() {
        for text in
            [r#""""#, r#" "a""#, r#""a\"b\\""#, r#""\u00fc\n""#, r#""ü ist kein \"u\"""#, r#""123456\"8""#]
        {
            let strict: String = serde_json::from_str(text).unwrap();
            let mut json = json(text);
            assert_eq!(json.text().unwrap(), strict);
            json.end().unwrap();
        }
        assert_eq!(json("17 ").whole(), Ok(Some(17)));
        assert_eq!(
            (json("\"17\"").whole(), json("-1").whole(), json("null").whole()),
            (Ok(Some(17)), Ok(None), Ok(None))
        );
        assert_eq!(json("null").text().unwrap(), "");
        for text in ["", "true", "{}", "\"", "\"\\", "\"\\\"", r#""\x""#, "\"\\ü"] {
            assert!(json(text).text().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_passed_over_ends_where_it_ends() {
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
    fn plain_text_is_passed_to_the_first_sign() {
        for before in 0..200 {
            for sign in ['"', '\\'] {
                let text = format!("{}{sign}{}", "ü".repeat(before), "\"".repeat(9));
                assert_eq!(json(&text).sign(0), 2 * before);
                assert_eq!(json(&text).sign(2 * before + 5), 2 * before + 5);
            }
            assert_eq!(json(&"!".repeat(before)).sign(0), before);
        }
        assert_eq!((json("ab").sign(2), json("ab").sign(9)), (2, 2));
    }
}
