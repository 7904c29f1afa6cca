//! HTTP/1.1 message heads, and the lengths of the bodies after them.

use super::RequestKind;
use std::io::{self, BufRead};

/// A request or a response up to its body.
#[derive(Debug)]
pub(super) struct Head {
    /// The raw bytes, including the empty line at the end.
    pub(super) bytes: Vec<u8>,
    /// `bytes` as text, in lower case.
    lower: String,
}

/// The length of the body after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Bytes(u64),
    Chunked,
}

impl Head {
    /// Reads the next head; `None` if the connection ends before the head does.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            if from.read_until(b'\n', &mut bytes)? == 0 {
                return Ok(None);
            }
        }
        let lower = String::from_utf8_lossy(&bytes).to_lowercase();
        Ok(Some(Self { bytes, lower }))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.lower.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
    }

    /// Returns the length of the body by the headers; 0 bytes if they do not state one.
    pub(super) fn length(&self) -> Length {
        match self.header("transfer-encoding") {
            Some("chunked") => Length::Chunked,
            _ => Length::Bytes(self.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0)),
        }
    }

    /// Returns the kind of this request.
    pub(super) fn kind(&self) -> RequestKind {
        let mut words = self.lower.lines().next().unwrap_or_default().split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        RequestKind::classify(method, target, self.header("x-amz-copy-source").is_some())
    }

    /// Returns whether this request waits for an interim response before it sends its body.
    pub(super) fn awaits_continue(&self) -> bool {
        self.header("expect") == Some("100-continue")
    }

    /// Returns whether this is an interim response, which another response follows.
    pub(super) fn is_interim(&self) -> bool {
        self.lower.starts_with("http/1.1 1")
    }

    /// Returns whether this is a HEAD request, whose response has no body whatever its headers say.
    pub(super) fn is_head(&self) -> bool {
        self.lower.starts_with("head ")
    }

    /// Returns whether this is a response whose body is an object and not an XML document.
    pub(super) fn is_object(&self) -> bool {
        let is_success = self.lower.starts_with("http/1.1 200") || self.lower.starts_with("http/1.1 206");
        is_success && self.header("etag").is_some() && self.header("content-type") != Some("application/xml")
    }
}

/// Builds an error response of the proxy itself.
pub(super) fn error(status: &str, code: &str) -> Vec<u8> {
    let body = format!("<Error><Code>{code}</Code><Message>on demand</Message></Error>");
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\ncontent-type: application/xml\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_parsed() {
        let mut text = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello"[..];
        let head = Head::read(&mut text).unwrap().unwrap();
        assert!(head.is_object() && head.length() == Length::Bytes(5) && text == b"hello");
        let mut text = &b"HEAD /k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
        let head = Head::read(&mut text).unwrap().unwrap();
        assert!(head.is_head() && head.length() == Length::Chunked);
        assert!(Head::read(&mut text).unwrap().is_none());
    }
}
