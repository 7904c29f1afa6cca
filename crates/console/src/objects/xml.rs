//! Responses of the S3 endpoint as trees of elements.

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

/// An element of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// Name without the prefix of a namespace.
    name: String,
    /// Text directly in the element, apart from that of its children.
    text: String,
    children: Vec<Element>,
}

impl Element {
    /// Parses a document, and returns its root element; `None` if it is not well-formed.
    pub(crate) fn parse(document: &str) -> Option<Self> {
        let mut reader = Reader::from_str(document);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(tag) => {
                    let name = tag.local_name().as_ref().to_owned();
                    open.push(Self { name, ..Self::default() });
                }
                Event::Empty(tag) => {
                    let name = tag.local_name().as_ref().to_owned();
                    open.last_mut()?.children.push(Self { name, ..Self::default() });
                }
                Event::End(_) => {
                    let closed = open.pop()?;
                    open.last_mut()?.children.push(closed);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::GeneralRef(name) => {
                    let reference = format!("&{};", &*name);
                    open.last_mut()?.text.push_str(&unescape(&reference).ok()?);
                }
                Event::Eof => break,
                _ => {}
            }
        }
        open.pop().filter(|_| open.is_empty())?.children.pop()
    }

    /// Returns the children with a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the first child with a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.all(name).next()
    }

    /// Returns the text of the first child with a name; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| child.text.as_str())
    }

    /// Returns the name and the text of each child.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.children.iter().map(|child| (child.name.as_str(), child.text.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_nest_and_entities_are_resolved() {
        let root = Element::parse(
            "<?xml version=\"1.0\"?>\n<a xmlns=\"x\"><b>1 &lt;&#10;2</b><b/><c><d>3</d></c></a>",
        );
        let root = root.unwrap();
        assert_eq!(root.text("b"), "1 <\n2");
        assert_eq!(root.all("b").count(), 2);
        assert_eq!(root.child("c").unwrap().text("d"), "3");
        assert_eq!(Element::parse("<a><b></a>"), None);
        assert_eq!(Element::parse(""), None);
    }
}
