//! Users that change while the endpoint serves, and their buckets.

use super::raw::{send, send_with};
use super::test_server::{KEY, SECRET, TestServer, initial_users, user};
use s3::{Role, User};

const PREFERRED: [(&str, &str); 1] = [("x-amz-object-ownership", "BucketOwnerPreferred")];
const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];
const ASSUME: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=any&RoleSessionName=test";

impl TestServer {
    /// Replaces the users by the initial ones and `more`.
    fn with_users(&self, more: impl IntoIterator<Item = User>) {
        self.users.replace(initial_users().into_iter().chain(more)).unwrap();
    }
}

#[tokio::test]
async fn s221_users_come_and_go_while_the_endpoint_serves() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    let list = ("GET", "/bucket", "");
    send(&server, Some("carol"), list, &[], "").await.errs(403, "InvalidAccessKeyId");
    server.with_users([user("carol", Role::ReadOnly, &[])]);
    send(&server, Some("carol"), list, &[], "").await.is(200);
    let session = send(&server, Some("carol"), ("POST", "/", ""), &FORM, ASSUME).await.is(200);
    let [key, secret, token] =
        ["AccessKeyId", "SecretAccessKey", "SessionToken"].map(|name| session.element(name).unwrap());
    let (session, token) = (Some((key, secret)), [("x-amz-security-token", token)]);
    send_with(&server, session, list, &token, "").await.is(200);
    server.with_users([user("carol", Role::PolicyOnly, &[])]);
    send(&server, Some("carol"), list, &[], "").await.errs(403, "AccessDenied");
    send_with(&server, session, list, &token, "").await.errs(403, "AccessDenied");
    let other = User { secret_key: "another-secret".to_owned(), ..user("carol", Role::ReadOnly, &[]) };
    server.with_users([other]);
    send(&server, Some("carol"), list, &[], "").await.errs(403, "SignatureDoesNotMatch");
    send_with(&server, Some(("carol", "another-secret")), list, &[], "").await.is(200);
    server.with_users([]);
    send_with(&server, Some(("carol", "another-secret")), list, &[], "")
        .await
        .errs(403, "InvalidAccessKeyId");
    send_with(&server, session, list, &token, "").await.errs(403, "InvalidAccessKeyId");
}

#[tokio::test]
async fn s222_a_wrong_list_changes_nothing() {
    let server = TestServer::start().await;
    let [carol, short] = [user("carol", Role::Admin, &["a"]), user("x", Role::Admin, &[])];
    let shared = user("dave", Role::Admin, &["a"]);
    for wrong in [vec![carol.clone(), carol.clone()], vec![carol.clone(), shared], vec![short]] {
        server.users.replace(wrong).unwrap_err();
        send(&server, Some(KEY), ("GET", "/", ""), &[], "").await.is(200);
        send(&server, Some("carol"), ("GET", "/", ""), &[], "").await.errs(403, "InvalidAccessKeyId");
    }
}

#[tokio::test]
async fn s223_a_bucket_belongs_to_its_creator() {
    let server = TestServer::start().await;
    server.with_users([user("boss", Role::Admin, &[])]);
    send(&server, Some("boss"), ("PUT", "/made", ""), &[], "").await.is(200);
    let again = ("PUT", "/made", "");
    send(&server, Some("boss"), again, &[], "").await.errs(409, "BucketAlreadyOwnedByYou");
    send(&server, Some(KEY), again, &[], "").await.errs(409, "BucketAlreadyExists");
    send(&server, Some("writer"), ("PUT", "/more", ""), &[], "").await.errs(403, "AccessDenied");
    let acl = send(&server, Some(KEY), ("GET", "/made", "acl"), &[], "").await.is(200);
    assert_eq!(acl.element("ID"), Some("boss"), "{}", acl.body);
    for (owner, status) in [("boss", 200), (KEY, 403)] {
        let headers = [("x-amz-expected-bucket-owner", owner)];
        send(&server, Some(KEY), ("GET", "/made", ""), &headers, "").await.is(status);
    }
    // A former administrator keeps the buckets that she created.
    server.with_users([user("boss", Role::PolicyOnly, &[])]);
    send(&server, Some("boss"), ("PUT", "/made/a", ""), &[], "x").await.is(200);
    server.with_users([]);
    let acl = send(&server, Some(KEY), ("GET", "/made", "acl"), &[], "").await.is(200);
    assert_eq!(acl.element("ID"), Some(KEY), "{}", acl.body);
}

#[tokio::test]
async fn s223_the_user_list_assigns_buckets() {
    let server = TestServer::start().await;
    for bucket in ["/hers", "/other"] {
        send(&server, Some(KEY), ("PUT", bucket, ""), &[], "").await.is(200);
    }
    server.with_users([user("carol", Role::PolicyOnly, &["hers", "later"])]);
    let carol = Some("carol");
    let list = send(&server, carol, ("GET", "/", ""), &[], "").await.is(200);
    assert!(list.body.contains("<Name>hers</Name>") && !list.body.contains("other"), "{}", list.body);
    assert_eq!(list.element("ID"), Some("carol"));
    for all in [KEY, "reader"] {
        let list = send(&server, Some(all), ("GET", "/", ""), &[], "").await.is(200);
        assert!(list.body.contains("hers") && list.body.contains("other"), "{}", list.body);
    }
    send(&server, carol, ("PUT", "/later", ""), &[], "").await.is(200);
    send(&server, carol, ("PUT", "/elsewhere", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, carol, ("PUT", "/hers/a", ""), &[], "x").await.is(200);
    let list = send(&server, carol, ("GET", "/hers", "list-type=2&fetch-owner=true"), &[], "").await.is(200);
    assert_eq!(list.element("ID"), Some("carol"), "{}", list.body);
    send(&server, carol, ("PUT", "/hers", "tagging"), &[], "<Tagging><TagSet/></Tagging>").await.is(204);
    for query in ["", "location", "acl", "versioning", "policy"] {
        send(&server, carol, ("GET", "/other", query), &[], "").await.errs(403, "AccessDenied");
    }
    let source = [("x-amz-copy-source", "/hers/a")];
    send(&server, carol, ("PUT", "/other/a", ""), &source, "").await.errs(403, "AccessDenied");
    let wrong = [source[0], ("x-amz-source-expected-bucket-owner", KEY)];
    send(&server, carol, ("PUT", "/hers/b", ""), &wrong, "").await.errs(403, "AccessDenied");
    let right = [source[0], ("x-amz-source-expected-bucket-owner", "carol")];
    send(&server, carol, ("PUT", "/hers/b", ""), &right, "").await.is(200);
}

#[tokio::test]
async fn s223_a_page_of_ones_own_buckets_is_full() {
    let server = TestServer::start().await;
    for bucket in ["/a-1", "/b-2", "/c-3", "/d-4"] {
        send(&server, Some(KEY), ("PUT", bucket, ""), &[], "").await.is(200);
    }
    server.with_users([user("carol", Role::PolicyOnly, &["b-2", "d-4"])]);
    let one = send(&server, Some("carol"), ("GET", "/", "max-buckets=1"), &[], "").await.is(200);
    assert_eq!((one.element("Name"), one.element("ContinuationToken")), (Some("b-2"), Some("b-2")));
    let next = ("GET", "/", "continuation-token=b-2&max-buckets=1");
    let two = send(&server, Some("carol"), next, &[], "").await.is(200);
    assert_eq!((two.element("Name"), two.element("ContinuationToken")), (Some("d-4"), None));
}

#[tokio::test]
async fn s224_a_denial_names_its_reason_and_locks_no_owner_out() {
    let server = TestServer::start().await;
    server.with_users([user("carol", Role::PolicyOnly, &["hers"])]);
    send(&server, Some(KEY), ("PUT", "/hers", ""), &[], "").await.is(200);
    let nobody = r#"{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::hers","arn:aws:s3:::hers/*"]}]}"#;
    send(&server, Some("carol"), ("PUT", "/hers", "policy"), &[], nobody).await.is(204);
    for user in ["carol", "writer", KEY] {
        let denied =
            send(&server, Some(user), ("PUT", "/hers/a", ""), &[], "x").await.errs(403, "AccessDenied");
        let said = format!(
            "User: {user} is not authorized to perform: s3:PutObject on resource: &quot;arn:aws:s3:::hers/a&quot; with an explicit deny in a resource-based policy"
        );
        assert_eq!(denied.element("Message").map(|text| text.replace('"', "&quot;")), Some(said));
    }
    let denied = send(&server, None, ("GET", "/hers/a", ""), &[], "").await.errs(403, "AccessDenied");
    assert_eq!(denied.element("Message"), Some("Access Denied."));
    send(&server, Some("writer"), ("DELETE", "/hers", "policy"), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some("carol"), ("DELETE", "/hers", "policy"), &[], "").await.is(204);
    send(&server, Some("carol"), ("PUT", "/hers/a", ""), &[], "x").await.is(200);
}

#[tokio::test]
async fn an_acl_grants_what_it_says() {
    let server = TestServer::start().await;
    server.with_users(["carol", "dave"].map(|name| user(name, Role::PolicyOnly, &[])));
    send(&server, Some(KEY), ("PUT", "/open", ""), &PREFERRED, "").await.is(200);
    send(&server, Some("carol"), ("GET", "/open", ""), &[], "").await.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("PUT", "/open", "acl"), &[("x-amz-grant-read", "id=carol")], "").await.is(200);
    send(&server, Some("carol"), ("HEAD", "/open", ""), &[], "").await.is(200);
    send(&server, Some("dave"), ("HEAD", "/open", ""), &[], "").await.is(403);
    send(&server, Some("carol"), ("PUT", "/open/a", ""), &[], "x").await.errs(403, "AccessDenied");
    // READ is ListBucket and its like, not the bucket's settings (ACL overview, "Mapping of ACL permissions").
    send(&server, Some("carol"), ("GET", "/open", "versioning"), &[], "").await.errs(403, "AccessDenied");
    let list = |owner: &str, user: &str| {
        format!(
            r#"<AccessControlPolicy><Owner><ID>{owner}</ID></Owner><AccessControlList><Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"><ID>{user}</ID></Grantee><Permission>FULL_CONTROL</Permission></Grant></AccessControlList></AccessControlPolicy>"#
        )
    };
    let put = ("PUT", "/open", "acl");
    send(&server, Some(KEY), put, &[], &list("stranger", "dave")).await.errs(400, "InvalidArgument");
    send(&server, Some(KEY), put, &[], &list("carol", "dave")).await.errs(403, "AccessDenied");
    send(&server, Some(KEY), put, &[], &list(KEY, "stranger")).await.errs(400, "InvalidArgument");
    send(&server, Some(KEY), put, &[], &list(KEY, "dave")).await.is(200);
    send(&server, Some("dave"), ("PUT", "/open/a", ""), &[], "x").await.is(200);
    send(&server, Some("carol"), ("HEAD", "/open", ""), &[], "").await.is(403);
    let answer = send_with(&server, Some(("dave", SECRET)), ("GET", "/open", "acl"), &[], "").await.is(200);
    assert!(answer.body.contains("<ID>dave</ID>"), "{}", answer.body);
}
