//! Every page, as an administrator and as users who may do less.

use crate::accessibility;
use crate::fixture::{ADMIN, BUCKET, OUTSIDER, READER, TestConsole, WRITER};
use crate::http_client::Client;
use servers::Browser;
use std::collections::BTreeSet;

/// Pages that the navigation does not show.
const INNER: [&str; 5] = [
    "/bucket?name=bucket&prefix=",
    "/bucket?name=bucket&prefix=docs%2F",
    "/object?bucket=bucket&key=docs%2Fa.txt",
    "/object?bucket=bucket&key=docs%2Fa.txt&link=3600",
    "/batch?id=b-2",
];

/// Changes, each with a form that would be carried out for an administrator.
const CHANGES: [(&str, &str); 9] = [
    ("/buckets/create", "name=another"),
    ("/buckets/delete", "name=bucket"),
    ("/directories/create", "bucket=bucket&prefix=&name=new"),
    ("/object/tags", "bucket=bucket&key=docs%252Fa.txt&tags=a%3D1"),
    ("/delete", "bucket=bucket&key=docs%252Fa.txt"),
    ("/delete", "bucket=bucket&prefix=docs%252F"),
    ("/conflicts/resolve", "id=c-1&keep=file"),
    ("/batches/discard", "id=b-1"),
    ("/drives/scrub", ""),
];

async fn console() -> TestConsole {
    let console = TestConsole::start().await;
    console.put("docs/a.txt", "hello").await;
    console.put("docs/b.txt", "world").await;
    console.put("c.txt", "!").await;
    console
}

/// Clicks each link of the navigation and loads each inner page. Returns the titles and the labels of buttons.
fn click_through(console: &TestConsole, browser: &Browser) -> (Vec<String>, BTreeSet<String>) {
    let links =
        browser.run("return [...document.querySelectorAll('nav.pages a')].map(a => a.innerText)", &[]);
    let titles: Vec<String> =
        links.as_array().unwrap().iter().map(|link| link.as_str().unwrap().to_owned()).collect();
    let mut buttons = BTreeSet::new();
    let mut note = |browser: &Browser| {
        let script = "return [...document.querySelectorAll('main button')].map(button => button.textContent)";
        let found = browser.run(script, &[]);
        buttons.extend(found.as_array().unwrap().iter().map(|button| button.as_str().unwrap().to_owned()));
        assert_eq!(browser.run("return String(window.hacked)", &[]), "undefined", "{}", browser.url());
        accessibility::check(browser);
    };
    for (at, title) in titles.iter().enumerate() {
        browser.follow(&format!("nav.pages li:nth-child({}) a", at + 1));
        browser.wait_until("return document.title === arguments[0] + ' – Tenon'", &[title]);
        note(browser);
    }
    for page in INNER {
        browser.open(&format!("{}{page}", console.url()));
        note(browser);
    }
    (titles, buttons)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s744_an_administrator_sees_and_does_everything() {
    let console = console().await;
    let browser = console.browser(ADMIN);
    let (titles, buttons) = click_through(&console, &browser);
    let all = ["Buckets", "Status", "Metrics", "Conflicts", "Batches", "Views", "Drives", "Users", "Log"];
    assert_eq!(titles, all);
    for expected in [
        "Upload",
        "Create",
        "Delete",
        "Delete…",
        "Delete the selected…",
        "Save the tags",
        "Keep the file",
        "Discard",
        "Scrub now",
    ] {
        assert!(buttons.contains(expected), "{expected} in {buttons:?}");
    }
    let client = Client::sign_in(&console, ADMIN);
    for (path, form) in CHANGES.into_iter().filter(|(path, _)| *path != "/buckets/delete") {
        let answer = client.post(path, form);
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
    }
    // A bucket that is not empty is not deleted; then it is.
    assert_eq!(client.post("/buckets/delete", "name=bucket").status, 409);
    assert_eq!(client.post("/delete", "bucket=bucket&key=c.txt&prefix=new%252F").status, 303);
    assert_eq!(console.keys().await, [""; 0]);
    assert_eq!(client.post("/buckets/delete", "name=bucket").status, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s744_a_read_only_user_has_no_buttons_that_change_and_cannot_forge_them() {
    let console = console().await;
    let browser = console.browser(READER);
    let (titles, buttons) = click_through(&console, &browser);
    assert_eq!(titles, ["Buckets", "Status", "Metrics", "Conflicts", "Batches", "Views", "Drives"]);
    let harmless = ["Preview", "Make a link", "Copy"].map(str::to_owned);
    assert!(buttons.iter().all(|button| harmless.contains(button)), "{buttons:?}");
    forged_changes_are_refused(&console, READER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s744_a_user_without_a_role_sees_only_the_buckets_of_policies() {
    let console = console().await;
    let browser = console.browser(OUTSIDER);
    let links = browser.run("return document.querySelector('nav.pages').innerText.trim()", &[]);
    assert_eq!(links, "Buckets");
    assert!(browser.visible_text().contains("There are no buckets"), "{}", browser.visible_text());
    let client = Client::sign_in(&console, OUTSIDER);
    for page in [
        "/status",
        "/metrics",
        "/conflicts",
        "/batches",
        "/batch?id=b-2",
        "/views",
        "/drives",
        "/users",
        "/log",
    ] {
        assert_eq!(client.get(page).status, 403, "{page}");
    }
    for page in &INNER[..4] {
        assert_eq!(client.get(page).status, 403, "{page}");
    }
    assert_eq!(client.get("/download?bucket=bucket&key=c.txt").status, 403);
    assert_eq!(client.post("/views/preview", "bucket=bucket&rules=x").status, 403);
    forged_changes_are_refused(&console, OUTSIDER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s744_a_writer_changes_objects_only() {
    let console = console().await;
    let client = Client::sign_in(&console, WRITER);
    let page = client.get("/bucket?name=bucket").body;
    assert!(page.contains("Delete the selected") && page.contains("New directory"), "{page}");
    for (path, form) in CHANGES {
        let is_of_objects = ["/directories/create", "/delete", "/object/tags"].contains(&path);
        let expected = if is_of_objects { 303 } else { 403 };
        let answer = client.post(path, form);
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
    }
    for page in ["/users", "/log"] {
        assert_eq!(client.get(page).status, 403, "{page}");
    }
    assert_eq!(console.process.done(), [""; 0]);
}

/// A bucket policy decides for each key, also in the console.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s744_policies_of_buckets_apply() {
    let console = console().await;
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": ["the-outsider"]}, "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::bucket"]},
        {"Effect": "Allow", "Principal": {"AWS": ["the-outsider"]}, "Action": ["s3:GetObject", "s3:PutObject"],
         "Resource": ["arn:aws:s3:::bucket/docs/*"]}]}"#;
    let settings = console.store.settings().unwrap();
    settings.set("policy", Some(policy.into())).await.unwrap();
    let client = Client::sign_in(&console, OUTSIDER);
    let (root, docs) =
        (client.get("/bucket?name=bucket").body, client.get("/bucket?name=bucket&prefix=docs%2F").body);
    assert!(!root.contains("New directory") && docs.contains("New directory"), "{root}");
    assert!(!docs.contains("Delete the selected"), "{docs}");
    assert_eq!(client.get("/download?bucket=bucket&key=docs%2Fa.txt").body, "hello");
    assert_eq!(client.get("/download?bucket=bucket&key=c.txt").status, 403);
    assert_eq!(client.upload("/upload?bucket=bucket&key=docs%2Fnew", b"1").status, 200);
    assert_eq!(client.upload("/upload?bucket=bucket&key=new", b"1").status, 403);
}

/// A page offered the deletion of all its rows or of none, by the policy's answer for the directory, and a deletion of which a part was refused said
/// that the whole was refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s762_each_row_is_deletable_by_its_own_rights_and_refusals_are_named() {
    let console = console().await;
    console.put("docs/keep/x", "kept").await;
    console.put("docs/keep/y.tmp", "deletable").await;
    console.put("docs/z.tmp", "deletable").await;
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": ["the-outsider"]}, "Action": ["s3:ListBucket"], "Resource": ["arn:aws:s3:::bucket"]},
        {"Effect": "Allow", "Principal": {"AWS": ["the-outsider"]}, "Action": ["s3:DeleteObject"],
         "Resource": ["arn:aws:s3:::bucket/docs/*.tmp", "arn:aws:s3:::bucket/docs/keep/*"]},
        {"Effect": "Deny", "Principal": {"AWS": ["the-outsider"]}, "Action": ["s3:DeleteObject"], "Resource": ["arn:aws:s3:::bucket/docs/keep/x"]}]}"#;
    console.store.settings().unwrap().set("policy", Some(policy.into())).await.unwrap();
    let client = Client::sign_in(&console, OUTSIDER);
    let page = client.get("/bucket?name=bucket&prefix=docs%2F").body;
    let has_box = |name: &str| page.contains(&format!("aria-label=\"Select {name}\""));
    assert!(has_box("z.tmp") && has_box("keep/") && !has_box("a.txt") && !has_box("b.txt"), "{page}");
    assert!(!client.get("/bucket?name=bucket").body.contains("Delete the selected"));
    let form = "bucket=bucket&back=docs%252F&key=docs%252Fz.tmp&key=docs%252Fa.txt&prefix=docs%252Fkeep%252F";
    let answer = client.post("/delete", form);
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.body.contains("Deleted 2 objects, but not 2 objects:"), "{}", answer.body);
    assert!(answer.body.contains("docs/a.txt") && answer.body.contains("docs/keep/x"), "{}", answer.body);
    assert!(!answer.body.contains("z.tmp") && !answer.body.contains("y.tmp"), "{}", answer.body);
    assert_eq!(console.keys().await, ["c.txt", "docs/a.txt", "docs/b.txt", "docs/keep/x"]);
}

async fn forged_changes_are_refused(console: &TestConsole, user: &str) {
    let client = Client::sign_in(console, user);
    let before = console.keys().await;
    for (path, form) in CHANGES {
        let answer = client.post(path, form);
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    for replace in ["true", "false"] {
        let answer =
            client.upload(&format!("/upload?bucket={BUCKET}&key=docs%2Fa.txt&replace={replace}"), b"forged");
        assert_eq!(answer.status, 403, "{answer:?}");
    }
    assert_eq!(console.keys().await, before);
    assert_eq!(console.bytes("docs/a.txt").await, b"hello");
    assert_eq!(console.process.done(), [""; 0]);
}
