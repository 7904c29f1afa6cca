//! POST Object: what a form may do, and how it is answered.

use super::raw::{Answer, now, scope, send, signature};
use super::test_server::{KEY, SECRET, TestServer};
use base64::Engine as _;
use std::fmt::Write as _;

const TYPE: [(&str, &str); 1] = [("content-type", "multipart/form-data; boundary=\"frontier\"")];

async fn start() -> TestServer {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    server
}

fn form(fields: &[(&str, &str)], file: &str) -> String {
    let part = |(name, value): &(&str, &str)| {
        format!("--frontier\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = fields.iter().map(part).collect();
    format!(
        "{fields}--frontier\r\nContent-Disposition: form-data; name=\"file\"; filename=\"me.txt\"\r\nContent-Type: text/html\r\n\r\n{file}\r\n--frontier--\r\n"
    )
}

/// Posts a form with a policy of the given conditions.
async fn post(server: &TestServer, conditions: &str, fields: &[(&str, &str)], file: &str) -> Answer {
    post_until(server, "2099-01-01T00:00:00Z", conditions, fields, file).await
}

/// Like [`post`], with the time at which the policy expires.
async fn post_until(
    server: &TestServer,
    expiration: &str,
    conditions: &str,
    fields: &[(&str, &str)],
    file: &str,
) -> Answer {
    let time = now();
    let credential = format!("{KEY}/{}", scope(&time));
    let policy = format!(
        r#"{{"expiration":"{expiration}","conditions":[{{"x-amz-algorithm":"AWS4-HMAC-SHA256"}},{{"x-amz-credential":"{credential}"}},{{"x-amz-date":"{time}"}},{{"bucket":"bucket"}}{conditions}]}}"#
    );
    let policy = base64::engine::general_purpose::STANDARD.encode(policy);
    let signature = signature(SECRET, &time, &policy);
    let mut all = vec![
        ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
        ("x-amz-credential", &credential),
        ("x-amz-date", &time),
        ("policy", &policy),
        ("x-amz-signature", &signature),
    ];
    // A field given by the caller replaces the right one.
    all.retain(|(name, _)| fields.iter().all(|(given, _)| given != name));
    all.extend(fields);
    send(server, None, ("POST", "/bucket", ""), &TYPE, &form(&all, file)).await
}

const ANY_KEY: &str = r#",["starts-with","$key",""]"#;

#[tokio::test]
async fn a_form_makes_an_object() {
    let server = start().await;
    let conditions = format!(
        r#"{ANY_KEY},["eq","$Content-Type","text/plain"],["starts-with","$x-amz-meta-who",""],["starts-with","$tagging",""],{{"x-amz-checksum-crc32":"Nu3PGg=="}}"#
    );
    let tagging = "<Tagging><TagSet><Tag><Key>k</Key><Value>a b</Value></Tag></TagSet></Tagging>";
    let fields = [
        ("key", "to/${filename}"),
        ("Content-Type", "text/plain"),
        ("x-amz-meta-who", "me"),
        ("tagging", tagging),
        ("x-amz-checksum-crc32", "AAAAAA=="),
        ("x-ignore-this", "1"),
    ];
    let wrong = conditions.replace("Nu3PGg==", "AAAAAA==");
    post(&server, &wrong, &fields, "one\r\n--two").await.errs(400, "BadDigest");
    send(&server, Some(KEY), ("HEAD", "/bucket/to/me.txt", ""), &[], "").await.is(404);
    let fields: Vec<_> = fields.into_iter().filter(|(name, _)| !name.contains("crc32")).collect();
    let conditions = conditions.replace(r#",{"x-amz-checksum-crc32":"Nu3PGg=="}"#, "");
    let put = post(&server, &conditions, &fields, "one\r\n--two").await.is(204);
    assert!(put.header("etag").is_some() && put.header("location").unwrap().ends_with("/bucket/to/me.txt"));
    let got = send(&server, Some(KEY), ("GET", "/bucket/to/me.txt", ""), &[], "").await.is(200);
    assert_eq!(got.body, "one\r\n--two");
    let headers = ["content-type", "x-amz-meta-who", "x-amz-tagging-count"];
    assert_eq!(headers.map(|name| got.header(name)), [Some("text/plain"), Some("me"), Some("1")]);
    let tags = send(&server, Some(KEY), ("GET", "/bucket/to/me.txt", "tagging"), &[], "").await;
    assert_eq!(tags.element("Value"), Some("a b"));
}

#[tokio::test]
async fn a_form_chooses_its_response() {
    let server = start().await;
    let status = format!(r#"{ANY_KEY},["starts-with","$success_action_status",""]"#);
    for (asked, answered) in [("200", 200), ("201", 201), ("404", 204)] {
        let fields = [("key", "a b"), ("success_action_status", asked)];
        let answer = post(&server, &status, &fields, "x").await.is(answered);
        if answered == 201 {
            assert_eq!((answer.element("Bucket"), answer.element("Key")), (Some("bucket"), Some("a b")));
            assert!(answer.element("Location").unwrap().ends_with("/bucket/a%20b"), "{}", answer.body);
        }
    }
    let redirect = format!(r#"{ANY_KEY},["starts-with","$success_action_redirect","http://here/"]"#);
    let fields = [("key", "a"), ("success_action_redirect", "http://here/done?x=1")];
    let answer = post(&server, &redirect, &fields, "x").await.is(303);
    let target = answer.header("location").unwrap();
    assert!(target.starts_with("http://here/done?x=1&bucket=bucket&key=a&etag=%22"), "{target}");
}

#[tokio::test]
async fn a_form_does_what_its_policy_allows_and_no_more() {
    let server = start().await;
    let key = ("key", "a");
    let other = format!("{KEY}/20200101/us-east-1/s3/aws4_request");
    type Fields<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Fields<'_>, u16, &str); 13] = [
        (r#",{"key":"b"}"#, &[key], 403, "AccessDenied"),
        (r#",["starts-with","$key","b"]"#, &[key], 403, "AccessDenied"),
        ("", &[key], 403, "AccessDenied"),
        (ANY_KEY, &[key, ("acl", "public-read")], 403, "AccessDenied"),
        (ANY_KEY, &[key, ("x-amz-copy-source", "bucket/b")], 403, "AccessDenied"),
        (
            r#",["starts-with","$key",""],{"x-amz-copy-source":"b/b"}"#,
            &[key, ("x-amz-copy-source", "b/b")],
            501,
            "NotImplemented",
        ),
        (r#",["starts-with","$key",""],["content-length-range",5,9]"#, &[key], 400, "EntityTooSmall"),
        (r#",["starts-with","$key",""],["content-length-range",0,2]"#, &[key], 400, "EntityTooLarge"),
        (r#",["like","$key",""]"#, &[key], 400, "InvalidPolicyDocument"),
        (ANY_KEY, &[key, ("x-amz-signature", "0")], 403, "SignatureDoesNotMatch"),
        (ANY_KEY, &[key, ("x-amz-credential", &other)], 400, "InvalidArgument"),
        (ANY_KEY, &[key, ("policy", "e30=")], 403, "SignatureDoesNotMatch"),
        ("", &[], 400, "InvalidArgument"),
    ];
    for (conditions, fields, status, code) in cases {
        let answer = post(&server, conditions, fields, "xyz").await;
        assert_eq!(
            (answer.status, answer.element("Code")),
            (status, Some(code)),
            "{conditions} {fields:?}: {}",
            answer.body
        );
        send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
    }
}

/// `2030-01-01 00:00:00.5+00:00` was accepted, although AWS takes ISO 8601 in UTC only.
#[tokio::test]
async fn a_policy_expires_at_a_time_in_iso_8601_and_utc() {
    let server = start().await;
    let ask = async |expiration: &str| {
        let answer = post_until(&server, expiration, ANY_KEY, &[("key", "a")], "x").await;
        (answer.status, answer.element("Code").map(str::to_owned))
    };
    for accepted in ["2099-01-01T00:00:00Z", "2099-12-31T23:59:59.999Z"] {
        assert_eq!(ask(accepted).await, (204, None), "{accepted}");
    }
    let long_ago = ask("2007-12-01T12:00:00.000Z").await;
    assert_eq!(long_ago, (403, Some("AccessDenied".to_owned())));
    for refused in [
        "2099-01-01 00:00:00.5+00:00",
        "2099-01-01T00:00:00+00:00",
        "2099-01-01T00:00:00",
        "2099-01-01T00:00:00.Z",
        "2099-01-01",
        "Thu, 01 Jan 2099 00:00:00 GMT",
        "4070908800",
        "2099-13-01T00:00:00Z",
        "",
    ] {
        assert_eq!(ask(refused).await, (400, Some("InvalidPolicyDocument".to_owned())), "{refused:?}");
    }
}

#[tokio::test]
async fn s191_a_form_that_breaks_off_stores_nothing() {
    let server = start().await;
    let whole = form(&[("key", "a")], "content");
    let everybody = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"arn:aws:s3:::bucket/*"}]}"#;
    let denied = send(&server, None, ("POST", "/bucket", ""), &TYPE, &whole).await;
    denied.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], everybody).await.is(204);
    let cut = &whole[..whole.len() - 6];
    let answer = send(&server, None, ("POST", "/bucket", ""), &TYPE, cut).await;
    answer.errs(400, "MalformedPOSTRequest");
    send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
    let no_file = "--frontier\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na\r\n--frontier--\r\n";
    send(&server, None, ("POST", "/bucket", ""), &TYPE, no_file).await.errs(400, "InvalidArgument");
    let json = [("content-type", "application/json")];
    send(&server, None, ("POST", "/bucket", ""), &json, "{}").await.errs(412, "PreconditionFailed");
    let bare = [("content-type", "multipart/form-data")];
    send(&server, None, ("POST", "/bucket", ""), &bare, &whole).await.errs(400, "MalformedPOSTRequest");
    send(&server, None, ("POST", "/bucket", ""), &TYPE, &whole).await.is(204);
}

/// The policy was checked against the first value of a field, and the last value was stored: a holder of a signed form
/// could choose tags and metadata.
#[tokio::test]
async fn s466_a_field_that_is_given_twice_is_refused() {
    let server = start().await;
    let tags = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>k</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    let (public, secret) = (tags("public"), tags("secret"));
    let role = ("x-amz-meta-role", "user");
    for pair in [
        [("tagging", public.as_str()), ("tagging", &secret)],
        [("x-amz-meta-role", "user"), ("X-Amz-Meta-Role", "admin")],
        [("acl", "private"), ("x-amz-acl", "public-read")],
        [("x-amz-tagging", "k=public"), ("tagging", &secret)],
        [("tagging", &public), ("x-amz-tagging", "k=secret")],
        [("key", "a"), ("key", "b")],
    ] {
        let mut fields = vec![("key", "a"), role];
        fields.retain(|(name, _)| pair.iter().all(|(given, _)| !given.eq_ignore_ascii_case(name)));
        fields.extend(pair);
        // Each field needs a condition, otherwise the form would be refused for lack of one.
        let mut conditions = format!(r#"{ANY_KEY},["eq","$x-amz-meta-role","user"]"#);
        for name in ["tagging", "x-amz-tagging", "acl", "x-amz-acl"] {
            if pair.iter().any(|(given, _)| *given == name) {
                write!(conditions, r#",["starts-with","${name}",""]"#).unwrap();
            }
        }
        post(&server, &conditions, &fields, "x").await.errs(400, "InvalidArgument");
        let listed = send(&server, Some(KEY), ("GET", "/bucket", ""), &[], "").await.is(200);
        assert!(!listed.body.contains("<Contents>"), "{pair:?}: {}", listed.body);
    }
}

#[tokio::test]
async fn s463_forms_asking_for_missing_encryption_are_refused() {
    let server = start().await;
    let conditions = format!(r#"{ANY_KEY},["starts-with","$x-amz-server-side-encryption",""]"#);
    for (wanted, status, code) in [("AES256", 501, "NotImplemented"), ("garbage", 400, "InvalidArgument")] {
        let fields = [("key", "a"), ("x-amz-server-side-encryption", wanted)];
        post(&server, &conditions, &fields, "x").await.errs(status, code);
    }
    send(&server, Some(KEY), ("HEAD", "/bucket/a", ""), &[], "").await.is(404);
}
