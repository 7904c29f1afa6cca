//! Pictures of all pages, for people to look at. They are in `tmp/console-pictures` of the target directory.

use crate::fixture::{ADMIN, READER, TestConsole};
use servers::Browser;
use std::path::Path;
use store::Versioning;

/// Pages with the name of their picture.
const PAGES: [(&str, &str); 13] = [
    ("buckets", "/buckets"),
    ("bucket", "/bucket?name=bucket"),
    ("directory", "/bucket?name=bucket&prefix=photos%2F2026%2F"),
    ("object", "/object?bucket=bucket&key=photos%2F2026%2Fharbour.jpg&link=3600"),
    ("status", "/status"),
    ("metrics", "/metrics"),
    ("conflicts", "/conflicts"),
    ("batches", "/batches"),
    ("views", "/views"),
    ("drives", "/drives"),
    ("users", "/users"),
    ("log", "/log"),
    ("error", "/object?bucket=bucket&key=missing"),
];

fn take(browser: &Browser, dir: &Path, name: &str) {
    for (screen, width, height, is_dark) in
        [("desktop", 1400, 900, false), ("dark", 1400, 900, true), ("phone", 390, 800, false)]
    {
        browser.set_screen(width, height, is_dark);
        let picture = browser.screenshot();
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
        std::fs::write(dir.join(format!("{name}-{screen}.png")), picture).unwrap();
    }
    browser.set_screen(1400, 900, false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_page_has_a_picture() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console-pictures");
    std::fs::create_dir_all(&dir).unwrap();
    let console = TestConsole::start().await;
    console.store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    for name in ["harbour", "market", "roofs"] {
        console.put(&format!("photos/2026/{name}.jpg"), &"x".repeat(1_234_567)).await;
    }
    console.put("photos/2026/harbour.jpg", "new").await;
    console.put("photos/2026/raw/1.cr2", "x").await;
    console.put("notes.txt", "x").await;
    console.put("a name with <b>markup</b> & \"quotes\"\nin two lines.txt", "x").await;
    console.put(&format!("{}.txt", "very-long-name-".repeat(20)), "x").await;
    console.put("docs/a.txt", "x").await;
    let browser = Browser::start();
    browser.open(&console.url());
    take(&browser, &dir, "sign-in");
    console.sign_in(&browser, ADMIN);
    browser.open(&format!("{}/metrics", console.url()));
    browser.wait_until(
        "return (document.querySelector('.plot polyline')?.getAttribute('points').split(' ').length ?? 0) > 9",
        &[],
    );
    for (name, page) in PAGES {
        browser.open(&format!("{}{page}", console.url()));
        take(&browser, &dir, name);
    }
    browser.open(&format!("{}/bucket?name=bucket&prefix=photos%2F2026%2F", console.url()));
    let file = dir.join("file to upload.bin");
    std::fs::write(&file, vec![1; 5 << 20]).unwrap();
    browser.type_into("#files", &format!("{0}\n{0}", file.display()));
    browser.click("#upload button");
    browser.wait_until("return document.body.dataset.uploaded === '2'", &[]);
    take(&browser, &dir, "uploaded");
    browser.click("input[aria-label='Select raw/']");
    browser.follow("button.danger");
    take(&browser, &dir, "delete");
    browser.forget_cookies();
    console.sign_in(&browser, READER);
    browser.open(&format!("{}/bucket?name=bucket", console.url()));
    take(&browser, &dir, "reader");
}
