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
}

/// Names and values.
pub(super) type Pairs<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

impl<'a> Json<'a> {
    pub(super) fn new(body: &'a [u8]) -> Result<Self, Broken> {
        let text = std::str::from_utf8(body);
        let text = text.map_err(|error| Broken { at: error.valid_up_to(), wanted: "UTF-8" })?;
        Ok(Self { text, at: 0 })
    }

    /// The first byte of what comes next, after white space.
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
        mut field: impl FnMut(&mut Self, &'a str) -> Result<(), E>,
    ) -> Result<(), E> {
        self.expect(b'{', "an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            // An escape in a name that is known is not worth its price.
            let (name, _) = self.raw_string()?;
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
            let (raw, is_escaped) = self.raw_string()?;
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
                        "key" => name = json.text()?,
                        "val" | "value" => value = json.text()?,
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
            let name = if name.contains('\\') { json.unescaped(name)? } else { Cow::Borrowed(name) };
            entry(name, json.text()?);
            Ok(())
        })
    }

    /// Passes over a value.
    pub(super) fn skip(&mut self) -> Result<(), Broken> {
        match self.peek() {
            Some(b'"') => self.raw_string().map(drop),
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
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        loop {
            match bytes.get(self.at) {
                Some(b'"') => {
                    self.raw_string()?;
                    continue;
                }
                Some(b'{' | b'[') => depth += 1,
                Some(b'}' | b']') => depth -= 1,
                Some(_) => {}
                None => return Err(self.broken("a brace or a bracket")),
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
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

    /// What stands between quotes, and whether there are escapes in it.
    fn raw_string(&mut self) -> Result<(&'a str, bool), Broken> {
        self.expect(b'"', "a text")?;
        let rest = &self.text.as_bytes()[self.at..];
        let len = plain(rest);
        if rest.get(len) != Some(&b'"') {
            return self.escaped_string(len);
        }
        let raw = &self.text[self.at..self.at + len];
        self.at += len + 1;
        Ok((raw, false))
    }

    /// The same, where the first `len` bytes are plain and then comes a backslash or nothing.
    #[cold]
    fn escaped_string(&mut self, len: usize) -> Result<(&'a str, bool), Broken> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + len;
        while bytes.get(end) == Some(&b'\\') {
            end = (end + 2).min(bytes.len());
            end += plain(&bytes[end..]);
        }
        if end >= bytes.len() {
            return Err(self.broken("a quote"));
        }
        let raw = &self.text[self.at..end];
        self.at = end + 1;
        Ok((raw, true))
    }

    /// Rare enough to be left to a strict reader.
    fn unescaped(&self, raw: &str) -> Result<Cow<'a, str>, Broken> {
        let quoted = format!("\"{raw}\"");
        serde_json::from_str(&quoted).map(Cow::Owned).map_err(|_| self.broken("a text"))
    }

    fn expect(&mut self, byte: u8, wanted: &'static str) -> Result<(), Broken> {
        if self.take(byte) { Ok(()) } else { Err(self.broken(wanted)) }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn broken(&self, wanted: &'static str) -> Broken {
        Broken { at: self.at, wanted }
    }
}

/// How many bytes come before the next quote or backslash, or before the end.
fn plain(bytes: &[u8]) -> usize {
    let (chunks, rest) = bytes.as_chunks::<16>();
    for (number, chunk) in chunks.iter().enumerate() {
        let (low, high) = (signs(&chunk[..8]), signs(&chunk[8..]));
        // Both at once: how long a text is, no processor foretells.
        if low | high != 0 {
            let at = if low != 0 { low.trailing_zeros() } else { 64 + high.trailing_zeros() };
            return number * 16 + (at / 8) as usize;
        }
    }
    let at = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
    chunks.len() * 16 + at.unwrap_or(rest.len())
}

/// The high bit of every byte of eight that is a quote or a backslash, and none below the first of them.
fn signs(eight: &[u8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let word = eight.try_into().map_or(0, u64::from_le_bytes);
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    zeros(word ^ (ONES * u64::from(b'"'))) | zeros(word ^ (ONES * u64::from(b'\\')))
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
    fn plain_text_is_counted_to_the_first_sign() {
        for before in 0..20 {
            for sign in ['"', '\\'] {
                let text = format!("{}{sign}{}", "ü".repeat(before), "\"".repeat(9));
                assert_eq!(plain(text.as_bytes()), 2 * before);
            }
            assert_eq!(plain("!".repeat(before).as_bytes()), before);
        }
    }
}
