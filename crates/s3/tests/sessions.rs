//! Temporary credentials.

use super::raw::{send, send_with};
use super::test_server::{KEY, TestServer};

const FORM: [(&str, &str); 1] = [("content-type", "application/x-www-form-urlencoded")];
const ASSUME: &str = "Action=AssumeRole&Version=2011-06-15&RoleArn=any&RoleSessionName=test";

#[tokio::test]
async fn a_session_has_the_rights_of_its_user() {
    let server = TestServer::start().await;
    send(&server, Some(KEY), ("PUT", "/bucket", ""), &[], "").await.is(200);
    send(&server, Some(KEY), ("PUT", "/bucket/a", ""), &[], "x").await.is(200);
    let root = ("POST", "/", "");
    let answer = send(&server, Some("reader"), root, &FORM, ASSUME).await.is(200);
    let [key, secret, token] =
        ["AccessKeyId", "SecretAccessKey", "SessionToken"].map(|name| answer.element(name).unwrap());
    let session = Some((key, secret));
    let get = ("GET", "/bucket/a", "");
    let with_token = [("x-amz-security-token", token)];
    assert_eq!(send_with(&server, session, get, &with_token, "").await.is(200).body, "x");
    let put = ("PUT", "/bucket/a", "");
    send_with(&server, session, put, &with_token, "y").await.errs(403, "AccessDenied");
    send_with(&server, session, get, &[], "").await.errs(400, "InvalidToken");
    let wrong = [("x-amz-security-token", "wrong")];
    send_with(&server, session, get, &wrong, "").await.errs(400, "InvalidToken");
    send(&server, Some("reader"), get, &with_token, "").await.errs(400, "InvalidToken");
    let headers = [FORM[0], with_token[0]];
    send_with(&server, session, root, &headers, ASSUME).await.errs(403, "AccessDenied");
}

#[tokio::test]
async fn unsupported_session_parameters_are_refused() {
    let server = TestServer::start().await;
    for (more, status) in
        [("&DurationSeconds=60", 400), ("&Policy=%7B%7D", 501), ("&DurationSeconds=900", 200)]
    {
        let form = format!("{ASSUME}{more}");
        send(&server, Some(KEY), ("POST", "/", ""), &FORM, &form).await.is(status);
    }
    send(&server, None, ("POST", "/", ""), &FORM, ASSUME).await.errs(403, "AccessDenied");
    send(&server, Some(KEY), ("POST", "/", ""), &FORM, "Action=GetUser").await.errs(501, "NotImplemented");
}
