//! The `<Contents>` elements of a listing.
//!
//! They dominate the cost of a listing, so they are written here in one pass. `s3s` writes only the document around
//! them, since it would allocate a value for each of their elements.

use http::header::CONTENT_TYPE;
use quick_xml::escape::escape;
use s3s::dto::Owner;
use std::fmt::Write as _;
use store::{Attributes, ETag, ListEntry, ListedObject, Timestamp};

use crate::metadata_names::is_internal;
use crate::ops::listing::Encoding;
use crate::pagination::Page;

/// The approximate length of an element without its key, in bytes.
const ROW_BYTES: usize = 300;

/// Prefix of the headers of user metadata.
const USER_PREFIX: &str = "x-amz-meta-";
/// The header of an object's storage class.
const STORAGE_CLASS: &str = "x-amz-storage-class";

/// `<Contents>` elements to be inserted at the end of a document.
#[derive(Debug, Clone)]
pub(crate) struct ContentsXml(String);

impl ContentsXml {
    /// Writes an element for each object of a page.
    pub(crate) fn of(page: &Page, encoding: Encoding, owner: Option<&Owner>) -> Self {
        let mut rows = String::with_capacity(page.entries.len() * ROW_BYTES);
        let row_end = row_end(owner);
        for entry in &page.entries {
            let ListEntry::Object(ListedObject { object, size_bytes, attributes }) = entry else { continue };
            rows.push_str("<Contents><Key>");
            encoding.push(&mut rows, object.key.as_bytes());
            rows.push_str("</Key>");
            if let Some(modified) = object.last_modified {
                push_modified(&mut rows, modified);
            }
            push_etag(&mut rows, &object.etag);
            write!(rows, "<Size>{size_bytes}</Size>")
                .unwrap_or_else(|_| unreachable!("writing to a String cannot fail"));
            if let Some(attributes) = attributes {
                push_attributes(&mut rows, attributes);
            }
            rows.push_str(&row_end);
        }
        Self(rows)
    }

    /// Inserts the elements before the end of the document's root.
    pub(crate) fn insert_into(&self, document: &str) -> String {
        let end = document.rfind("</").unwrap_or(document.len());
        [&document[..end], &self.0, &document[end..]].concat()
    }
}

/// Returns the end that all elements share.
fn row_end(owner: Option<&Owner>) -> String {
    let mut row_end = String::new();
    if let Some(owner) = owner {
        row_end.push_str("<Owner>");
        let named = [("DisplayName", &owner.display_name), ("ID", &owner.id)];
        for (element, text) in named.into_iter().filter_map(|(element, text)| Some((element, text.as_ref()?)))
        {
            row_end.extend(["<", element, ">"]);
            row_end.push_str(&escape(text.as_str()));
            row_end.extend(["</", element, ">"]);
        }
        row_end.push_str("</Owner>");
    }
    row_end.push_str("<StorageClass>STANDARD</StorageClass></Contents>");
    row_end
}

/// Writes the headers that describe an object, each as an element with the header's name, as MinIO does. Writes nothing if a name
/// is not valid in XML.
fn push_attributes(rows: &mut String, attributes: &Attributes) {
    let user = attributes.user.iter().filter(|(name, _)| !is_internal(name));
    let user = user.map(|(name, value)| (format!("{USER_PREFIX}{name}"), value));
    let system = attributes.system.iter().map(|(name, value)| (name.clone(), value));
    let others =
        [(CONTENT_TYPE.as_str(), &attributes.content_type), (STORAGE_CLASS, &attributes.storage_class)];
    let others = others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.as_ref()?)));
    let shown: Vec<_> = others.chain(system).chain(user).collect();
    let is_name =
        |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    if !shown.iter().all(|(name, _)| is_name(name)) {
        return;
    }
    rows.push_str("<UserMetadata>");
    for (name, value) in shown {
        rows.extend(["<", &name, ">", &escape(value.as_str()), "</", &name, ">"]);
    }
    rows.push_str("</UserMetadata>");
}

fn push_etag(rows: &mut String, etag: &ETag) {
    rows.push_str("<ETag>\"");
    rows.push_str(&escape(etag.as_str()));
    rows.push_str("\"</ETag>");
}

/// Writes a time in S3's format, with milliseconds.
fn push_modified(rows: &mut String, modified: Timestamp) {
    let time = jiff::Timestamp::from_second(modified.secs()).unwrap_or_default();
    let time = jiff::tz::Offset::UTC.to_datetime(time);
    rows.push_str("<LastModified>");
    push_digits::<4>(rows, time.year().unsigned_abs().into());
    for (before, number) in [
        ('-', time.month()),
        ('-', time.day()),
        ('T', time.hour()),
        (':', time.minute()),
        (':', time.second()),
    ] {
        rows.push(before);
        push_digits::<2>(rows, number.unsigned_abs().into());
    }
    rows.push('.');
    push_digits::<3>(rows, modified.subsec_nanos() / 1_000_000);
    rows.push_str("Z</LastModified>");
}

fn push_digits<const DIGITS: usize>(text: &mut String, mut number: u32) {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    text.extend(digits.map(char::from));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers;
    use s3s::dto::{self, EncodingType, ListObjectsV2Output};
    use s3s::xml::{Serialize as _, Serializer};
    use store::{ObjectKey, ObjectRef};

    fn object(key: &str, secs: i64, nanos: u32) -> ListEntry {
        let object = ObjectRef {
            key: ObjectKey::new(key.to_owned()).unwrap(),
            etag: ETag::new("0123-4"),
            version: None,
            last_modified: Some(Timestamp::from_secs(secs, nanos)),
        };
        ListEntry::Object(ListedObject::new(object, 1 << 40))
    }

    #[test]
    fn elements_match_those_of_s3s() {
        let entries = vec![
            object("a'b<c>&\"d", 0, 0),
            object("\u{fc} +%", 1_767_225_599, 999_999_999),
            ListEntry::Prefix("p/".into()),
            object("z", -1, 1_000_000),
            object("leap", 1_709_164_800, 7_000_000),
        ];
        let page = Page { entries, is_truncated: false };
        let owner = Owner { display_name: Some("R & D".to_owned()), id: Some("1".to_owned()) };
        for asked in [None, Some(EncodingType::from_static("url"))] {
            let encoding = Encoding::of(asked.as_ref()).unwrap();
            for owner in [None, Some(&owner)] {
                let objects = objects(&page, encoding, owner);
                let document = |contents| {
                    let mut document = Vec::new();
                    let output = ListObjectsV2Output { contents, ..Default::default() };
                    output.serialize(&mut Serializer::new(&mut document)).unwrap();
                    String::from_utf8(document).unwrap()
                };
                let written = ContentsXml::of(&page, encoding, owner).insert_into(&document(None));
                assert_eq!(rows(&written), rows(&document(Some(objects.collect()))));
            }
        }
    }

    /// Returns a page's objects as `s3s` represents them.
    fn objects(
        page: &Page,
        encoding: Encoding,
        owner: Option<&dto::Owner>,
    ) -> impl Iterator<Item = dto::Object> {
        page.entries.iter().filter_map(move |entry| match entry {
            ListEntry::Prefix(_) => None,
            ListEntry::Object(ListedObject { object, size_bytes, .. }) => Some(dto::Object {
                key: Some(encoding.text(object.key.as_bytes())),
                e_tag: Some(headers::etag(&object.etag)),
                last_modified: object.last_modified.map(headers::timestamp),
                size: i64::try_from(*size_bytes).ok(),
                storage_class: Some(dto::ObjectStorageClass::from_static("STANDARD")),
                owner: owner.cloned(),
                ..Default::default()
            }),
        })
    }

    /// Splits a document into `<Contents>` elements with their children sorted, since their order is free.
    fn rows(document: &str) -> Vec<Vec<&str>> {
        document.split("<Contents>").map(sorted_elements).collect()
    }

    fn sorted_elements(row: &str) -> Vec<&str> {
        let mut elements: Vec<&str> = row.split('<').collect();
        elements.sort_unstable();
        elements
    }
}
