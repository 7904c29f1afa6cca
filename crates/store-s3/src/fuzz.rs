//! Fuzz targets: input that the S3 client gets from servers, files and programs.

use super::config::Endpoint;
use super::credentials;
use super::{escape, headers, xml};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use store::ObjectKey;

/// Parses documents of servers, and checks that the result is not larger than the document.
pub fn answers(body: &[u8]) {
    if let Some(error) = xml::parse_error(body) {
        let all = [error.code, error.message, error.region].into_iter().flatten();
        assert!(all.map(|text| text.len()).sum::<usize>() <= body.len());
    }
    if let Ok(listing) = xml::parse_listing(body) {
        let keys = listing.objects.iter().map(|object| &object.key).chain(&listing.prefixes);
        assert!(keys.map(Vec::len).sum::<usize>() <= body.len());
    }
    if let Ok(tags) = xml::parse_tags(body) {
        let is_xml = |text: &String| text.chars().all(|c| c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}');
        if tags.iter().all(|(name, value)| is_xml(name) && is_xml(value)) {
            assert_eq!(xml::parse_tags(xml::write_tagging(&tags).as_bytes()).ok().as_ref(), Some(&tags));
        }
    }
    drop((xml::parse_buckets(body), xml::parse_upload_id(body), xml::parse_etag(body, "CopyObjectResult")));
    credentials::fuzz_documents(body);
}

/// Parses headers of servers, one per line, and checks that encoded metadata and queries survive decoding.
pub fn headers(bytes: &[u8]) {
    let mut all = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let at = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(at + 1..).unwrap_or_default().trim_ascii();
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..at]), HeaderValue::from_bytes(value)) {
            all.append(name, value);
        }
        escape::metadata_text(line);
    }
    if let Ok(key) = ObjectKey::new(b"key".as_slice()) {
        drop(headers::object_meta(&key, &all));
    }
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(escape::metadata_text(escape::metadata_value(&text).as_bytes()), text);
    assert_eq!(escape::url_decode(escape::query(&text).as_bytes()), text.as_bytes());
    assert!(escape::url_decode(bytes).len() <= bytes.len());
}

/// Parses files of the AWS tools, output of credential programs and agents, and URLs.
pub fn credentials(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    credentials::fuzz_files(&text);
    credentials::fuzz_documents(bytes);
    if let Ok(endpoint) = Endpoint::parse(text.trim()) {
        let again = Endpoint::parse(&endpoint.to_string()).map(|again| again.to_string());
        assert_eq!(again.ok(), Some(endpoint.to_string()));
    }
}
