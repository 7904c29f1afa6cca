//! The URL of a collector.

use http::Uri;
use std::str::FromStr;

/// Path of the traces below a collector's URL.
const TRACES_PATH: &str = "/v1/traces";

/// URL to which traces are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorUrl(pub(crate) Uri);

/// A URL that cannot be used. The message is one line, without the URL, which may contain a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CollectorUrlError {
    /// Not a URL of this form.
    #[error("write a URL like http://127.0.0.1:4318 or https://collector.example:4318")]
    Form,
    /// The URL contains a user or a password.
    #[error("the URL must not contain a user or a password")]
    Credentials,
}

impl FromStr for CollectorUrl {
    type Err = CollectorUrlError;

    /// Parses the URL of a collector, to which `/v1/traces` is added unless the URL ends in it.
    fn from_str(text: &str) -> Result<Self, CollectorUrlError> {
        let url: Uri = text.parse().map_err(|_| CollectorUrlError::Form)?;
        let (Some("http" | "https"), Some(authority), None) =
            (url.scheme_str(), url.authority(), url.query())
        else {
            return Err(CollectorUrlError::Form);
        };
        if authority.as_str().contains('@') {
            return Err(CollectorUrlError::Credentials);
        }
        let base = text.trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        format!("{base}{TRACES_PATH}").parse().map(Self).map_err(|_| CollectorUrlError::Form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_added_once() {
        for (text, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://a.example/otlp", "https://a.example/otlp/v1/traces"),
            ("https://a.example/v1/traces", "https://a.example/v1/traces"),
        ] {
            assert_eq!(text.parse::<CollectorUrl>().unwrap().0, *url);
        }
        for text in ["", "127.0.0.1:4318", "ftp://a.example", "http://", "http://a.example?key=x"] {
            assert_eq!(text.parse::<CollectorUrl>(), Err(CollectorUrlError::Form), "{text}");
        }
        assert_eq!("http://user:word@a.example".parse::<CollectorUrl>(), Err(CollectorUrlError::Credentials));
    }
}
