//! Checksums of the algorithms that `s3s` does not know, and checksums of multipart uploads.

use base64::Engine as _;

use super::raw::{send, sha256};
use super::test_server::{KEY, TestServer};

/// Checksums of `abc`, computed by the reference implementations.
const KNOWN: [(&str, &str); 5] = [
    ("sha512", "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="),
    ("md5", "kAFQmDzST7DWlj99KOF/cg=="),
    ("xxhash64", "RLws9a13CZk="),
    ("xxhash3", "eK9flIkvOVA="),
    ("xxhash128", "BrBatnM6YYV4r1+UiS85UA=="),
];

#[tokio::test]
async fn checksums_unknown_to_s3s_are_checked_kept_and_shown() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, right) in KNOWN {
        let header = format!("x-amz-checksum-{name}");
        let path = format!("/bucket/{name}");
        let wrong = [(header.as_str(), right)];
        send(&server, Some(KEY), ("PUT", &path, ""), &wrong, "abd").await.errs(400, "BadDigest");
        let put = send(&server, Some(KEY), ("PUT", &path, ""), &wrong, "abc").await.is(200);
        assert_eq!(put.header(&header), Some(right));
        let mode = [("x-amz-checksum-mode", "ENABLED")];
        let got = send(&server, Some(KEY), ("GET", &path, ""), &mode, "").await.is(200);
        assert_eq!(got.header(&header), Some(right));
    }
}

#[tokio::test]
async fn multipart_uploads_have_checksums_unknown_to_s3s() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, right) in KNOWN {
        let upper = name.to_ascii_uppercase();
        let path = format!("/bucket/parts-{name}");
        let begin = [("x-amz-checksum-algorithm", upper.as_str()), ("x-amz-checksum-type", "COMPOSITE")];
        let begun = send(&server, Some(KEY), ("POST", &path, "uploads"), &begin, "").await.is(200);
        let id = begun.element("UploadId").unwrap().to_owned();
        let header = format!("x-amz-checksum-{name}");
        let part = format!("partNumber=1&uploadId={id}");
        let put = send(&server, Some(KEY), ("PUT", &path, &part), &[(&header, right)], "abc").await.is(200);
        let etag = put.header("etag").unwrap().to_owned();
        let upload = format!("uploadId={id}");
        let element = format!("Checksum{upper}");
        let listed = send(&server, Some(KEY), ("GET", &path, &upload), &[], "").await.is(200);
        assert_eq!(listed.element(&element), Some(right), "{}", listed.body);
        let complete = |checksum: &str| {
            format!(
                "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag><{element}>{checksum}</{element}></Part></CompleteMultipartUpload>"
            )
        };
        let wrong = complete(&right.replacen(&right[..1], "A", 1));
        send(&server, Some(KEY), ("POST", &path, &upload), &[], &wrong).await.errs(400, "InvalidPart");
        let whole = [(header.as_str(), right)];
        let answer = send(&server, Some(KEY), ("POST", &path, &upload), &whole, &complete(right)).await;
        answer.errs(400, "BadDigest");
        let done = send(&server, Some(KEY), ("POST", &path, &upload), &[], &complete(right)).await.is(200);
        let composite = done.element(&element).unwrap().to_owned();
        assert!(composite.ends_with("-1"), "{composite}");
        let asked = [("x-amz-object-attributes", "Checksum")];
        let shown = send(&server, Some(KEY), ("GET", &path, "attributes"), &asked, "").await.is(200);
        assert_eq!(shown.element(&element), Some(composite.as_str()), "{}", shown.body);
        let source = [("x-amz-copy-source", path.as_str())];
        let copy = send(&server, Some(KEY), ("PUT", "/bucket/copy", ""), &source, "").await.is(200);
        assert_eq!(copy.element(&element), Some(composite.as_str()), "{}", copy.body);
    }
}

/// Parts had the checksum that clients send by default, and the whole object had none, so that a wrong one passed.
#[tokio::test]
async fn s191_a_multipart_object_always_has_a_checksum() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let begun = send(&server, Some(KEY), ("POST", "/bucket/a", "uploads"), &[], "").await.is(200);
    let upload = format!("uploadId={}", begun.element("UploadId").unwrap());
    let part = format!("partNumber=1&{upload}");
    let crc = [("x-amz-checksum-crc32", "NSRBwg==")];
    let put = send(&server, Some(KEY), ("PUT", "/bucket/a", &part), &crc, "abc").await.is(200);
    let etag = put.header("etag").unwrap();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag><ChecksumCRC32>NSRBwg==</ChecksumCRC32></Part></CompleteMultipartUpload>"
    );
    let wrong = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")];
    send(&server, Some(KEY), ("POST", "/bucket/a", &upload), &wrong, &list).await.errs(400, "BadDigest");
    send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
    let done = send(&server, Some(KEY), ("POST", "/bucket/a", &upload), &[], &list).await.is(200);
    assert!(done.element("ChecksumCRC64NVME").is_some(), "{}", done.body);
}

fn base64_of_hex(digits: &str) -> String {
    let bytes = (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap());
    base64::engine::general_purpose::STANDARD.encode(bytes.collect::<Vec<u8>>())
}

/// Uploads an object in two parts. Returns their checksums.
async fn upload_two_parts(
    server: &TestServer,
    path: &str,
    headers: &[(&str, &str)],
    checksum: &str,
) -> [String; 2] {
    let begun = send(server, Some(KEY), ("POST", path, "uploads"), headers, "").await.is(200);
    let upload = format!("uploadId={}", begun.element("UploadId").unwrap());
    let (mut list, mut sums) = (String::new(), Vec::new());
    let (header, element) = (format!("x-amz-checksum-{checksum}"), checksum.to_ascii_uppercase());
    for (number, body) in [(1, "a".repeat(5 << 20)), (2, "b".to_owned())] {
        let part = format!("partNumber={number}&{upload}");
        let declared = base64_of_hex(&sha256(&body));
        let declared: &[(&str, &str)] =
            if checksum == "sha256" { &[("x-amz-checksum-sha256", &declared)] } else { &[] };
        let put = send(server, Some(KEY), ("PUT", path, &part), declared, &body).await.is(200);
        let (etag, sum) = (put.header("etag").unwrap(), put.header(&header).unwrap());
        list.push_str(&format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag><Checksum{element}>{sum}</Checksum{element}></Part>"
        ));
        sums.push(sum.to_owned());
    }
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    send(server, Some(KEY), ("POST", path, &upload), &[], &list).await.is(200);
    sums.try_into().unwrap()
}

/// A part was shown with the checksum of the whole object, so that clients took the part for damaged. Later, parts were
/// shown without checksums, also in `GetObjectAttributes`.
#[tokio::test]
async fn s553_a_part_is_shown_with_its_own_checksum() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    // This much user metadata leaves no room for the parts' checksums.
    let long = "x".repeat(1_500);
    let composite = [("x-amz-checksum-algorithm", "SHA256"), ("x-amz-checksum-type", "COMPOSITE")];
    let full: &[(&str, &str)] = &[("x-amz-meta-long", long.as_str())];
    let kinds = [
        ("sha256", &composite[..], "COMPOSITE"),
        ("crc64nvme", &[], "FULL_OBJECT"),
        ("crc64nvme", full, "FULL_OBJECT"),
    ];
    for (at, (checksum, headers, kind)) in kinds.into_iter().enumerate() {
        let path = format!("/bucket/{at}");
        let sums = upload_two_parts(&server, &path, headers, checksum).await;
        let mode = [("x-amz-checksum-mode", "ENABLED")];
        let header = format!("x-amz-checksum-{checksum}");
        for method in ["HEAD", "GET"] {
            for (number, sum) in [(1, &sums[0]), (2, &sums[1])] {
                let query = format!("partNumber={number}");
                let answer = send(&server, Some(KEY), (method, &path, &query), &mode, "").await.is(206);
                assert_eq!(answer.header(&header), Some(sum.as_str()), "{method} {query}: {}", answer.head);
                assert_eq!(answer.header("x-amz-checksum-type"), Some(kind), "{}", answer.head);
                let silent = send(&server, Some(KEY), (method, &path, &query), &[], "").await.is(206);
                assert_eq!(silent.header(&header), None);
            }
            let whole = send(&server, Some(KEY), (method, &path, ""), &mode, "").await.is(200);
            let shown = whole.header(&header).unwrap();
            assert_eq!(shown.ends_with("-2"), kind == "COMPOSITE", "{shown}");
            let range = [mode[0], ("range", "bytes=0-9")];
            assert_eq!(send(&server, Some(KEY), (method, &path, ""), &range, "").await.header(&header), None);
        }
        let asked = [("x-amz-object-attributes", "ObjectParts")];
        let shown = send(&server, Some(KEY), ("GET", &path, "attributes"), &asked, "").await.is(200);
        for sum in &sums {
            let element = checksum.to_ascii_uppercase();
            let element = format!("<Checksum{element}>{sum}</Checksum{element}>");
            assert_eq!(shown.body.contains(&element), headers != full, "{}", shown.body);
        }
        let source = [("x-amz-copy-source", path.as_str())];
        send(&server, Some(KEY), ("PUT", "/bucket/copy", ""), &source, "").await.is(200);
        let copy =
            send(&server, Some(KEY), ("HEAD", "/bucket/copy", "partNumber=2"), &mode, "").await.is(206);
        assert_eq!(copy.header(&header), Some(sums[1].as_str()), "{}", copy.head);
        assert!(!copy.head.contains("tenon-part"), "{}", copy.head);
    }
}
