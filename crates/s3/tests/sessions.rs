//! Temporary credentials.

use super::raw::{send, send_with};
use super::test_server::{KEY, World};

const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];
const ASSUME: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=any&RoleSessionName=test";

#[tokio::test]
async fn a_session_has_the_rights_of_who_began_it() {
    let world = World::start().await;
    send(&world, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    send(&world, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    let root = ("POST", "/", "");
    let answer = send(&world, Some("reader"), root, &FORM, ASSUME).await.is(200);
    let [key, secret, token] =
        ["AccessKeyId", "SecretAccessKey", "SessionToken"].map(|name| answer.element(name).unwrap());
    let session = Some((key, secret));
    let get = ("GET", "/bucket/a", "");
    let with_token = [("x-amz-security-token", token)];
    assert_eq!(send_with(&world, session, get, &with_token, "").await.is(200).body, "x");
    let put = ("PUT", "/bucket/a", "");
    send_with(&world, session, put, &with_token, "y").await.errs(403, "AccessDenied");
    send_with(&world, session, get, &[], "").await.errs(400, "InvalidToken");
    let wrong = [("x-amz-security-token", "wrong")];
    send_with(&world, session, get, &wrong, "").await.errs(400, "InvalidToken");
    send(&world, Some("reader"), get, &with_token, "").await.errs(400, "InvalidToken");
    let headers = [FORM[0], with_token[0]];
    send_with(&world, session, root, &headers, ASSUME).await.errs(403, "AccessDenied");
}

#[tokio::test]
async fn what_a_session_cannot_be_is_refused() {
    let world = World::start().await;
    for (more, status) in
        [("&DurationSeconds=60", 400), ("&Policy=%7B%7D", 501), ("&DurationSeconds=900", 200)]
    {
        let form = format!("{ASSUME}{more}");
        send(&world, Some(KEY), ("POST", "/", ""), &FORM, &form).await.is(status);
    }
    send(&world, None, ("POST", "/", ""), &FORM, ASSUME).await.errs(403, "AccessDenied");
    send(&world, Some(KEY), ("POST", "/", ""), &FORM, "Action=GetUser").await.errs(501, "NotImplemented");
}
