//! The XML documents of S3, read as a stream of elements and written by hand.

use super::escape;
use super::failure::Failure;
use super::headers::USUAL_CLASS;
use crate::Timestamp;
use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};
use std::collections::BTreeMap;

/// An error document, as far as it is there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorDocument {
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    pub(super) region: Option<String>,
}

/// An object of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListedObject {
    pub(super) key: Vec<u8>,
    pub(super) etag: String,
    pub(super) size_bytes: u64,
    pub(super) last_modified: Option<Timestamp>,
}

/// A page of ListObjectsV2.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) objects: Vec<ListedObject>,
    pub(super) prefixes: Vec<Vec<u8>>,
    pub(super) next: Option<String>,
    /// Some object has a storage class of its own.
    pub(super) has_classes: bool,
}

/// Buckets and, where there are more, the token of the next page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BucketList {
    pub(super) names: Vec<String>,
    pub(super) next: Option<String>,
}

/// An error document, or nothing if it is none.
pub(super) fn error(body: &[u8]) -> Option<ErrorDocument> {
    let mut document = ErrorDocument::default();
    let read = read(body, |path, text| {
        // Some servers wrap it in <ErrorResponse>.
        match path {
            "Error/Code" | "ErrorResponse/Error/Code" => document.code = Some(text.to_owned()),
            "Error/Message" | "ErrorResponse/Error/Message" => document.message = Some(text.to_owned()),
            "Error/Region" | "ErrorResponse/Error/Region" => document.region = Some(text.to_owned()),
            _ => {}
        }
        Ok(())
    });
    read.ok().filter(|root| matches!(root.as_str(), "Error" | "ErrorResponse")).map(|_| document)
}

pub(super) fn listing(body: &[u8]) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let mut object = ListedObject::default();
    let (mut truncated, mut encoded) = (false, false);
    let root = read(body, |path, text| {
        match path {
            "ListBucketResult/Contents/Key" => object.key = text.into(),
            "ListBucketResult/Contents/ETag" => object.etag = text.to_owned(),
            "ListBucketResult/Contents/Size" => object.size_bytes = number(text)?,
            "ListBucketResult/Contents/StorageClass" => {
                listing.has_classes |= !text.is_empty() && text != USUAL_CLASS;
            }
            "ListBucketResult/Contents/LastModified" => object.last_modified = timestamp(text),
            "ListBucketResult/Contents" => listing.objects.push(std::mem::take(&mut object)),
            "ListBucketResult/CommonPrefixes/Prefix" => listing.prefixes.push(text.into()),
            "ListBucketResult/NextContinuationToken" if !text.is_empty() => {
                listing.next = Some(text.to_owned())
            }
            "ListBucketResult/IsTruncated" => truncated = text == "true",
            "ListBucketResult/EncodingType" => encoded = text == "url",
            _ => {}
        }
        Ok(())
    })?;
    expect_root(&root, "ListBucketResult")?;
    if encoded {
        let keys = listing.objects.iter_mut().map(|object| &mut object.key);
        keys.chain(&mut listing.prefixes).for_each(decode);
    }
    if truncated != listing.next.is_some() && truncated {
        return Err(Failure::nonsense("a listing that goes on without saying where"));
    }
    listing.next = listing.next.filter(|_| truncated);
    Ok(listing)
}

fn decode(text: &mut Vec<u8>) {
    // It was text a moment ago.
    *text = escape::url_decode(&String::from_utf8_lossy(text));
}

/// The upload's id.
pub(super) fn initiated(body: &[u8]) -> Result<String, Failure> {
    one(body, "InitiateMultipartUploadResult", "UploadId")
}

/// The tag of an object or part made by a copy or a completion.
pub(super) fn made(body: &[u8], root: &str) -> Result<String, Failure> {
    one(body, root, "ETag")
}

/// The text of the only element that matters.
fn one(body: &[u8], root: &str, element: &str) -> Result<String, Failure> {
    let mut found = None;
    let actual = read(body, |path, text| {
        if path.split_once('/') == Some((root, element)) {
            found = Some(text.to_owned());
        }
        Ok(())
    })?;
    expect_root(&actual, root)?;
    found
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Failure::nonsense(format!("<{root}> without <{element}>")))
}

pub(super) fn tags(body: &[u8]) -> Result<BTreeMap<String, String>, Failure> {
    let mut tags = BTreeMap::new();
    let (mut name, mut value) = (String::new(), String::new());
    let root = read(body, |path, text| {
        match path {
            "Tagging/TagSet/Tag/Key" => name = text.to_owned(),
            "Tagging/TagSet/Tag/Value" => value = text.to_owned(),
            "Tagging/TagSet/Tag" => drop(tags.insert(std::mem::take(&mut name), std::mem::take(&mut value))),
            _ => {}
        }
        Ok(())
    })?;
    expect_root(&root, "Tagging")?;
    Ok(tags)
}

pub(super) fn buckets(body: &[u8]) -> Result<BucketList, Failure> {
    let mut list = BucketList::default();
    let root = read(body, |path, text| {
        match path {
            "ListAllMyBucketsResult/Buckets/Bucket/Name" => list.names.push(text.to_owned()),
            "ListAllMyBucketsResult/ContinuationToken" if !text.is_empty() => {
                list.next = Some(text.to_owned())
            }
            _ => {}
        }
        Ok(())
    })?;
    expect_root(&root, "ListAllMyBucketsResult")?;
    Ok(list)
}

/// A part in the order to complete.
#[derive(Debug, Clone)]
pub(super) struct DonePart {
    pub(super) number: u32,
    pub(super) etag: String,
    pub(super) crc64nvme: Option<String>,
}

pub(super) fn complete(parts: &[DonePart]) -> String {
    let mut out = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for part in parts {
        out.push_str("<Part>");
        push(&mut out, "PartNumber", &part.number.to_string());
        push(&mut out, "ETag", &part.etag);
        if let Some(crc) = &part.crc64nvme {
            push(&mut out, "ChecksumCRC64NVME", crc);
        }
        out.push_str("</Part>");
    }
    out.push_str("</CompleteMultipartUpload>");
    out
}

pub(super) fn tagging(tags: &BTreeMap<String, String>) -> String {
    let mut out = String::from("<Tagging xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><TagSet>");
    for (name, value) in tags {
        out.push_str("<Tag>");
        push(&mut out, "Key", name);
        push(&mut out, "Value", value);
        out.push_str("</Tag>");
    }
    out.push_str("</TagSet></Tagging>");
    out
}

pub(super) fn location(region: &str) -> String {
    let mut out =
        String::from("<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    push(&mut out, "LocationConstraint", region);
    out.push_str("</CreateBucketConfiguration>");
    out
}

fn push(out: &mut String, element: &str, text: &str) {
    out.push_str(&format!("<{element}>{}</{element}>", quick_xml::escape::escape(text)));
}

/// Calls `visit` at the end of every element, with its path (`Root/Child/Leaf`) and its text; returns the root's
/// name. Text around child elements is nobody's.
pub(super) fn read(
    body: &[u8],
    mut visit: impl FnMut(&str, &str) -> Result<(), Failure>,
) -> Result<String, Failure> {
    let document = std::str::from_utf8(body).map_err(|_| Failure::nonsense("XML that is not UTF-8"))?;
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut text, mut root) = (String::new(), String::new(), None);
    loop {
        match reader.read_event().map_err(|error| Failure::nonsense(format!("XML: {error}")))? {
            Event::Start(start) => {
                if !path.is_empty() {
                    path.push('/');
                }
                path.push_str(start.local_name().as_ref());
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece.xml10_content()),
            Event::CData(piece) => text.push_str(&piece.xml10_content()),
            Event::GeneralRef(reference) => text.push_str(&resolve(&reference)?),
            Event::End(_) => {
                visit(&path, &text)?;
                text.clear();
                let parent = path.rfind('/').unwrap_or(0);
                if parent == 0 {
                    root = Some(path.clone());
                }
                path.truncate(parent);
            }
            Event::Eof if path.is_empty() => break,
            Event::Eof => return Err(Failure::nonsense("XML that ends in the middle")),
            _ => {}
        }
    }
    root.ok_or_else(|| Failure::nonsense("an answer without XML"))
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, Failure> {
    let unknown = || Failure::nonsense("XML with an unknown entity");
    match reference.resolve_char_ref() {
        Ok(Some(c)) => Ok(c.to_string()),
        Ok(None) => {
            let name = reference.xml10_content();
            quick_xml::escape::resolve_xml_entity(&name).map(str::to_owned).ok_or_else(unknown)
        }
        Err(_) => Err(unknown()),
    }
}

fn expect_root(actual: &str, expected: &str) -> Result<(), Failure> {
    if actual == expected {
        Ok(())
    } else {
        Err(Failure::nonsense(format!("<{actual}> instead of <{expected}>")))
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    text.trim().parse().map_err(|_| Failure::nonsense(format!("'{text}' instead of a number")))
}

/// An ISO 8601 moment, in whole seconds like the one in headers: what a listing and a HEAD say must be equal.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    let moment: jiff::Timestamp = text.trim().parse().ok()?;
    Some(Timestamp::from_secs(moment.as_second(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_decoded_exactly() {
        let body =
            br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
            <NextContinuationToken>a&amp;b</NextContinuationToken>
            <Contents><Key>a%2F%2Fb+%2B%0A</Key><ETag>&quot;e1&quot;</ETag><Size>5</Size>
              <LastModified>2026-11-21T00:00:01.500Z</LastModified></Contents>
            <Contents><Key>x</Key><ETag>e2</ETag><Size>0</Size></Contents>
            <CommonPrefixes><Prefix>d%C3%BC/</Prefix></CommonPrefixes></ListBucketResult>"#;
        let listing = listing(body).unwrap();
        assert_eq!(listing.objects[0].key, b"a//b +\n");
        assert_eq!(listing.objects[0].etag, "\"e1\"");
        assert_eq!(listing.objects[0].last_modified, Some(Timestamp::from_secs(1_795_219_201, 0)));
        assert_eq!((listing.objects[1].key.as_slice(), listing.objects[1].size_bytes), (b"x".as_slice(), 0));
        assert_eq!(listing.prefixes, ["dü/".as_bytes()]);
        assert_eq!(listing.next.as_deref(), Some("a&b"));
    }

    #[test]
    fn a_server_that_does_not_encode_is_believed() {
        let body =
            b"<ListBucketResult><Contents><Key>a%20+b</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(listing(body).unwrap().objects[0].key, b"a%20+b");
    }

    #[test]
    fn nonsense_is_an_error_not_an_empty_listing() {
        for body in [
            b"".as_slice(),
            b"<html><body>hello</body></html>",
            b"<ListBucketResult><Contents>",
            b"<ListBucketResult><Contents><Size>many</Size></Contents></ListBucketResult>",
            b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            b"\xff\xfe",
        ] {
            assert!(matches!(listing(body).unwrap_err().error, crate::StoreError::Corrupt(_)));
        }
    }

    #[test]
    fn errors_are_found_only_in_error_documents() {
        let body = b"<Error><Code>NoSuchKey</Code><Message>none &lt;here&gt;</Message></Error>";
        let document = error(body).unwrap();
        assert_eq!(
            (document.code.as_deref(), document.message.as_deref()),
            (Some("NoSuchKey"), Some("none <here>"))
        );
        assert_eq!(error(b"<html><Error/></html>"), None);
        assert_eq!(error(b""), None);
    }

    #[test]
    fn what_is_written_is_escaped() {
        let tags: BTreeMap<_, _> = [("a<b".to_owned(), "\"c\" & d".to_owned())].into();
        let body = tagging(&tags);
        assert!(body.contains("a&lt;b") && body.contains("&amp; d"), "{body}");
        assert_eq!(super::tags(body.as_bytes()).unwrap(), tags);
    }

    #[test]
    fn a_completion_gives_its_tag_or_is_nonsense() {
        let body =
            b"<CompleteMultipartUploadResult><ETag>&#34;e-2&#34;</ETag></CompleteMultipartUploadResult>";
        assert_eq!(made(body, "CompleteMultipartUploadResult").unwrap(), "\"e-2\"");
        assert!(made(b"<CompleteMultipartUploadResult/>", "CompleteMultipartUploadResult").is_err());
    }
}
