//! The headers that a collector wants with each request, such as one for authorization.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::str::FromStr;

/// Headers of requests to a collector. Their values are secret: they are never shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(crate) HeaderMap);

/// A line, counted from 1, that is not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {0} is not a header like `Authorization: Bearer TOKEN`")]
pub struct HeadersError(usize);

impl FromStr for Headers {
    type Err = HeadersError;

    /// Parses headers, one a line. Empty lines, and lines that begin with `#`, are skipped.
    fn from_str(text: &str) -> Result<Self, HeadersError> {
        let mut headers = HeaderMap::new();
        for (at, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = parse_line(line).ok_or(HeadersError(at + 1))?;
            headers.append(name, value);
        }
        Ok(Self(headers))
    }
}

fn parse_line(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let mut value: HeaderValue = value.trim().parse().ok()?;
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_headers_whose_values_are_not_shown() {
        let text = "# of the collector\n\nAuthorization: Bearer a:b\n x-scope-orgid :7 \n";
        let Headers(headers) = text.parse().unwrap();
        assert_eq!(headers.len(), 2);
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-scope-orgid"], "7");
        assert!(!format!("{headers:?}").contains("Bearer"));
        assert_eq!("".parse(), Ok(Headers::default()));
        for (text, line) in [("Bearer token", 1), ("a: b\nc d: e", 2), ("a: b\n\n:c", 3)] {
            assert_eq!(text.parse::<Headers>(), Err(HeadersError(line)), "{text}");
        }
    }
}
