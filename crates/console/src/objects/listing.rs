//! Pages of listings of a bucket's objects, and of an object's versions: the queries, and the parsed responses.

use super::xml::Element;
use crate::display::encode;
use crate::request::decode;
use std::collections::BTreeMap;

/// The page of a bucket's listing that is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// Beginning of the keys that are listed.
    pub(crate) prefix: &'a str,
    /// Token of the page; `None` for the first.
    pub(crate) token: Option<&'a str>,
    /// Whether keys with a `/` behind the prefix are listed as the directory that they are in.
    pub(crate) by_directory: bool,
    /// Maximum number of objects and directories; the endpoint returns at most 1000.
    pub(crate) rows_max: usize,
    /// Whether the headers of objects are asked for, which is an extension of S3.
    pub(crate) with_metadata: bool,
}

impl Wanted<'_> {
    /// Returns the encoded query of the request.
    pub(super) fn query(&self) -> String {
        let mut query = format!(
            "encoding-type=url&list-type=2&max-keys={}&prefix={}",
            self.rows_max,
            encode(self.prefix)
        );
        if self.by_directory {
            query.push_str("&delimiter=%2F");
        }
        if self.with_metadata {
            query.push_str("&metadata=true");
        }
        if let Some(token) = self.token {
            query.push_str(&format!("&continuation-token={}", encode(token)));
        }
        query
    }
}

/// A page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Listing {
    /// Directories, each a prefix with `/` at its end.
    pub(crate) directories: Vec<String>,
    pub(crate) objects: Vec<ObjectRow>,
    /// Token of the next page; `None` at the end.
    pub(crate) next: Option<String>,
}

/// An object in a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectRow {
    /// The whole key, with the prefix of the listing.
    pub(crate) key: String,
    pub(crate) size_bytes: u64,
    /// Time of the last change (RFC 3339).
    pub(crate) modified: String,
    /// Headers that describe the object, by lower-case name; `None` if the listing does not have them.
    pub(crate) headers: Option<BTreeMap<String, String>>,
}

impl Listing {
    /// Reads the page from a response of the endpoint.
    pub(super) fn of(document: &Element) -> Self {
        let prefixes = document.all("CommonPrefixes").map(|prefix| decode(prefix.text("Prefix")));
        let next = document.text("NextContinuationToken");
        Self {
            directories: prefixes.collect(),
            objects: document.all("Contents").map(ObjectRow::of).collect(),
            next: (!next.is_empty()).then(|| next.to_owned()),
        }
    }
}

impl ObjectRow {
    fn of(row: &Element) -> Self {
        let headers = row.child("UserMetadata").map(|headers| {
            headers.pairs().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
        });
        Self {
            key: decode(row.text("Key")),
            size_bytes: row.text("Size").parse().unwrap_or_default(),
            modified: row.text("LastModified").to_owned(),
            headers,
        }
    }
}

/// A version of an object in a listing, or a delete marker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VersionRow {
    /// Version id.
    pub(crate) id: String,
    pub(crate) is_newest: bool,
    /// Time at which it was stored (RFC 3339).
    pub(crate) modified: String,
    /// Length in bytes; `None` for a delete marker.
    pub(crate) size_bytes: Option<u64>,
}

impl VersionRow {
    /// Returns the versions of one key in a listing, which may have those of other keys too; the newest first.
    pub(super) fn all_of(document: &Element, key: &str) -> Vec<Self> {
        let row = |row: &Element, size_bytes| Self {
            id: row.text("VersionId").to_owned(),
            is_newest: row.text("IsLatest") == "true",
            modified: row.text("LastModified").to_owned(),
            size_bytes,
        };
        let is_of_key = |row: &&Element| decode(row.text("Key")) == key;
        let stored = document.all("Version").filter(is_of_key);
        let stored = stored.map(|found| row(found, found.text("Size").parse().ok()));
        let deleted = document.all("DeleteMarker").filter(is_of_key).map(|found| row(found, None));
        let mut rows: Vec<Self> = stored.chain(deleted).collect();
        // Times have the same form, so that their order is that of their texts. The sort is stable.
        rows.sort_by(|one, other| {
            other.is_newest.cmp(&one.is_newest).then(other.modified.cmp(&one.modified))
        });
        rows
    }
}
