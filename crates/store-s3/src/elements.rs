//! A streaming XML reader: elements and their texts in one pass, without copying texts that contain no escapes.
//!
//! The reader does not check attributes, the document type and namespace prefixes, which it skips. Elements that are not
//! closed and unknown entities are errors.

use super::failure::Failure;
use std::borrow::Cow;

/// A piece of markup, from a `<` to its `>`.
enum Markup<'d> {
    /// A start tag, with the element's local name.
    Start(&'d str),
    End(&'d str),
    /// An empty-element tag.
    Empty(&'d str),
    /// A CDATA section, whose text contains no escapes.
    Verbatim(&'d str),
    /// A comment, a processing instruction or a document type.
    Other,
}

/// Calls `visit` at the end of every element, with the path of names from the root to the element, and its text. Returns
/// the root's name. Text around child elements is ignored.
pub(super) fn read(
    body: &[u8],
    visit: impl FnMut(&[&str], &str) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let mut rest = std::str::from_utf8(body).map_err(|_| Failure::malformed("XML that is not UTF-8"))?;
    let mut reader = Reader { visit, path: Vec::new(), text: Cow::Borrowed(""), root: None };
    while let Some((text, behind)) = text(rest)? {
        if !text.is_empty() {
            reader.text += text;
        }
        let (markup, behind) = markup(behind).ok_or_else(cut_short)?;
        reader.take(markup)?;
        rest = behind;
    }
    if !reader.path.is_empty() {
        return Err(cut_short());
    }
    reader.root.map(str::to_owned).ok_or_else(|| Failure::malformed("the response has no XML"))
}

/// The state of the reader.
struct Reader<'d, V> {
    visit: V,
    path: Vec<&'d str>,
    /// The text since the last tag.
    text: Cow<'d, str>,
    root: Option<&'d str>,
}

impl<'d, V: FnMut(&[&str], &str) -> Result<(), Failure>> Reader<'d, V> {
    /// Processes the next piece of the document.
    fn take(&mut self, markup: Markup<'d>) -> Result<(), Failure> {
        match markup {
            Markup::Start(name) => self.start(name),
            Markup::Empty(name) => {
                self.start(name);
                self.end(name)?;
            }
            Markup::End(name) => self.end(name)?,
            Markup::Verbatim(text) => self.text += with_line_ends(text),
            Markup::Other => {}
        }
        Ok(())
    }

    /// Begins an element.
    fn start(&mut self, name: &'d str) {
        self.path.push(name);
        self.text = Cow::Borrowed("");
    }

    /// Ends an element, and passes its path and text to the visitor.
    fn end(&mut self, name: &'d str) -> Result<(), Failure> {
        if self.path.last() != Some(&name) {
            return Err(Failure::malformed(format!("XML: </{name}> ends another element")));
        }
        (self.visit)(&self.path, &self.text)?;
        self.path.pop();
        if self.path.is_empty() {
            self.root = Some(name);
        }
        self.text = Cow::Borrowed("");
        Ok(())
    }
}

fn cut_short() -> Failure {
    Failure::malformed("XML that ends in the middle")
}

/// Returns the text up to the next markup, and the rest from there; `None` if there is no more markup.
fn text(rest: &str) -> Result<Option<(Cow<'_, str>, &str)>, Failure> {
    let special = |byte| matches!(byte, b'<' | b'&' | b'\r');
    let Some(plain) = rest.bytes().position(special) else { return Ok(None) };
    if rest.as_bytes()[plain] == b'<' {
        return Ok(Some((Cow::Borrowed(&rest[..plain]), &rest[plain..])));
    }
    let Some(end) = rest.bytes().position(|byte| byte == b'<') else { return Ok(None) };
    Ok(Some((unescaped(&rest[..end])?, &rest[end..])))
}

/// Parses the markup at the beginning, and returns it and the rest; `None` if the markup does not end.
fn markup(rest: &str) -> Option<(Markup<'_>, &str)> {
    match rest.as_bytes().get(1)? {
        b'/' => tag(&rest[2..]).map(|(tag, rest)| (Markup::End(tag.name), rest)),
        b'?' => rest.split_once("?>").map(|(_, rest)| (Markup::Other, rest)),
        b'!' => declaration(rest),
        _ => tag(&rest[1..]).map(|(tag, rest)| match tag.is_closed {
            true => (Markup::Empty(tag.name), rest),
            false => (Markup::Start(tag.name), rest),
        }),
    }
}

/// Splits off a comment, a CDATA section or a document type; `None` if it is cut short.
fn declaration(rest: &str) -> Option<(Markup<'_>, &str)> {
    if let Some(comment) = rest.strip_prefix("<!--") {
        comment.split_once("-->").map(|(_, rest)| (Markup::Other, rest))
    } else if let Some(data) = rest.strip_prefix("<![CDATA[") {
        data.split_once("]]>").map(|(text, rest)| (Markup::Verbatim(text), rest))
    } else {
        document_type(rest).map(|rest| (Markup::Other, rest))
    }
}

/// Returns the rest behind a document type and the declarations in it; `None` if the document type does not end.
fn document_type(text: &str) -> Option<&str> {
    let mut depth = 0;
    let end = text.bytes().position(|byte| {
        match byte {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    Some(&text[end? + 1..])
}

/// The relevant parts of a tag.
struct Tag<'d> {
    /// The name without its prefix.
    name: &'d str,
    /// Whether the tag ends in `/>`.
    is_closed: bool,
}

/// Parses a tag from its name on, and returns it and the rest; `None` if the tag does not end. The fast path is for
/// tags without attributes.
fn tag(text: &str) -> Option<(Tag<'_>, &str)> {
    let plain = text.bytes().position(|byte| !byte.is_ascii_alphanumeric())?;
    if text.as_bytes()[plain] == b'>' {
        return Some((Tag { name: &text[..plain], is_closed: false }, &text[plain + 1..]));
    }
    let end = tag_len(text)?;
    let (tag, behind) = (&text[..end], &text[end + 1..]);
    let (tag, is_closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
    let name = tag.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or_default();
    let name = name.split_once(':').map_or(name, |(_, local)| local);
    Some((Tag { name, is_closed }, behind))
}

/// Returns the length up to the closing `>`, skipping `>` in attribute values; `None` without a closing `>`. A quote
/// that no `=` precedes belongs to a name: MinIO makes elements of the names of user metadata, which may contain `'`.
fn tag_len(text: &str) -> Option<usize> {
    let (mut quote, mut last) = (None, b' ');
    text.bytes().position(|byte| {
        match (quote, byte) {
            (None, b'"' | b'\'') if last == b'=' => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            last = byte;
        }
        quote.is_none() && byte == b'>'
    })
}

fn unescaped(text: &str) -> Result<Cow<'_, str>, Failure> {
    let text = with_line_ends(text);
    let unescaped = quick_xml::escape::unescape(&text);
    let unescaped = unescaped.map_err(|error| Failure::malformed(format!("XML: {error}")))?;
    Ok(Cow::Owned(unescaped.into_owned()))
}

/// Normalises line ends to `\n`, as XML requires.
fn with_line_ends(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(|byte| byte == b'\r') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quick_xml::events::Event;

    type Visits = Vec<(String, String)>;

    fn visits(document: &str) -> Result<Visits, Failure> {
        let mut visits = Vec::new();
        read(document.as_bytes(), |path, text| {
            visits.push((path.join("/"), text.to_owned()));
            Ok(())
        })?;
        Ok(visits)
    }

    /// Reads the document by a complete XML library.
    fn visits_by_library(document: &str) -> Option<Visits> {
        let mut reader = quick_xml::Reader::from_str(document);
        reader.config_mut().expand_empty_elements = true;
        let (mut visits, mut path, mut text) = (Vec::new(), Vec::new(), String::new());
        loop {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    path.push(start.local_name().as_ref().to_owned());
                    text.clear();
                }
                Event::Text(piece) => text.push_str(&piece.xml10_content()),
                Event::CData(piece) => text.push_str(&piece.xml10_content()),
                Event::GeneralRef(name) => {
                    text.push_str(&quick_xml::escape::unescape(&format!("&{};", &*name)).ok()?);
                }
                Event::End(_) => {
                    visits.push((path.join("/"), std::mem::take(&mut text)));
                    path.pop();
                }
                Event::Eof if path.is_empty() && !visits.is_empty() => return Some(visits),
                Event::Eof => return None,
                _ => {}
            }
        }
    }

    #[test]
    fn attributes_and_declarations_are_skipped() {
        let document = "<?xml version='1.0'?><!DOCTYPE r [<!ENTITY e \"x\">]><p:r a='/>' b=\">\"><c />&lt;\
             <d\n>1 <!-- <x> --><![CDATA[<&]]>\r\n&#65;</d ></p:r>";
        let visit = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        assert_eq!(visits(document).unwrap(), [visit("r/c", ""), visit("r/d", "1 <&\nA"), visit("r", "")]);
    }

    #[test]
    fn unclosed_elements_are_errors() {
        for document in ["<a", "<a>", "<a></b>", "</a>", "<a><!-- </a>", "<a><![CDATA[</a>", "<a b='></a>"] {
            assert!(visits(document).is_err(), "{document}");
        }
        assert!(visits("<a>&b;</a>").is_err() && visits("<a>&lt</a>").is_err());
    }

    const PIECES: &[&str] = &[
        "<a>",
        "</a>",
        "<b>",
        "</b>",
        "<a/>",
        "<b />",
        "<n:a x=\"y>\">",
        "</n:a>",
        "</a >",
        "<b c='/>'>",
        "<é>",
        "</é>",
        "text",
        "ü ",
        "\r\n",
        "\r",
        "&lt;",
        "&#65;",
        "&#x1F600;",
        "&amp;amp;",
        "&who;",
        "&",
        ";",
        "]]>",
        ">",
        "/",
        "\"",
        "<!-- <a> -->",
        "<!---->",
        "<![CDATA[<&]]>",
        "<![CDATA[]]>",
        "<?pi <a>?>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]>",
        "<",
    ];

    proptest! {
        /// A document that the library can read gives the same result.
        #[test]
        fn documents_are_read_as_a_library_reads_them(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
            let document = format!("<a>{}</a>", pieces.concat());
            if let Some(visits_by_library) = visits_by_library(&document) {
                prop_assert_eq!(visits(&document).ok(), Some(visits_by_library), "{}", document);
            }
        }
    }
}
