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
