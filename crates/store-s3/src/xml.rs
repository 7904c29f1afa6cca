//! Parsing and writing of S3's XML documents.

use super::elements::read;
use super::escape;
use super::failure::Failure;
use super::headers::{DEFAULT_CLASS, attributes};
use jiff::civil::DateTime;
use jiff::tz::Offset;
use std::collections::BTreeMap;
use store::{Attributes, ETag, Timestamp};

/// An error document; missing elements are `None`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ErrorDocument {
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
    pub(super) region: Option<String>,
}

/// An object in a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListedObject {
    pub(super) key: Vec<u8>,
    pub(super) etag: Option<ETag>,
    pub(super) size_bytes: u64,
    pub(super) last_modified: Option<Timestamp>,
    /// The attributes, if the server lists them.
    pub(super) attributes: Option<Attributes>,
}

/// A page of ListObjectsV2.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) objects: Vec<ListedObject>,
    pub(super) prefixes: Vec<Vec<u8>>,
    /// The token of the next page; `None` for the last page.
    pub(super) next: Option<String>,
    /// Whether any object has a storage class other than the default.
    pub(super) has_classes: bool,
}

/// A page of buckets, and the token of the next page if there is one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BucketList {
    pub(super) names: Vec<String>,
    pub(super) next: Option<String>,
}

/// Parses an error document; `None` if the body is not one.
pub(super) fn parse_error(body: &[u8]) -> Option<ErrorDocument> {
    let mut document = ErrorDocument::default();
    let read = read(body, |path, text| {
        // Some servers wrap the error in <ErrorResponse>.
        match path {
            ["Error", "Code"] | ["ErrorResponse", "Error", "Code"] => document.code = Some(text.to_owned()),
            ["Error", "Message"] | ["ErrorResponse", "Error", "Message"] => {
                document.message = Some(text.to_owned())
            }
            ["Error", "Region"] | ["ErrorResponse", "Error", "Region"] => {
                document.region = Some(text.to_owned())
            }
            _ => {}
        }
        Ok(())
    });
    read.ok().filter(|root| matches!(root.as_str(), "Error" | "ErrorResponse")).map(|_| document)
}

pub(super) fn parse_listing(body: &[u8]) -> Result<Listing, Failure> {
    let mut listing = Listing::default();
    let mut object = ListedObject::default();
    let mut headers = Vec::new();
    let (mut truncated, mut encoded) = (false, false);
    let root = read(body, |path, text| {
        match path {
            ["ListBucketResult", "Contents", "Key"] => object.key = text.into(),
            ["ListBucketResult", "Contents", "ETag"] => object.etag = Some(ETag::new(text)),
            ["ListBucketResult", "Contents", "Size"] => object.size_bytes = number(text)?,
            ["ListBucketResult", "Contents", "StorageClass"] => {
                listing.has_classes |= !text.is_empty() && text != DEFAULT_CLASS;
            }
            ["ListBucketResult", "Contents", "LastModified"] => object.last_modified = parse_time(text),
            ["ListBucketResult", "Contents", "UserMetadata", name] => {
                headers.push((name.to_ascii_lowercase(), text.to_owned()));
            }
            ["ListBucketResult", "Contents", "UserMetadata"] => {
                let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                object.attributes = Some(attributes(headers));
            }
            ["ListBucketResult", "Contents"] => {
                listing.objects.push(std::mem::take(&mut object));
                headers.clear();
            }
            ["ListBucketResult", "CommonPrefixes", "Prefix"] => listing.prefixes.push(text.into()),
            ["ListBucketResult", "NextContinuationToken"] if !text.is_empty() => {
                listing.next = Some(text.to_owned())
            }
            ["ListBucketResult", "IsTruncated"] => truncated = text == "true",
            ["ListBucketResult", "EncodingType"] => encoded = text == "url",
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
        return Err(Failure::malformed("a truncated listing without the token of its next page"));
    }
    listing.next = listing.next.filter(|_| truncated);
    Ok(listing)
}

fn decode(text: &mut Vec<u8>) {
    if text.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        *text = escape::url_decode(text);
    }
}

/// Parses the response to CreateMultipartUpload and returns the upload's id.
pub(super) fn parse_upload_id(body: &[u8]) -> Result<String, Failure> {
    parse_element(body, "InitiateMultipartUploadResult", "UploadId")
}

/// Parses the response to a copy or completion and returns the etag of the object or part.
pub(super) fn parse_etag(body: &[u8], root: &str) -> Result<String, Failure> {
    parse_element(body, root, "ETag")
}

/// Returns the text of the element `element` of the root.
fn parse_element(body: &[u8], root: &str, element: &str) -> Result<String, Failure> {
    let mut found = None;
    let actual = read(body, |path, text| {
        if path == [root, element] {
            found = Some(text.to_owned());
        }
        Ok(())
    })?;
    expect_root(&actual, root)?;
    found
        .filter(|text| !text.is_empty())
        .ok_or_else(|| Failure::malformed(format!("<{root}> without <{element}>")))
}

pub(super) fn parse_tags(body: &[u8]) -> Result<BTreeMap<String, String>, Failure> {
    let mut tags = BTreeMap::new();
    let (mut name, mut value) = (String::new(), String::new());
    let root = read(body, |path, text| {
        match path {
            ["Tagging", "TagSet", "Tag", "Key"] => name = text.to_owned(),
            ["Tagging", "TagSet", "Tag", "Value"] => value = text.to_owned(),
            ["Tagging", "TagSet", "Tag"] => {
                drop(tags.insert(std::mem::take(&mut name), std::mem::take(&mut value)))
            }
            _ => {}
        }
        Ok(())
    })?;
    expect_root(&root, "Tagging")?;
    Ok(tags)
}

pub(super) fn parse_buckets(body: &[u8]) -> Result<BucketList, Failure> {
    let mut list = BucketList::default();
    let root = read(body, |path, text| {
        match path {
            ["ListAllMyBucketsResult", "Buckets", "Bucket", "Name"] => list.names.push(text.to_owned()),
            ["ListAllMyBucketsResult", "ContinuationToken"] if !text.is_empty() => {
                list.next = Some(text.to_owned())
            }
            _ => {}
        }
        Ok(())
    })?;
    expect_root(&root, "ListAllMyBucketsResult")?;
    Ok(list)
}

/// A part in a completion request.
#[derive(Debug, Clone)]
pub(super) struct CompletedPart {
    pub(super) number: u32,
    pub(super) etag: String,
    pub(super) crc64nvme: Option<String>,
}

pub(super) fn write_completion(parts: &[CompletedPart]) -> String {
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

pub(super) fn write_tagging(tags: &BTreeMap<String, String>) -> String {
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

pub(super) fn write_location(region: &str) -> String {
    let mut out =
        String::from("<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    push(&mut out, "LocationConstraint", region);
    out.push_str("</CreateBucketConfiguration>");
    out
}

fn push(out: &mut String, element: &str, text: &str) {
    out.push_str(&format!("<{element}>{}</{element}>", quick_xml::escape::escape(text)));
}

/// Fails if a document has another root element than expected.
fn expect_root(actual: &str, expected: &str) -> Result<(), Failure> {
    if actual == expected {
        Ok(())
    } else {
        Err(Failure::malformed(format!("<{actual}> instead of <{expected}>")))
    }
}

fn number(text: &str) -> Result<u64, Failure> {
    text.trim().parse().map_err(|_| Failure::malformed(format!("'{text}' instead of a number")))
}

/// Parses an ISO 8601 time, truncated to whole seconds, so that a listing and a HEAD return equal times. `None`: it is
/// none.
pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let moment = parse_usual_time(text.as_bytes()).or_else(|| text.parse().ok())?;
    Some(Timestamp::from_secs(moment.as_second(), 0))
}

/// Parses the usual form of S3's times, `2026-01-02T03:04:05.678Z`; `None` for any other form. The general parser of
/// the library would take a tenth of the time of parsing a listing.
fn parse_usual_time(text: &[u8]) -> Option<jiff::Timestamp> {
    if text.len() != 24 || [4, 7, 10, 13, 16, 19, 23].map(|at| text[at]) != *b"--T::.Z" {
        return None;
    }
    let number = |digits: std::ops::Range<usize>| {
        let digit = |byte: &u8| byte.is_ascii_digit().then(|| i16::from(byte - b'0'));
        text[digits].iter().try_fold(0, |number, byte| Some(10 * number + digit(byte)?))
    };
    let pair = |at: usize| number(at..at + 2).map(|number| number as i8);
    let nanos = i32::from(number(20..23)?) * 1_000_000;
    let moment =
        DateTime::new(number(0..4)?, pair(5)?, pair(8)?, pair(11)?, pair(14)?, pair(17)?, nanos).ok()?;
    Offset::UTC.to_timestamp(moment).ok()
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
        let listing = parse_listing(body).unwrap();
        assert_eq!(listing.objects[0].key, b"a//b +\n");
        assert_eq!(listing.objects[0].etag, Some(ETag::new("e1")));
        assert_eq!(listing.objects[0].last_modified, Some(Timestamp::from_secs(1_795_219_201, 0)));
        assert_eq!((listing.objects[1].key.as_slice(), listing.objects[1].size_bytes), (b"x".as_slice(), 0));
        assert_eq!(listing.prefixes, ["dü/".as_bytes()]);
        assert_eq!(listing.next.as_deref(), Some("a&b"));
    }

    /// MinIO's form; a name of user metadata may contain a quote.
    #[test]
    fn attributes_in_a_listing_are_read() {
        let body = b"<ListBucketResult><Contents><Key>a</Key><Size>1</Size><UserMetadata><content-type>text/x</content-type>\
            <X-Amz-Meta-It's>&lt;1&gt;</X-Amz-Meta-It's><x-amz-storage-class>STANDARD</x-amz-storage-class></UserMetadata></Contents>\
            <Contents><Key>b</Key><Size>2</Size><UserMetadata></UserMetadata></Contents><Contents><Key>c</Key></Contents></ListBucketResult>";
        let listing = parse_listing(body).unwrap();
        let attributes = listing.objects[0].attributes.as_ref().unwrap();
        assert_eq!(attributes.content_type.as_deref(), Some("text/x"));
        assert_eq!((attributes.user["it's"].as_str(), &attributes.storage_class), ("<1>", &None));
        assert_eq!(listing.objects[1].attributes, Some(Attributes::default()));
        assert_eq!(listing.objects[2].attributes, None);
    }

    #[test]
    fn a_listing_without_encoding_is_read_literally() {
        let body =
            b"<ListBucketResult><Contents><Key>a%20+b</Key><Size>1</Size></Contents></ListBucketResult>";
        assert_eq!(parse_listing(body).unwrap().objects[0].key, b"a%20+b");
    }

    #[test]
    fn a_malformed_listing_is_an_error() {
        for body in [
            b"".as_slice(),
            b"<html><body>hello</body></html>",
            b"<ListBucketResult><Contents>",
            b"<ListBucketResult><Contents><Size>many</Size></Contents></ListBucketResult>",
            b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            b"\xff\xfe",
        ] {
            assert!(matches!(parse_listing(body).unwrap_err().error, store::StoreError::Corrupt(_)));
        }
    }

    #[test]
    fn errors_are_found_only_in_error_documents() {
        let body = b"<Error><Code>NoSuchKey</Code><Message>none &lt;here&gt;</Message></Error>";
        let document = parse_error(body).unwrap();
        assert_eq!(
            (document.code.as_deref(), document.message.as_deref()),
            (Some("NoSuchKey"), Some("none <here>"))
        );
        assert_eq!(parse_error(b"<html><Error/></html>"), None);
        assert_eq!(parse_error(b""), None);
    }

    #[test]
    fn written_texts_are_escaped() {
        let tags: BTreeMap<_, _> = [("a<b".to_owned(), "\"c\" & d".to_owned())].into();
        let body = write_tagging(&tags);
        assert!(body.contains("a&lt;b") && body.contains("&amp; d"), "{body}");
        assert_eq!(super::parse_tags(body.as_bytes()).unwrap(), tags);
    }

    #[test]
    fn a_completion_without_an_etag_is_malformed() {
        let body =
            b"<CompleteMultipartUploadResult><ETag>&#34;e-2&#34;</ETag></CompleteMultipartUploadResult>";
        assert_eq!(parse_etag(body, "CompleteMultipartUploadResult").unwrap(), "\"e-2\"");
        assert!(parse_etag(b"<CompleteMultipartUploadResult/>", "CompleteMultipartUploadResult").is_err());
    }

    #[test]
    fn a_listing_without_etags_is_read() {
        let body = b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>";
        assert_eq!(parse_listing(body).unwrap().objects[0].etag, None);
    }

    proptest::proptest! {
        /// Times that look like the usual form are parsed like the library parses them.
        #[test]
        fn moments_are_read_as_a_library_reads_them(
            text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]\\.[0-9]{3}Z",
            at in 0..24_usize,
            other in "[0-9:.+ TZtz-]",
        ) {
            let by_library = |text: &str| {
                let moment: jiff::Timestamp = text.trim().parse().ok()?;
                Some(Timestamp::from_secs(moment.as_second(), 0))
            };
            let mut changed = text.clone();
            changed.replace_range(at..at + 1, &other);
            for text in [text, changed] {
                proptest::prop_assert_eq!(parse_time(&text), by_library(&text), "{}", text);
            }
        }
    }
}
