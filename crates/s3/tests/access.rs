//! Who may do what: lists, policies with conditions, and owners.

use super::raw::send;
use super::world::{KEY, World};

const PREFERRED: [(&str, &str); 1] = [("x-amz-object-ownership", "BucketOwnerPreferred")];

fn policy(action: &str, resource: &str, condition: &str) -> String {
    format!(
        r#"{{"Statement":[{{"Effect":"Allow","Principal":"*","Action":"{action}","Resource":"arn:aws:s3:::{resource}","Condition":{condition}}}]}}"#
    )
}

#[tokio::test]
async fn a_public_list_lets_everybody_list() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/closed", ""), &[], "").await.is(200);
    let public = [("x-amz-acl", "public-read")];
    let answer = send(&world, Some(KEY), ("PUT", "/closed", "acl"), &public, "").await;
    answer.errs(400, "AccessControlListNotSupported");
    send(&world, Some(KEY), ("PUT", "/open", ""), &PREFERRED, "").await.is(200);
    send(&world, None, ("GET", "/open", ""), &[], "").await.errs(403, "AccessDenied");
    send(&world, Some(KEY), ("PUT", "/open", "acl"), &public, "").await.is(200);
    send(&world, None, ("GET", "/open", ""), &[], "").await.is(200);
    send(&world, None, ("PUT", "/open/a", ""), &[], "x").await.errs(403, "AccessDenied");
    let list = send(&world, Some(KEY), ("GET", "/open", "acl"), &[], "").await.is(200);
    assert!(list.body.contains("groups/global/AllUsers"), "{}", list.body);
    let enforced = "<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    send(&world, Some(KEY), ("PUT", "/open", "ownershipControls"), &[], enforced).await.is(200);
    send(&world, None, ("GET", "/open", ""), &[], "").await.errs(403, "AccessDenied");
    let list = send(&world, Some(KEY), ("GET", "/open", "acl"), &[], "").await.is(200);
    assert!(!list.body.contains("AllUsers"), "{}", list.body);
}

#[tokio::test]
async fn conditions_are_looked_at() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let here = policy("s3:ListBucket", "bucket", r#"{"StringLike":{"s3:prefix":"home/*"}}"#);
    send(&world, Some(KEY), ("PUT", "/bucket", "policy"), &[], &here).await.is(204);
    send(&world, None, ("GET", "/bucket", "prefix=home%2Fa"), &[], "").await.is(200);
    send(&world, None, ("GET", "/bucket", "prefix=etc%2F"), &[], "").await.errs(403, "AccessDenied");
    for (network, status) in [("127.0.0.0/8", 200), ("10.0.0.0/8", 403)] {
        let condition = format!(r#"{{"IpAddress":{{"aws:SourceIp":"{network}"}}}}"#);
        let from = policy("s3:ListBucket", "bucket", &condition);
        send(&world, Some(KEY), ("PUT", "/bucket", "policy"), &[], &from).await.is(204);
        send(&world, None, ("GET", "/bucket", ""), &[], "").await.is(status);
    }
    let odd = policy("s3:ListBucket", "bucket", r#"{"Bool":{"aws:SecureTransport":"true"}}"#);
    let answer = send(&world, Some(KEY), ("PUT", "/bucket", "policy"), &[], &odd).await;
    answer.errs(501, "NotImplemented");
    let stranger = here.replace(r#""Principal":"*""#, r#""Principal":{"AWS":"stranger"}"#);
    let answer = send(&world, Some(KEY), ("PUT", "/bucket", "policy"), &[], &stranger).await;
    answer.errs(400, "MalformedPolicy");
}

#[tokio::test]
async fn a_request_for_another_owners_bucket_is_denied() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    for (owner, status) in [(KEY, 200), ("somebody-else", 403)] {
        let headers = [("x-amz-expected-bucket-owner", owner)];
        send(&world, Some(KEY), ("HEAD", "/bucket", ""), &headers, "").await.is(status);
    }
}

#[tokio::test]
async fn errors_say_what_they_are_about() {
    let world = World::start().await;
    let none = send(&world, Some(KEY), ("GET", "/nowhere/a", ""), &[], "").await.errs(404, "NoSuchBucket");
    assert_eq!(none.element("BucketName"), Some("nowhere"));
    assert_eq!(none.header("content-type"), Some("application/xml"));
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let none = send(&world, Some(KEY), ("GET", "/bucket/a%3Cb", ""), &[], "").await.errs(404, "NoSuchKey");
    assert_eq!(none.element("Key"), Some("a&lt;b"));
    let odd = send(&world, Some(KEY), ("GET", "/bucket", "max-keys=-1"), &[], "").await;
    assert_eq!(odd.errs(400, "InvalidArgument").element("ArgumentValue"), Some("-1"));
}
