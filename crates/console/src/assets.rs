//! The style, the script and the icon of all pages.
//!
//! Invariant: an asset's etag is made from its bytes, so that browsers keep an asset until its bytes change.

use crate::reply::{self, Reply};
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use std::sync::LazyLock;

/// All assets.
static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("/assets/console.css", "text/css; charset=utf-8", include_str!("assets/console.css")),
        Asset::new("/assets/console.js", "text/javascript; charset=utf-8", include_str!("assets/console.js")),
        Asset::new("/assets/icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ]
});

/// An asset.
struct Asset {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
    /// Strong etag, with its quotes.
    etag: String,
}

impl Asset {
    fn new(path: &'static str, content_type: &'static str, text: &'static str) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        Self { path, content_type, text, etag: format!("\"{}\"", store::hex(&digest.as_ref()[..16])) }
    }
}

/// Returns the response with the asset of a path, or a 304 if the browser has this asset; `None` if the path is not that
/// of an asset.
pub(crate) fn find(path: &str, headers: &HeaderMap) -> Option<Reply> {
    let asset = ASSETS.iter().find(|asset| asset.path == path)?;
    let mut reply = match has_etag(headers, &asset.etag) {
        true => reply::not_modified(),
        false => reply::asset(asset.content_type, asset.text),
    };
    if let Ok(etag) = HeaderValue::from_str(&asset.etag) {
        reply.headers_mut().insert(ETAG, etag);
    }
    Some(reply)
}

/// Returns whether `If-None-Match` contains an etag. Weak etags match too (RFC 9110, section 13.1.2).
fn has_etag(headers: &HeaderMap, etag: &str) -> bool {
    let lines = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = lines.flat_map(|line| line.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_etags_matches_if_it_has_the_etag() {
        let matches = |value: &'static str| {
            has_etag(&HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(value))]), "\"a\"")
        };
        assert!(["\"a\"", "W/\"a\"", "*", "\"b\", \"a\""].map(matches).iter().all(|matched| *matched));
        assert!(["\"b\"", "a", "", "\"ab\""].map(matches).iter().all(|matched| !*matched));
        assert!(!has_etag(&HeaderMap::new(), "\"a\""));
    }
}
