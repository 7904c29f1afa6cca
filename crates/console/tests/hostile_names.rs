//! Names of objects that would break a careless page.

use crate::accessibility;
use crate::fixture::{ADMIN, TestConsole};
use crate::http_client::Client;

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// Returns names, each with the text that a page shows for it.
fn names() -> Vec<(String, String)> {
    let long = "0123456789abcdef".repeat(64);
    let wide = "🦀".repeat(256);
    [
        ("<script>window.hacked=1<\u{2215}script>", "<script>window.hacked=1<\u{2215}script>"),
        ("<img src=x onerror=window.hacked=1>", "<img src=x onerror=window.hacked=1>"),
        ("\"><svg onload=window.hacked=1>", "\"><svg onload=window.hacked=1>"),
        ("' onmouseover='window.hacked=1", "' onmouseover='window.hacked=1"),
        ("javascript:window.hacked=1", "javascript:window.hacked=1"),
        ("{{7*7}} ${7*7} %3Cb%3E &lt;b&gt;", "{{7*7}} ${7*7} %3Cb%3E &lt;b&gt;"),
        ("line\nbreak\r\nand\ttab", "line⟨LF⟩break⟨CR⟩⟨LF⟩and⟨TAB⟩tab"),
        ("  spaces  at  ends  ", "  spaces  at  ends  "),
        ("\u{202e}txt.exe\u{200b}\u{feff}", "⟨U+202E⟩txt.exe⟨U+200B⟩⟨U+FEFF⟩"),
        ("e\u{301} é ﬁ Ω \u{7f}\u{1b}[31m", "e\u{301} é ﬁ Ω ⟨U+007F⟩⟨U+001B⟩[31m"),
        ("a?b#c&d=e+f;g,h:i@j\\k|l*m", "a?b#c&d=e+f;g,h:i@j\\k|l*m"),
        ("👩‍👩‍👧 مرحبا שלום", "👩‍👩‍👧 مرحبا שלום"),
        (&long, &long),
        (&wide, &wide),
        ("..", ".."),
    ]
    .map(|(name, shown)| (name.to_owned(), shown.to_owned()))
    .into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s747_any_name_is_shown_downloaded_and_deleted() {
    let console = TestConsole::start().await;
    let names = names();
    for (name, _) in &names {
        console.put(name, &format!("bytes of {name}")).await;
    }
    let browser = console.browser(ADMIN);
    let client = Client::sign_in(&console, ADMIN);
    browser.open(&format!("{}/bucket?name=bucket", console.url()));
    let is_unharmed = || assert_eq!(browser.run("return String(window.hacked)", &[]), "undefined");
    is_unharmed();
    accessibility::check(&browser);
    let shown = browser
        .run("return [...document.querySelectorAll('.listing tbody th bdi')].map(e => e.textContent)", &[]);
    let mut shown: Vec<&str> = shown.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let mut expected: Vec<&str> = names.iter().map(|(_, shown)| shown.as_str()).collect();
    shown.sort_unstable();
    expected.sort_unstable();
    assert_eq!(shown, expected);
    for (name, shown) in &names {
        // The link of the listing leads to the object, and the page's link to its bytes.
        let click = "[...document.querySelectorAll('.listing tbody th a')].find(a => a.textContent === arguments[0]).click()";
        browser.open(&format!("{}/bucket?name=bucket", console.url()));
        browser.run(click, &[shown]);
        browser.wait_until("return document.querySelector('#metadata-title') !== null", &[]);
        assert_eq!(browser.run("return document.querySelector('h1').textContent", &[]), shown.as_str());
        is_unharmed();
        let bytes = browser
            .run("return await (await fetch(document.querySelector('a.button.primary').href)).text()", &[]);
        assert_eq!(bytes, format!("bytes of {name}"));
        let answer = client.get(&format!("/download?bucket=bucket&key={}", encoded(name)));
        assert_eq!((answer.status, &answer.body), (200, &format!("bytes of {name}")), "{name:?}");
        assert!(answer.header("content-disposition").is_ascii());
        // The form of the link names the same object.
        browser.follow("section[aria-labelledby=link-title] button");
        browser.wait_until("return document.querySelector('#link') !== null", &[]);
        assert_eq!(browser.run("return document.querySelector('h1').textContent", &[]), shown.as_str());
        // Deleting by the page's form, whose field a browser must not change.
        browser.follow("form[action='/delete/confirm'] button");
        browser.wait_until("return document.title === 'Delete? – Tenon'", &[]);
        assert_eq!(browser.run("return document.querySelector('ul.names').textContent", &[]), shown.as_str());
        browser.follow("form[action='/delete'] button");
        browser.wait_until("return document.title === 'bucket – Tenon'", &[]);
        assert!(!console.keys().await.contains(name), "{name:?}");
    }
    assert_eq!(console.keys().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s747_any_directory_is_browsed_and_uploaded_to() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("<b>'\"&.txt");
    std::fs::write(&file, "hello").unwrap();
    for (number, (name, shown)) in names().into_iter().filter(|(name, _)| name.len() < 900).enumerate() {
        console.put(&format!("{name}/"), "").await;
        browser.open(&format!(
            "{}/bucket?name=bucket&prefix={}",
            console.url(),
            encoded(&format!("{name}/"))
        ));
        assert_eq!(browser.run("return document.querySelector('h1').textContent", &[]), shown.as_str());
        let crumb = browser.run("return document.querySelector('.crumbs li:last-child').textContent", &[]);
        assert_eq!(crumb, shown.as_str());
        browser.type_into("#files", file.to_str().unwrap());
        browser.click("#upload button");
        browser.wait_until("return document.body.dataset.uploaded === '1'", &[]);
        assert_eq!(console.bytes(&format!("{name}/<b>'\"&.txt")).await, b"hello", "{number}");
    }
}
