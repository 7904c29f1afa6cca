//! Details of listings that clients rely on.

use super::raw::{Answer, send};
use super::test_server::{KEY, TestServer};

async fn start(keys: &[&str]) -> TestServer {
    let server = TestServer::start().await;
    for bucket in ["/bucket", "/second"] {
        send(&server, Some(KEY), ("PUT", bucket, ""), &[], "").await.is(200);
        for key in keys {
            send(&server, Some(KEY), ("PUT", &format!("{bucket}/{key}"), ""), &[], "x").await.is(200);
        }
    }
    server
}

async fn list(server: &TestServer, query: &str) -> Answer {
    send(server, Some(KEY), ("GET", "/bucket", query), &[], "").await
}

/// boto3 programs that read `response["Prefix"]` failed with a KeyError.
#[tokio::test]
async fn empty_elements_are_in_the_answer() {
    let server = start(&["a"]).await;
    let first = list(&server, "").await.is(200);
    assert_eq!((first.element("Prefix"), first.element("Marker")), (Some(""), Some("")), "{}", first.body);
    let second = list(&server, "list-type=2").await.is(200);
    assert_eq!(second.element("Prefix"), Some(""), "{}", second.body);
    let given = list(&server, "list-type=2&prefix=a").await.is(200);
    assert_eq!(given.element("Prefix"), Some("a"));
}

#[tokio::test]
async fn s578_attributes_are_listed_to_callers_who_may_read_every_object() {
    let server = start(&[]).await;
    let headers = [("content-type", "text/x"), ("x-amz-meta-owner", "<7>"), ("cache-control", "no-store")];
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &headers, "x").await.is(200);
    let answer = list(&server, "list-type=2&metadata=true").await.is(200);
    let expected = "<Size>1</Size><UserMetadata><content-type>text/x</content-type><cache-control>no-store</cache-control>\
                    <x-amz-meta-owner>&lt;7&gt;</x-amz-meta-owner></UserMetadata>";
    assert!(answer.body.contains(expected), "{}", answer.body);
    for query in ["list-type=2", "list-type=2&metadata=false"] {
        assert!(!list(&server, query).await.is(200).body.contains("UserMetadata"), "{query}");
    }
    // A policy may treat keys differently.
    let policy = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":"arn:aws:s3:::bucket"}]}"#;
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], policy).await.is(204);
    for key in [Some(KEY), None] {
        let answer =
            send(&server, key, ("GET", "/bucket", "list-type=2&metadata=true"), &[], "").await.is(200);
        assert!(
            answer.element("Key") == Some("a") && !answer.body.contains("UserMetadata"),
            "{}",
            answer.body
        );
    }
}

/// An upload id marker belongs to the key marker; the id of another key's upload was taken for one of an ended upload.
#[tokio::test]
async fn an_upload_id_marker_of_another_key_is_refused() {
    let server = start(&[]).await;
    let mut ids = Vec::new();
    for key in ["a", "b", "b"] {
        let begun = send(&server, Some(KEY), ("POST", &format!("/bucket/{key}"), "uploads"), &[], "").await;
        ids.push(begun.is(200).element("UploadId").unwrap().to_owned());
    }
    let after = async |id: &str| list(&server, &format!("uploads&key-marker=b&upload-id-marker={id}")).await;
    after(&ids[0]).await.errs(400, "InvalidArgument");
    after("no-id").await.errs(400, "InvalidArgument");
    assert_eq!(after(&"0".repeat(32)).await.is(200).body.matches("<Upload>").count(), 2);
    let listed = [after(&ids[1]).await.is(200), after(&ids[2]).await.is(200)];
    let counts = listed.map(|answer| answer.body.matches("<Upload>").count());
    assert_eq!(
        counts.iter().sum::<usize>(),
        1,
        "the upload that is listed second follows the other: {counts:?}"
    );
}

/// Any base64 was accepted as a token, and the listing began at an arbitrary key: a client that mixed up tokens saw an
/// empty bucket.
#[tokio::test]
async fn s464_a_continuation_token_that_was_never_given_is_refused() {
    let server = start(&["a", "b", "c"]).await;
    let first = list(&server, "list-type=2&max-keys=1").await.is(200);
    let token = first.element("NextContinuationToken").unwrap().to_owned();
    let second = list(&server, &format!("list-type=2&continuation-token={token}&max-keys=1")).await.is(200);
    assert_eq!(second.element("Key"), Some("b"));
    let cut = &token[..token.len() - 1];
    for odd in ["junk", "AAAA", "AAAAAAAA", "a", "", cut, &format!("{token}AA")] {
        let answer = list(&server, &format!("list-type=2&continuation-token={odd}")).await;
        answer.errs(400, "InvalidArgument");
    }
    let what = format!("list-type=2&continuation-token={token}");
    let other = send(&server, Some(KEY), ("GET", "/second", &what), &[], "").await;
    other.errs(400, "InvalidArgument");
}

/// A common prefix was missing from a listing that began within it.
#[tokio::test]
async fn a_prefix_is_shown_if_a_key_in_it_lies_after_the_start() {
    let server = start(&["p/a", "p/z", "q"]).await;
    for (query, prefixes, keys) in [
        ("start-after=p%2Fm&delimiter=%2F", 1, 1),
        ("start-after=p%2Fm&delimiter=p%2F", 1, 1),
        ("start-after=p%2Fz&delimiter=%2F", 0, 1),
        ("start-after=p%2F&delimiter=%2F", 0, 1),
        ("start-after=p%2Fm", 0, 2),
        ("start-after=p%2Fm&delimiter=%2F&prefix=p%2F", 0, 1),
    ] {
        let answer = list(&server, &format!("list-type=2&{query}")).await.is(200);
        let found = ["<CommonPrefixes>", "<Contents>"].map(|element| answer.body.matches(element).count());
        assert_eq!(found, [prefixes, keys], "{query}: {}", answer.body);
    }
    let first = list(&server, "list-type=2&start-after=p%2Fm&delimiter=%2F&max-keys=1").await.is(200);
    assert_eq!((first.element("KeyCount"), first.element("IsTruncated")), (Some("1"), Some("true")));
    let token = first.element("NextContinuationToken").unwrap();
    let rest = list(&server, &format!("list-type=2&delimiter=%2F&continuation-token={token}")).await.is(200);
    assert_eq!((rest.element("Key"), rest.element("KeyCount")), (Some("q"), Some("1")), "{}", rest.body);
}

/// boto3 and the AWS CLI send all attributes in one header.
#[tokio::test]
async fn attributes_come_in_one_header_or_several() {
    let server = start(&["a"]).await;
    for attributes in ["ETag,Checksum,ObjectParts,StorageClass,ObjectSize", "ETag , ObjectSize,StorageClass"]
    {
        let asked = [("x-amz-object-attributes", attributes)];
        let answer = send(&server, Some(KEY), ("GET", "/bucket/a", "attributes"), &asked, "").await.is(200);
        assert_eq!(answer.element("ObjectSize"), Some("1"), "{}", answer.body);
        assert!(answer.element("ETag").is_some() && answer.element("StorageClass").is_some());
    }
    let odd = [("x-amz-object-attributes", "ETag,Colour")];
    send(&server, Some(KEY), ("GET", "/bucket/a", "attributes"), &odd, "").await.errs(400, "InvalidArgument");
    let none = [("x-amz-object-attributes", ",")];
    send(&server, Some(KEY), ("GET", "/bucket/a", "attributes"), &none, "").await.errs(400, "InvalidRequest");
}
