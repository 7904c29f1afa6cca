//! The requests of listings, and the conversion of their responses.

use super::S3Store;
use super::call::Call;
use super::failure::Failure;
use super::request_counts::RequestKind;
use super::xml::{self, Listing};
use bytes::Bytes;
use http::Method;
use store::{ETag, ListEntry, ListPage, ListRequest, ListedObject, ObjectKey, ObjectRef, Result, StoreError};

/// Maximum entries of an S3 page.
const PAGE_ENTRIES_MAX: usize = 1000;

impl S3Store {
    pub(super) async fn list_page(&self, request: ListRequest) -> Result<ListPage> {
        let attribute_listings = &self.client.learned.attribute_listings;
        let with_attributes = request.with_attributes && attribute_listings.are_available();
        match self.request_page(&ListRequest { with_attributes, ..request.clone() }).await {
            Err(StoreError::Invalid(_) | StoreError::Unsupported(_)) if with_attributes => {
                attribute_listings.note_refusal();
                self.request_page(&ListRequest { with_attributes: false, ..request }).await
            }
            listed => listed,
        }
    }

    async fn request_page(&self, request: &ListRequest) -> Result<ListPage> {
        let Some(call) = self.list_call(request)? else { return Ok(ListPage::default()) };
        let mut retry = self.client.retry();
        let page = self.client.fetch_as(&call, &mut retry, |answer| {
            let listing = xml::parse_listing(&answer.body)?;
            if listing.has_classes {
                self.client.learned.uncopied_attributes.note_some();
            }
            let largest = listing.objects.iter().map(|object| object.size_bytes).max();
            self.client.learned.part_copies.note_size(largest.unwrap_or(0));
            page(listing, request)
        });
        Ok(page.await?)
    }

    /// Makes the request; `None` if no key can have the prefix.
    fn list_call(&self, request: &ListRequest) -> Result<Option<Call>> {
        let Some(prefix) = text_of_prefix(&request.prefix) else { return Ok(None) };
        let limit = request.limit.clamp(1, PAGE_ENTRIES_MAX);
        let mut call = Call::bucket_call(RequestKind::List, Method::GET, self.bucket.clone())
            .query("list-type", "2")
            .query("encoding-type", "url")
            .query("prefix", prefix.to_owned())
            .query("max-keys", limit.to_string());
        if let Some(delimiter) = request.delimiter {
            if !delimiter.is_ascii() {
                return Err(StoreError::Invalid("the delimiter of a listing must be ASCII".to_owned()));
            }
            call = call.query("delimiter", char::from(delimiter).to_string());
        }
        if request.with_attributes {
            call = call.query("metadata", "true");
        }
        if let Some(token) = &request.token {
            call = call.query("continuation-token", token.clone());
        } else if let Some(after) = &request.start_after {
            call = call.query("start-after", greatest_text_up_to(after));
        }
        Ok(Some(call))
    }
}

/// Returns the UTF-8 text up to the first invalid byte. Entries between that text and `bytes` are filtered later.
fn greatest_text_up_to(bytes: &[u8]) -> String {
    let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
    valid.to_owned()
}

/// Returns the prefix to list: that of the request, or the text before its last character if the request's prefix ends inside that
/// character, as S3's prefixes are UTF-8. `None` if no key, which is UTF-8 too, can have the prefix.
fn text_of_prefix(prefix: &[u8]) -> Option<&str> {
    match str::from_utf8(prefix) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => str::from_utf8(&prefix[..error.valid_up_to()]).ok(),
        Err(_) => None,
    }
}

/// Removes the entries of a listing of [`text_of_prefix`] that do not have the requested prefix. The last page is the one that reaches the
/// end of the prefix.
fn retain_prefix(page: &mut ListPage, prefix: &[u8]) {
    let is_beyond = |entry: &ListEntry| entry.text() > prefix && !entry.text().starts_with(prefix);
    if page.entries.last().is_some_and(is_beyond) {
        page.next = None;
    }
    page.entries.retain(|entry| entry.text().starts_with(prefix));
}

/// Merges objects and prefixes in order. S3 returns a prefix if one of its keys lies after `start_after`, even if the
/// prefix itself does not; [`ListRequest::start_after`] excludes such prefixes.
fn page(listing: Listing, request: &ListRequest) -> Result<ListPage, Failure> {
    let mut entries = Vec::with_capacity(listing.objects.len() + listing.prefixes.len());
    for object in listing.objects {
        entries.push(entry(object)?);
    }
    entries.extend(listing.prefixes.into_iter().map(|prefix| ListEntry::Prefix(Bytes::from(prefix))));
    if let (Some(after), None) = (&request.start_after, &request.token) {
        entries.retain(|entry| entry.text() > after.as_ref());
    }
    entries.sort_by(|a, b| a.text().cmp(b.text()));
    let mut page = ListPage { entries, next: listing.next };
    if str::from_utf8(&request.prefix).is_err() {
        retain_prefix(&mut page, &request.prefix);
    }
    Ok(page)
}

fn entry(listed: xml::ListedObject) -> Result<ListEntry, Failure> {
    let key =
        ObjectKey::new(listed.key).map_err(|error| Failure::malformed(format!("a listed key: {error}")))?;
    let etag = listed.etag.unwrap_or_else(|| ETag::new(""));
    let object = ObjectRef { key, etag, version: None, last_modified: listed.last_modified };
    let attributes = listed.attributes.map(Box::new);
    Ok(ListEntry::Object(ListedObject { object, size_bytes: listed.size_bytes, attributes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_and_prefixes_are_in_one_order_after_the_start() {
        let object = |key: &str| xml::ListedObject { key: key.into(), ..xml::ListedObject::default() };
        let listing = Listing {
            objects: vec![object("a-"), object("a0")],
            prefixes: vec![b"a/".to_vec(), b"b/".to_vec()],
            ..Listing::default()
        };
        let request = ListRequest { start_after: Some(Bytes::from_static(b"a-")), ..ListRequest::default() };
        let page = page(listing, &request).unwrap();
        let texts: Vec<_> = page.entries.iter().map(ListEntry::text).collect();
        assert_eq!(texts, [b"a/".as_slice(), b"a0", b"b/"]);
    }

    #[test]
    fn a_prefix_that_ends_inside_a_character_is_listed_without_it() {
        assert_eq!(text_of_prefix("a/é".as_bytes()), Some("a/é"));
        assert_eq!(text_of_prefix(b"a/\xc3"), Some("a/"));
        assert_eq!(text_of_prefix(b"a/\xe6\x97"), Some("a/"));
        assert_eq!((text_of_prefix(b"\xff"), text_of_prefix(b"a\x80b")), (None, None));
        let object = |key: &str| xml::ListedObject { key: key.into(), ..xml::ListedObject::default() };
        let listed = |last: &str| {
            let objects = vec![object("a/b"), object("a/é"), object("a/êx"), object(last)];
            let listing = Listing { objects, next: Some("token".into()), ..Listing::default() };
            let request = ListRequest { prefix: Bytes::from_static(b"a/\xc3"), ..ListRequest::default() };
            page(listing, &request).unwrap()
        };
        let texts = |page: &ListPage| {
            page.entries
                .iter()
                .map(|entry| String::from_utf8_lossy(entry.text()).into_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(texts(&listed("a/ë")), ["a/é", "a/êx", "a/ë"]);
        assert!(listed("a/ë").next.is_some());
        // No later key has the prefix.
        assert_eq!((texts(&listed("a/日")).len(), listed("a/日").next), (2, None));
    }
}
