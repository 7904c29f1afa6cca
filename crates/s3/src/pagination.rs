//! Pages of a listing: as many entries as requested, with keys rolled up into common prefixes at any delimiter.
//!
//! The store rolls up at one-byte delimiters; longer delimiters are handled here.

use bytes::Bytes;
use s3s::S3Result;
use store::{ListEntry, ListRequest, ObjectStore};

use crate::error::{from_store, invalid_argument};

/// S3's maximum number of entries per page.
const ENTRIES_MAX: usize = 1000;

/// The parameters of a page.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageRequest {
    pub(crate) prefix: Bytes,
    pub(crate) delimiter: Option<String>,
    /// Only keys and prefixes greater than this text are listed.
    pub(crate) after: Option<Bytes>,
    /// Whether a common prefix that lies before `after` is listed if it has keys after `after`, as S3 does for
    /// `start-after`.
    pub(crate) includes_start_prefix: bool,
    /// The maximum number of entries of the page.
    pub(crate) limit: usize,
    /// Whether objects are listed with their attributes.
    pub(crate) with_attributes: bool,
}

/// A page of entries, and whether more follow.
pub(crate) struct Page {
    pub(crate) entries: Vec<ListEntry>,
    pub(crate) is_truncated: bool,
}

impl Page {
    /// Returns the last entry's text, after which the next page begins.
    pub(crate) fn last(&self) -> Option<&[u8]> {
        self.entries.last().map(ListEntry::text)
    }
}

/// Returns the number of entries that a request asks for: by default and at most [`ENTRIES_MAX`]. `InvalidArgument` if
/// it is negative.
pub(crate) fn limit(asked: Option<i32>, name: &str) -> S3Result<usize> {
    match asked {
        None => Ok(ENTRIES_MAX),
        Some(asked) => usize::try_from(asked).map(|asked| asked.min(ENTRIES_MAX)).map_err(|_| {
            let message = format!("Argument {asked} must be an integer between 0 and 2147483647");
            invalid_argument(&message, name, &asked.to_string())
        }),
    }
}

/// Returns the page of a listing that a request asks for.
pub(crate) async fn page(store: &dyn ObjectStore, page_request: &PageRequest) -> S3Result<Page> {
    let mut page = Page { entries: Vec::new(), is_truncated: false };
    if page_request.limit == 0 {
        return Ok(page);
    }
    page.entries.extend(prefix_at_start(store, page_request).await?);
    let delimiter = page_request.delimiter.as_deref().unwrap_or_default().as_bytes();
    let mut request = ListRequest {
        prefix: page_request.prefix.clone(),
        delimiter: (delimiter.len() == 1).then(|| delimiter[0]),
        start_after: page_request.after.clone(),
        token: None,
        limit: 0,
        with_attributes: page_request.with_attributes,
    };
    loop {
        // Request one entry more than needed to find out whether more follow. (A store may return fewer.)
        request.limit = page_request.limit - page.entries.len() + 1;
        let found = store.list(request.clone()).await.map_err(from_store)?;
        for entry in found.entries {
            let entry =
                if delimiter.len() > 1 { roll_up(entry, &page_request.prefix, delimiter) } else { entry };
            let is_new = page.last() != Some(entry.text())
                && page_request.after.as_ref().is_none_or(|after| entry.text() > after.as_ref());
            if is_new && page.entries.len() == page_request.limit {
                page.is_truncated = true;
                return Ok(page);
            }
            if is_new {
                page.entries.push(entry);
            }
        }
        match found.next {
            Some(token) => request.token = Some(token),
            None => return Ok(page),
        }
    }
}

/// Returns the common prefix that contains `after`, if it has keys after `after`.
async fn prefix_at_start(store: &dyn ObjectStore, page_request: &PageRequest) -> S3Result<Option<ListEntry>> {
    let (Some(after), Some(delimiter)) = (&page_request.after, &page_request.delimiter) else {
        return Ok(None);
    };
    let rest = after.strip_prefix(&page_request.prefix[..]).filter(|_| page_request.includes_start_prefix);
    let at =
        rest.and_then(|rest| rest.windows(delimiter.len()).position(|window| window == delimiter.as_bytes()));
    // If a page ends with the prefix itself, the next page begins after all of its keys.
    let ends = |at: usize| page_request.prefix.len() + at + delimiter.len();
    let Some(end) = at.map(ends).filter(|end| *end < after.len()) else { return Ok(None) };
    let prefix = after.slice(..end);
    let request = ListRequest {
        prefix: prefix.clone(),
        start_after: Some(after.clone()),
        limit: 1,
        ..ListRequest::default()
    };
    let found = store.list(request).await.map_err(from_store)?;
    Ok((!found.entries.is_empty()).then_some(ListEntry::Prefix(prefix)))
}

/// Returns the common prefix that stands for an entry; the entry itself if it has none.
fn roll_up(entry: ListEntry, prefix: &[u8], delimiter: &[u8]) -> ListEntry {
    match common_prefix(entry.text(), prefix, delimiter) {
        Some(prefix) => ListEntry::Prefix(prefix),
        None => entry,
    }
}

/// Returns the common prefix of a text at a delimiter of several bytes, if it contains the delimiter.
pub(crate) fn common_prefix(text: &[u8], prefix: &[u8], delimiter: &[u8]) -> Option<Bytes> {
    let rest = text.get(prefix.len()..).filter(|_| delimiter.len() > 1)?;
    let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
    Some(Bytes::copy_from_slice(&text[..prefix.len() + at + delimiter.len()]))
}
