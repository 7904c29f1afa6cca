//! Checksums that the protocol layer does not know.

use super::raw::send;
use super::world::{KEY, World};

/// Of `abc`, by the reference implementations.
const KNOWN: [(&str, &str); 5] = [
    ("sha512", "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="),
    ("md5", "kAFQmDzST7DWlj99KOF/cg=="),
    ("xxhash64", "RLws9a13CZk="),
    ("xxhash3", "eK9flIkvOVA="),
    ("xxhash128", "BrBatnM6YYV4r1+UiS85UA=="),
];

#[tokio::test]
async fn they_are_checked_kept_and_shown() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, right) in KNOWN {
        let header = format!("x-amz-checksum-{name}");
        let path = format!("/bucket/{name}");
        let wrong = [(header.as_str(), right)];
        send(&world, Some(KEY), ("PUT", &path, ""), &wrong, "abd").await.errs(400, "BadDigest");
        let put = send(&world, Some(KEY), ("PUT", &path, ""), &wrong, "abc").await.is(200);
        assert_eq!(put.header(&header), Some(right));
        let mode = [("x-amz-checksum-mode", "ENABLED")];
        let got = send(&world, Some(KEY), ("GET", &path, ""), &mode, "").await.is(200);
        assert_eq!(got.header(&header), Some(right));
    }
}

#[tokio::test]
async fn uploads_in_parts_have_them_too() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, right) in KNOWN {
        let upper = name.to_ascii_uppercase();
        let path = format!("/bucket/parts-{name}");
        let begin = [("x-amz-checksum-algorithm", upper.as_str()), ("x-amz-checksum-type", "COMPOSITE")];
        let begun = send(&world, Some(KEY), ("POST", &path, "uploads"), &begin, "").await.is(200);
        let id = begun.element("UploadId").unwrap().to_owned();
        let header = format!("x-amz-checksum-{name}");
        let part = format!("partNumber=1&uploadId={id}");
        let put = send(&world, Some(KEY), ("PUT", &path, &part), &[(&header, right)], "abc").await.is(200);
        let etag = put.header("etag").unwrap().to_owned();
        let upload = format!("uploadId={id}");
        let element = format!("Checksum{upper}");
        let listed = send(&world, Some(KEY), ("GET", &path, &upload), &[], "").await.is(200);
        assert_eq!(listed.element(&element), Some(right), "{}", listed.body);
        let complete = |checksum: &str| {
            format!(
                "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag><{element}>{checksum}</{element}></Part></CompleteMultipartUpload>"
            )
        };
        let wrong = complete(&right.replacen(&right[..1], "A", 1));
        send(&world, Some(KEY), ("POST", &path, &upload), &[], &wrong).await.errs(400, "InvalidPart");
        let whole = [(header.as_str(), right)];
        let answer = send(&world, Some(KEY), ("POST", &path, &upload), &whole, &complete(right)).await;
        answer.errs(400, "BadDigest");
        let done = send(&world, Some(KEY), ("POST", &path, &upload), &[], &complete(right)).await.is(200);
        let composite = done.element(&element).unwrap().to_owned();
        assert!(composite.ends_with("-1"), "{composite}");
        let asked = [("x-amz-object-attributes", "Checksum")];
        let shown = send(&world, Some(KEY), ("GET", &path, "attributes"), &asked, "").await.is(200);
        assert_eq!(shown.element(&element), Some(composite.as_str()), "{}", shown.body);
        let source = [("x-amz-copy-source", path.as_str())];
        let copy = send(&world, Some(KEY), ("PUT", "/bucket/copy", ""), &source, "").await.is(200);
        assert_eq!(copy.element(&element), Some(composite.as_str()), "{}", copy.body);
    }
}

/// The bug: parts had the checksum that clients send by default, and the whole had none, so that a wrong one passed.
#[tokio::test]
async fn s191_a_whole_has_a_checksum_whatever_its_parts_have() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let begun = send(&world, Some(KEY), ("POST", "/bucket/a", "uploads"), &[], "").await.is(200);
    let upload = format!("uploadId={}", begun.element("UploadId").unwrap());
    let part = format!("partNumber=1&{upload}");
    let crc = [("x-amz-checksum-crc32", "NSRBwg==")];
    let put = send(&world, Some(KEY), ("PUT", "/bucket/a", &part), &crc, "abc").await.is(200);
    let etag = put.header("etag").unwrap();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag><ChecksumCRC32>NSRBwg==</ChecksumCRC32></Part></CompleteMultipartUpload>"
    );
    let wrong = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")];
    send(&world, Some(KEY), ("POST", "/bucket/a", &upload), &wrong, &list).await.errs(400, "BadDigest");
    send(&world, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
    let done = send(&world, Some(KEY), ("POST", "/bucket/a", &upload), &[], &list).await.is(200);
    assert!(done.element("ChecksumCRC64NVME").is_some(), "{}", done.body);
}

/// The bug: the checksum of the whole was shown with one part of it, and the client took the part for damaged.
#[tokio::test]
async fn a_part_is_not_shown_with_the_checksum_of_the_whole() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let begun = send(&world, Some(KEY), ("POST", "/bucket/a", "uploads"), &[], "").await.is(200);
    let upload = format!("uploadId={}", begun.element("UploadId").unwrap());
    let mut list = String::new();
    for (number, body) in [(1, "a".repeat(5 << 20)), (2, "b".to_owned())] {
        let part = format!("partNumber={number}&{upload}");
        let put = send(&world, Some(KEY), ("PUT", "/bucket/a", &part), &[], &body).await.is(200);
        let etag = put.header("etag").unwrap();
        list.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
    }
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    send(&world, Some(KEY), ("POST", "/bucket/a", &upload), &[], &list).await.is(200);
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    for (query, is_shown) in [("", true), ("partNumber=1", false), ("partNumber=2", false)] {
        for method in ["HEAD", "GET"] {
            let answer = send(&world, Some(KEY), (method, "/bucket/a", query), &mode, "").await;
            let shown = answer.header("x-amz-checksum-crc64nvme");
            assert_eq!(shown.is_some(), is_shown, "{method} {query}: {}", answer.head);
        }
    }
}
