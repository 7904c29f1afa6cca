//! Checksums that the protocol layer does not know.

use super::raw::send;
use super::world::{KEY, World};

/// Of `abc`, by the reference implementations.
const KNOWN: [(&str, &str); 2] = [
    ("sha512", "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="),
    ("md5", "kAFQmDzST7DWlj99KOF/cg=="),
];

#[tokio::test]
async fn they_are_checked_kept_and_shown() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, right) in KNOWN {
        let header = format!("x-amz-checksum-{name}");
        let path = format!("/bucket/{name}");
        let wrong = [(header.as_str(), right)];
        send(&world, Some(KEY), ("PUT", &path, ""), &wrong, "abd").await.is_error(400, "BadDigest");
        let put = send(&world, Some(KEY), ("PUT", &path, ""), &wrong, "abc").await.is(200);
        assert_eq!(put.header(&header), Some(right));
        let mode = [("x-amz-checksum-mode", "ENABLED")];
        let got = send(&world, Some(KEY), ("GET", &path, ""), &mode, "").await.is(200);
        assert_eq!(got.header(&header), Some(right));
    }
}

#[tokio::test]
async fn those_of_the_xxhash_family_are_computed() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (name, digest_len) in [("xxhash64", 12), ("xxhash3", 12), ("xxhash128", 24)] {
        let header = format!("x-amz-checksum-{name}");
        let upper = name.to_ascii_uppercase();
        let named = [("x-amz-sdk-checksum-algorithm", upper.as_str())];
        let path = format!("/bucket/{name}");
        let put = send(&world, Some(KEY), ("PUT", &path, ""), &named, "abc").await.is(200);
        let value = put.header(&header).unwrap().to_owned();
        assert_eq!(value.len(), digest_len, "{name}");
        let given = [(header.as_str(), value.as_str())];
        send(&world, Some(KEY), ("PUT", &path, ""), &given, "abc").await.is(200);
        send(&world, Some(KEY), ("PUT", &path, ""), &given, "abd").await.is_error(400, "BadDigest");
    }
}
