//! Sessions, forged requests, headers.

use crate::fixture::{ADMIN, READER, SECRET, TestConsole};
use crate::http_client::Client;

const PAGES: [&str; 14] = [
    "/",
    "/buckets",
    "/bucket?name=bucket",
    "/object?bucket=bucket&key=a",
    "/download?bucket=bucket&key=a",
    "/status",
    "/metrics",
    "/conflicts",
    "/batches",
    "/views",
    "/drives",
    "/users",
    "/log",
    "/no-such-page",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s740_without_a_session_only_the_sign_in_page_is_shown() {
    let console = TestConsole::start().await;
    console.put("a", "secret bytes").await;
    let mut client = Client::without_session(&console);
    let forged = format!("tenon-console-{}={}", console.address().port(), "0".repeat(64));
    for cookie in [String::new(), forged] {
        client.cookie = cookie;
        for page in PAGES {
            let answer = client.get(page);
            let expected = match page {
                "/" => "/sign-in".to_owned(),
                page => format!("/sign-in?next={}", percent_encoded(page)),
            };
            assert_eq!(
                (answer.status, answer.header("location"), answer.body.as_str()),
                (303, &*expected, ""),
                "{page}"
            );
        }
        for change in
            ["/delete", "/upload?bucket=bucket&key=b", "/buckets/create", "/drives/scrub", "/sign-out"]
        {
            assert_eq!(client.post(change, "bucket=bucket&key=a&name=new").status, 401, "{change}");
        }
        for method in ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            assert_eq!(client.send(method, "/buckets", &[], b"").status, 401, "{method}");
        }
    }
    assert_eq!(console.keys().await, ["a"]);
    let page = client.get("/sign-in");
    assert!(
        page.status == 200 && page.body.contains("Access key") && !page.body.contains("bucket"),
        "{page:?}"
    );
    for asset in ["/assets/console.css", "/assets/console.js", "/assets/icon.svg"] {
        assert_eq!(client.get(asset).status, 200, "{asset}");
    }
}

/// Assets had no etag, so that a browser transferred them again with each page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s760_a_browser_that_has_an_asset_does_not_get_it_again() {
    let console = TestConsole::start().await;
    let client = Client::without_session(&console);
    let mut etags = Vec::new();
    for asset in ["/assets/console.css", "/assets/console.js", "/assets/icon.svg"] {
        let first = client.get(asset);
        let etag = first.header("etag").to_owned();
        assert!(etag.starts_with('"') && etag.len() > 20 && !first.body.is_empty(), "{first:?}");
        assert_eq!(first.header("cache-control"), "no-cache");
        let again = client.send("GET", asset, &[("if-none-match", &etag)], b"");
        assert_eq!((again.status, again.header("etag"), again.body.as_str()), (304, &*etag, ""), "{again:?}");
        assert_eq!(again.header("cache-control"), "no-cache");
        let other = client.send("GET", asset, &[("if-none-match", "\"another\"")], b"");
        assert_eq!((other.status, other.body.len()), (200, first.body.len()));
        etags.push(etag);
    }
    etags.dedup();
    assert_eq!(etags.len(), 3);
}

fn percent_encoded(text: &str) -> String {
    text.replace('/', "%2F").replace('?', "%3F").replace('=', "%3D").replace('&', "%26")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s741_signing_out_ends_the_session() {
    let console = TestConsole::start().await;
    let client = Client::sign_in(&console, ADMIN);
    assert_eq!(client.get("/buckets").status, 200);
    let answer = client.post("/sign-out", "");
    assert_eq!((answer.status, answer.header("location")), (303, "/sign-in"));
    assert!(answer.header("set-cookie").ends_with("Max-Age=0"), "{answer:?}");
    assert_eq!(client.get("/buckets").status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s741_a_change_of_the_users_file_ends_sessions_and_changes_roles() {
    let console = TestConsole::start().await;
    let (admin, reader) = (Client::sign_in(&console, ADMIN), Client::sign_in(&console, READER));
    let mut users: Vec<_> = console.users.all().iter().map(|user| user.as_ref().clone()).collect();
    users.retain(|user| user.access_key != READER);
    users.iter_mut().for_each(|user| user.role = s3::Role::ReadOnly);
    console.users.replace(users).unwrap();
    assert_eq!(reader.get("/buckets").status, 303);
    assert_eq!(admin.get("/buckets").status, 200);
    assert_eq!(admin.get("/users").status, 403);
    assert_eq!(admin.post("/buckets/create", "name=another").status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s742_repeated_failures_to_sign_in_have_to_wait() {
    let console = TestConsole::start().await;
    let client = Client::without_session(&console);
    for (user, secret) in
        [(ADMIN, "wrong"), ("nobody", SECRET), (ADMIN, ""), ("", ""), (ADMIN, "not-a-secret")]
    {
        let answer = client.try_sign_in(user, secret);
        assert_eq!((answer.status, answer.header("set-cookie")), (401, ""), "{user} {secret}");
    }
    let answer = client.try_sign_in(ADMIN, SECRET);
    assert_eq!(answer.status, 429, "the right secret has to wait too: {answer:?}");
    assert_eq!(answer.header("set-cookie"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s745_changes_need_the_token_of_the_session_and_an_origin_of_the_console() {
    let console = TestConsole::start().await;
    console.put("a", "1").await;
    let (admin, other) = (Client::sign_in(&console, ADMIN), Client::sign_in(&console, ADMIN));
    let form = |token: &str| format!("csrf={token}&bucket=bucket&key=a");
    for token in ["", "0", &other.csrf, &admin.csrf.to_uppercase(), &format!("{}0", admin.csrf)] {
        assert_eq!(admin.post_with("/delete", &[], &form(token)).status, 403, "{token}");
        let headers = [("x-csrf-token", token)];
        assert_eq!(admin.send("POST", "/upload?bucket=bucket&key=b", &headers, b"1").status, 403, "{token}");
    }
    let origin = format!("http://{}", console.address());
    for (name, value) in [
        ("origin", "http://example.com"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
    ] {
        let answer = admin.post_with("/delete", &[(name, value)], &form(&admin.csrf));
        assert_eq!(answer.status, 403, "{name}: {value}");
        let answer = Client::without_session(&console).post_with(
            "/sign-in",
            &[(name, value)],
            &format!("access_key={ADMIN}&secret_key={SECRET}"),
        );
        assert_eq!(answer.status, 403, "{name}: {value}");
    }
    // The token in the query does not count, and GET changes nothing.
    assert_eq!(admin.get(&format!("/delete?{}", form(&admin.csrf))).status, 404);
    assert_eq!(console.keys().await, ["a"]);
    let headers = [("origin", origin.as_str()), ("sec-fetch-site", "same-origin")];
    assert_eq!(admin.post_with("/delete", &headers, &form(&admin.csrf)).status, 303);
    assert_eq!(console.keys().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s746_every_response_has_the_headers_that_protect_it() {
    let console = TestConsole::start().await;
    console.put("page.html", "<script>alert(1)</script>").await;
    let (admin, stranger) = (Client::sign_in(&console, ADMIN), Client::without_session(&console));
    let download = "/download?bucket=bucket&key=page.html";
    let others = ["/sign-in", "/assets/console.js", "/assets/console.css", download];
    for target in PAGES.iter().chain(&others) {
        for client in [&admin, &stranger] {
            let answer = client.get(target);
            let policy = answer.header("content-security-policy");
            assert!(
                policy.contains("default-src 'none'") && !policy.contains("unsafe"),
                "{target}: {policy}"
            );
            let expected = [
                ("x-content-type-options", "nosniff"),
                ("x-frame-options", "DENY"),
                ("referrer-policy", "same-origin"),
                ("cross-origin-opener-policy", "same-origin"),
                ("cross-origin-resource-policy", "same-origin"),
            ];
            for (name, value) in expected {
                assert_eq!(answer.header(name), value, "{target}");
            }
            assert!(["no-store", "no-cache"].contains(&answer.header("cache-control")), "{target}");
            assert!(!answer.body.contains(" style=") && !answer.body.contains(" onclick="), "{target}");
            assert!(!answer.body.contains(SECRET), "{target}");
        }
    }
    let answer = admin.get(download);
    assert_eq!(answer.body, "<script>alert(1)</script>");
    assert!(answer.header("content-security-policy").contains("sandbox"));
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    assert_eq!(answer.header("content-disposition"), "attachment; filename*=UTF-8''page.html");
    let cookie = stranger.try_sign_in(ADMIN, SECRET).header("set-cookie").to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s751_secrets_are_on_no_page() {
    let console = TestConsole::start().await;
    console.put("a", "1").await;
    let admin = Client::sign_in(&console, ADMIN);
    let users = admin.get("/users").body;
    assert!(users.contains(READER) && users.contains("read-only"), "{users}");
    for page in PAGES {
        assert!(!admin.get(page).body.contains(SECRET), "{page}");
    }
}

/// Requests that no browser sends are answered, and the console goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn malformed_requests_are_refused() {
    let console = TestConsole::start().await;
    let admin = Client::sign_in(&console, ADMIN);
    for target in [
        "/bucket",
        "/bucket?name=",
        "/bucket?name=no%20bucket",
        "/bucket?name=bucket&token=forged",
        "/bucket?name=..%2F..%2Fetc",
        "/object?bucket=bucket&key=",
        "/object?bucket=bucket&key=%FF%FE",
        "/object?bucket=&key=x",
        "/download?bucket=bucket&key=missing",
        "/batch",
        "/log?lines=-1",
    ] {
        let answer = admin.get(target);
        assert!(answer.status == 200 || (400..500).contains(&answer.status), "{target}: {answer:?}");
    }
    for (path, form) in [
        ("/delete", "bucket=bucket"),
        ("/delete", "bucket=bucket&prefix="),
        ("/delete", "bucket=bucket&prefix=no-slash"),
        ("/delete/confirm", ""),
        ("/directories/create", "bucket=bucket&name=.."),
        ("/directories/create", "bucket=bucket&name=a%2F%2Fb"),
        ("/object/tags", "bucket=bucket&key=a&tags=noequals"),
        ("/conflicts/resolve", "id=c-1&keep=neither"),
        ("/conflicts/resolve", "id=missing&keep=file"),
        ("/buckets/create", "name=X"),
        ("/views/preview", "bucket=bucket&rules=%7B"),
    ] {
        let answer = admin.post(path, form);
        assert!(answer.status == 200 || (400..500).contains(&answer.status), "{path} {form}: {answer:?}");
    }
    let long = "x".repeat(5 << 20);
    assert_eq!(admin.post_with("/delete", &[], &long).status, 400);
    assert_eq!(admin.get("/buckets").status, 200);
}
