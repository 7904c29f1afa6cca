//! Authorization: ACLs, policies with conditions and variables, and owners.

use super::raw::send;
use super::test_server::{KEY, TestServer, initial_users, user};
use s3::Role;

const PREFERRED: [(&str, &str); 1] = [("x-amz-object-ownership", "BucketOwnerPreferred")];

fn policy(action: &str, resource: &str, condition: &str) -> String {
    format!(
        r#"{{"Statement":[{{"Effect":"Allow","Principal":"*","Action":"{action}","Resource":"arn:aws:s3:::{resource}","Condition":{condition}}}]}}"#
    )
}

#[tokio::test]
async fn a_public_read_acl_lets_everybody_list() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/closed", ""), &[], "").await.is(200);
    let public = [("x-amz-acl", "public-read")];
    let answer = send(&server, Some(KEY), ("PUT", "/closed", "acl"), &public, "").await;
    answer.errs(400, "AccessControlListNotSupported");
    send(&server, Some(KEY), ("PUT", "/open", ""), &PREFERRED, "").await.is(200);
    send(&server, None, ("GET", "/open", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("PUT", "/open", "acl"), &public, "").await.is(200);
    send(&server, None, ("GET", "/open", ""), &[], "").await.is(200);
    send(&server, None, ("PUT", "/open/a", ""), &[], "x").await.errs(403, "AccessDenied");
    let list = send(&server, Some(KEY), ("GET", "/open", "acl"), &[], "").await.is(200);
    assert!(list.body.contains("groups/global/AllUsers"), "{}", list.body);
    let enforced = "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    send(&server, Some(KEY), ("PUT", "/open", "ownershipControls"), &[], enforced).await.is(200);
    send(&server, None, ("GET", "/open", ""), &[], "").await.errs(403, "AccessDenied");
    let list = send(&server, Some(KEY), ("GET", "/open", "acl"), &[], "").await.is(200);
    assert!(!list.body.contains("AllUsers"), "{}", list.body);
}

/// In a bucket whose owner owns every object, `private` is what every object has anyway (docs/s3-conformance.md, deliberate differences).
#[tokio::test]
async fn an_object_that_asks_to_be_private_is_stored() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (canned, status) in [("private", 200), ("public-read", 400)] {
        let path = format!("/bucket/{canned}");
        let answer = send(&server, Some(KEY), ("PUT", &path, ""), &[("x-amz-acl", canned)], "x").await;
        answer.is(status);
        let found = if status == 200 { 200 } else { 404 };
        send(&server, Some(KEY), ("GET", &path, ""), &[], "").await.is(found);
    }
}

#[tokio::test]
async fn conditions_are_evaluated() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let here = policy("s3:ListBucket", "bucket", r#"{"StringLike":{"s3:prefix":"home/*"}}"#);
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &here).await.is(204);
    send(&server, None, ("GET", "/bucket", "prefix=home%2Fa"), &[], "").await.is(200);
    send(&server, None, ("GET", "/bucket", "prefix=etc%2F"), &[], "").await.errs(403, "AccessDenied");
    for (network, status) in [("127.0.0.0/8", 200), ("10.0.0.0/8", 403)] {
        let condition = format!(r#"{{"IpAddress":{{"aws:SourceIp":"{network}"}}}}"#);
        let from = policy("s3:ListBucket", "bucket", &condition);
        send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &from).await.is(204);
        send(&server, None, ("GET", "/bucket", ""), &[], "").await.is(status);
    }
    let odd = policy("s3:ListBucket", "bucket", r#"{"Bool":{"aws:SecureTransport":"true"}}"#);
    let answer = send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &odd).await;
    answer.errs(501, "NotImplemented");
    let stranger = here.replace(r#""Principal":"*""#, r#""Principal":{"AWS":"stranger"}"#);
    let answer = send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &stranger).await;
    answer.errs(400, "MalformedPolicy");
}

#[tokio::test]
async fn a_request_for_another_owners_bucket_is_denied() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (owner, status) in [(KEY, 200), ("somebody-else", 403)] {
        let headers = [("x-amz-expected-bucket-owner", owner)];
        send(&server, Some(KEY), ("HEAD", "/bucket", ""), &headers, "").await.is(status);
    }
}

#[tokio::test]
async fn errors_have_details() {
    let server = TestServer::start().await;
    let none = send(&server, Some(KEY), ("GET", "/nowhere/a", ""), &[], "").await.errs(404, "NoSuchBucket");
    assert_eq!(none.element("BucketName"), Some("nowhere"));
    assert_eq!(none.header("content-type"), Some("application/xml"));
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let none = send(&server, Some(KEY), ("GET", "/bucket/a%3Cb", ""), &[], "").await.errs(404, "NoSuchKey");
    assert_eq!(none.element("Key"), Some("a&lt;b"));
    let odd = send(&server, Some(KEY), ("GET", "/bucket", "max-keys=-1"), &[], "").await;
    assert_eq!(odd.errs(400, "InvalidArgument").element("ArgumentValue"), Some("-1"));
}

/// Returns a policy with statements of effect, user, action and resource, in the version that has variables.
fn policy_of(statements: &[(&str, &str, &str, &str)]) -> String {
    let statement = |(effect, user, action, resource): &(&str, &str, &str, &str)| {
        format!(
            r#"{{"Effect":"{effect}","Principal":{{"AWS":"{user}"}},"Action":"{action}","Resource":"arn:aws:s3:::{resource}"}}"#
        )
    };
    let statements: Vec<String> = statements.iter().map(statement).collect();
    format!(r#"{{"Version":"2012-10-17","Statement":[{}]}}"#, statements.join(","))
}

async fn with_tenants(tenants: &[&str]) -> TestServer {
    let server = TestServer::start().await;
    let tenants = tenants.iter().map(|name| user(name, Role::PolicyOnly, &[]));
    server.users.replace(initial_users().into_iter().chain(tenants)).unwrap();
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    server
}

/// A user who was denied PutObjectRetention locked an object until 2125 by a PUT: nobody could delete it.
#[tokio::test]
async fn s477_headers_need_the_actions_that_they_stand_for() {
    let server = with_tenants(&["tenant"]).await;
    let allowed = policy_of(&[
        ("Allow", "tenant", "s3:PutObject", "bucket/*"),
        ("Allow", "tenant", "s3:GetObject", "bucket/*"),
    ]);
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &allowed).await.is(204);
    send(&server, Some("tenant"), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    let retention = [
        ("x-amz-object-lock-mode", "COMPLIANCE"),
        ("x-amz-object-lock-retain-until-date", "2125-01-01T00:00:00Z"),
    ];
    let hold = [("x-amz-object-lock-legal-hold", "ON")];
    let tags = [("x-amz-tagging", "a=b")];
    for headers in [&retention[..], &hold, &tags] {
        let denied = send(&server, Some("tenant"), ("PUT", "/bucket/a", ""), headers, "x").await;
        denied.errs(403, "AccessDenied");
        let denied = send(&server, Some("tenant"), ("POST", "/bucket/a", "uploads"), headers, "").await;
        denied.errs(403, "AccessDenied");
        let copy = [headers, &[("x-amz-copy-source", "/bucket/a")]].concat();
        send(&server, Some("tenant"), ("PUT", "/bucket/c", ""), &copy, "").await.errs(403, "AccessDenied");
    }
    send(&server, Some("writer"), ("PUT", "/bucket/a", ""), &retention, "x").await.errs(403, "AccessDenied");
    send(&server, Some("writer"), ("PUT", "/bucket/tagged", ""), &tags, "x").await.is(200);
    // A copy takes the source's tags along, for which it needs the right to read and to write them.
    let source = |key: &'static str| [("x-amz-copy-source", key)];
    send(&server, Some("tenant"), ("PUT", "/bucket/c", ""), &source("/bucket/a"), "").await.is(200);
    let denied = send(&server, Some("tenant"), ("PUT", "/bucket/c", ""), &source("/bucket/tagged"), "").await;
    denied.errs(403, "AccessDenied");
    let without = [("x-amz-copy-source", "/bucket/tagged"), ("x-amz-tagging-directive", "REPLACE")];
    send(&server, Some("tenant"), ("PUT", "/bucket/c", ""), &without, "").await.is(200);
}

/// `Deny locked/${aws:username}/*` denied nothing: the variable was taken as plain text.
#[tokio::test]
async fn s478_policies_know_the_users_name() {
    let server = with_tenants(&["alice", "bob"]).await;
    let statements = [
        ("Allow", "*", "s3:PutObject", "bucket/*"),
        ("Deny", "*", "s3:PutObject", "bucket/locked/${aws:username}/*"),
    ];
    let locked = policy_of(&statements);
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &locked).await.is(204);
    let put = async |who: &'static str, path: &'static str| {
        send(&server, Some(who), ("PUT", path, ""), &[], "x").await
    };
    put("alice", "/bucket/locked/alice/x").await.errs(403, "AccessDenied");
    put("bob", "/bucket/locked/alice/x").await.is(200);
    for odd in ["${aws:PrincipalOrgID}", "${s3:prefix}"] {
        let policy = locked.replace("${aws:username}", odd);
        let refused = send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &policy).await;
        refused.errs(501, "NotImplemented");
    }
    let old = locked.replace("2012-10-17", "2008-10-17");
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &old).await.errs(400, "MalformedPolicy");
}

/// A policy written by a later version locked out everybody, including the administrator who wanted to replace it.
#[tokio::test]
async fn s478_a_policy_that_cannot_be_read_can_be_replaced() {
    let server = with_tenants(&["tenant"]).await;
    let store = server.buckets.open("bucket").await.unwrap();
    let odd = r#"{"Version":"2031-01-01","Statement":[{"Effect":"Perhaps"}]}"#;
    store.settings().unwrap().set("policy", Some(bytes::Bytes::from_static(odd.as_bytes()))).await.unwrap();
    send(&server, Some(KEY), ("GET", "/bucket", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some("writer"), ("DELETE", "/bucket", "policy"), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("DELETE", "/bucket", "policy"), &[], "").await.is(204);
    send(&server, Some(KEY), ("GET", "/bucket", ""), &[], "").await.is(200);
}

/// The initiator of an upload got 403 for AbortMultipartUpload and ListParts, and could not clean up.
#[tokio::test]
async fn s481_initiators_may_abort_and_list_their_uploads() {
    let server = with_tenants(&["alice", "bob"]).await;
    let statements =
        [("Allow", "alice", "s3:PutObject", "bucket/*"), ("Allow", "bob", "s3:PutObject", "bucket/*")];
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &policy_of(&statements)).await.is(204);
    let begun = send(&server, Some("alice"), ("POST", "/bucket/big", "uploads"), &[], "").await.is(200);
    let query = format!("uploadId={}", begun.element("UploadId").unwrap());
    for (who, list, abort) in [("bob", 403, 403), ("alice", 200, 204)] {
        send(&server, Some(who), ("GET", "/bucket/big", &query), &[], "").await.is(list);
        send(&server, Some(who), ("DELETE", "/bucket/big", &query), &[], "").await.is(abort);
    }
    send(&server, Some(KEY), ("GET", "/bucket/big", &query), &[], "").await.errs(404, "NoSuchUpload");
}

/// A user who might only read objects could probe for keys: missing ones gave 404, forbidden ones 403.
#[tokio::test]
async fn s481_missing_keys_are_hidden_from_users_who_may_not_list() {
    let server = with_tenants(&["tenant"]).await;
    let statements = [("Allow", "tenant", "s3:GetObject", "bucket/*")];
    send(&server, Some(KEY), ("PUT", "/bucket", "policy"), &[], &policy_of(&statements)).await.is(204);
    send(&server, Some("tenant"), ("GET", "/bucket/none", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some("tenant"), ("HEAD", "/bucket/none", ""), &[], "").await.is(403);
    send(&server, Some("reader"), ("GET", "/bucket/none", ""), &[], "").await.errs(404, "NoSuchKey");
}

/// By `x-amz-meta-file-permissions: 0104755`, any S3 user could create a set-user-id program owned by root in the
/// mount.
#[tokio::test]
async fn s482_file_modes_give_no_rights() {
    let server = with_tenants(&[]).await;
    for (mode, status) in [("0100644", 200), ("0104755", 403), ("0120777", 403), ("0020666", 403)] {
        let headers = [("x-amz-meta-file-permissions", mode)];
        send(&server, Some("writer"), ("PUT", "/bucket/a", ""), &headers, "x").await.is(status);
        send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &headers, "x").await.is(200);
    }
}

/// `buckets = ["backups"]` gives a user full rights on the bucket, but CreateBucket was AccessDenied.
#[tokio::test]
async fn s484_users_create_the_buckets_that_they_are_given() {
    let server = TestServer::start().await;
    let tenant = user("tenant", Role::PolicyOnly, &["backups"]);
    server.users.replace(initial_users().into_iter().chain([tenant])).unwrap();
    send(&server, Some("tenant"), ("PUT", "/others", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some("writer"), ("PUT", "/backups", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some("tenant"), ("PUT", "/backups", ""), &[], "").await.is(200);
    send(&server, Some("tenant"), ("PUT", "/backups/a", ""), &[], "x").await.is(200);
}
