//! Buckets, directories and objects in a browser: browsing, uploads, downloads, tags, versions, links.

use crate::fixture::{ADMIN, BUCKET, TestConsole};
use crate::http_client::{Client, read_answer};
use servers::Browser;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use store::wrap::{Fault, Faults, Operation, Rule, Wrapped};
use store::{Buckets, Entropy, ObjectStore, StoreError, SystemClock, Versioning};
use store_dir::{DirOptions, DirStore};

/// Returns the texts of the names in the listing.
const NAMES: &str = "return [...document.querySelectorAll('table.listing tbody th')].map(cell => cell.innerText.trim()).join(',')";

/// Returns the length and the SHA-256 of what a link of the page downloads.
const DOWNLOAD: &str = "
    const bytes = await (await fetch(document.querySelector(arguments[0]).href)).arrayBuffer();
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    return bytes.byteLength + ' ' + [...digest].map(byte => byte.toString(16).padStart(2, '0')).join('');";

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    format!("{} {}", bytes.len(), store::hex(digest.as_ref()))
}

fn upload(browser: &Browser, paths: &[&std::path::Path]) {
    let before = browser.run("return Number(document.body.dataset.uploaded ?? 0)", &[]).as_u64().unwrap();
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    browser.type_into("#files", &paths.join("\n"));
    browser.click("#upload button");
    let expected = (before + paths.len() as u64).to_string();
    browser.wait_until("return document.body.dataset.uploaded === arguments[0]", &[&expected]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s748_files_are_uploaded_with_progress_and_downloaded() {
    let console = TestConsole::start().await;
    let dir = tempfile::tempdir().unwrap();
    // Longer than two parts, and not a multiple of their length.
    let long: Vec<u8> =
        (0..20_000_003_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (long_path, short_path, empty_path) =
        (dir.path().join("long file.bin"), dir.path().join("short.txt"), dir.path().join("empty"));
    std::fs::write(&long_path, &long).unwrap();
    std::fs::write(&short_path, "hello").unwrap();
    std::fs::write(&empty_path, "").unwrap();
    let browser = console.browser(ADMIN);
    browser.follow("main table a");
    // A new directory, which the browser enters.
    browser.type_into("#directory", "in/box");
    browser.follow("form[action='/directories/create'] button");
    browser.wait_until("return document.querySelector('h1').innerText === 'box'", &[]);
    assert!(browser.visible_text().contains("Created the directory in/box."), "{}", browser.visible_text());
    upload(&browser, &[&long_path, &short_path, &empty_path]);
    let results = browser
        .run("return [...document.querySelectorAll('#uploads .result')].map(r => r.innerText).join()", &[]);
    assert_eq!(results, "stored,stored,stored");
    // The listing is up to date without loading the page again.
    assert_eq!(browser.run(NAMES, &[]), "empty,long file.bin,short.txt");
    assert_eq!(console.bytes("in/box/long file.bin").await, long);
    assert_eq!(console.bytes("in/box/short.txt").await, b"hello");
    assert_eq!(console.bytes("in/box/empty").await, b"");
    let downloaded = browser.run(DOWNLOAD, &["a[aria-label='Download long file.bin']"]);
    assert_eq!(downloaded, sha256(&long).as_str());
    // An object that exists is replaced only on demand.
    std::fs::write(&short_path, "changed").unwrap();
    upload(&browser, &[&short_path]);
    assert!(browser.visible_text().contains("An object of this name exists"), "{}", browser.visible_text());
    assert_eq!(console.bytes("in/box/short.txt").await, b"hello");
    browser.click("#replace");
    upload(&browser, &[&short_path]);
    assert_eq!(console.bytes("in/box/short.txt").await, b"changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s748_an_upload_that_breaks_off_leaves_no_object() {
    let console = TestConsole::start().await;
    let client = Client::sign_in(&console, ADMIN);
    for length in [1 << 20, 40 << 20] {
        let mut stream = TcpStream::connect(console.address()).unwrap();
        let head = format!(
            "POST /upload?bucket={BUCKET}&key=broken HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\nx-csrf-token: {}\r\ncontent-length: {length}\r\n\r\n",
            console.address(),
            client.cookie,
            client.csrf
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![7; length - 1000]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        // The end of the connection means that the request was given up.
        stream.read_to_end(&mut Vec::new()).ok();
    }
    let answer = client.upload(&format!("/upload?bucket={BUCKET}&key=whole"), b"whole");
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(console.keys().await, ["whole"]);
    let uploads = console.store.uploads().unwrap();
    for _ in 0..200 {
        if uploads.list(Default::default()).await.unwrap().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the parts of the broken upload stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downloads_have_ranges_and_conditions() {
    let console = TestConsole::start().await;
    console.put("ä b.txt", "0123456789").await;
    let client = Client::sign_in(&console, ADMIN);
    let target = "/download?bucket=bucket&key=%C3%A4%20b.txt";
    let part = client.send("GET", target, &[("range", "bytes=2-4")], b"");
    assert_eq!((part.status, part.body.as_str(), part.header("content-range")), (206, "234", "bytes 2-4/10"));
    assert_eq!(part.header("content-disposition"), "attachment; filename*=UTF-8''%C3%A4%20b.txt");
    let etag = part.header("etag").to_owned();
    assert_eq!(client.send("GET", target, &[("if-none-match", &etag)], b"").status, 304);
    assert_eq!(client.send("GET", target, &[("range", "bytes=99-")], b"").status, 416);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_listed_page_by_page_and_deleted_with_their_contents() {
    let console = TestConsole::start().await;
    for number in 0..450 {
        console.put(&format!("many/{number:03}.txt"), "x").await;
    }
    console.put("many/deep/er/file", "x").await;
    console.put("other", "x").await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/bucket?name=bucket", console.url()));
    assert_eq!(browser.run(NAMES, &[]), "many/,other");
    browser.follow("a.directory");
    let mut seen = Vec::new();
    loop {
        seen.extend(browser.run(NAMES, &[]).as_str().unwrap().split(',').map(str::to_owned));
        if browser.run("return document.querySelector('a[rel=next]') === null", &[]) == true {
            break;
        }
        let before = browser.url();
        browser.follow("a[rel=next]");
        browser.wait_until("return location.href !== arguments[0]", &[&before]);
    }
    let expected: Vec<String> =
        (0..450).map(|number| format!("{number:03}.txt")).chain(["deep/".to_owned()]).collect();
    seen.sort();
    assert_eq!(seen, expected);
    // Two objects by their boxes.
    browser.open(&format!("{}/bucket?name=bucket&prefix=many%2F", console.url()));
    browser.click("input[aria-label='Select 000.txt']");
    browser.click("input[aria-label='Select 001.txt']");
    browser.follow("button.danger");
    browser.wait_until("return document.title === 'Delete? – Tenon'", &[]);
    assert!(browser.visible_text().contains("many/001.txt"), "{}", browser.visible_text());
    assert_eq!(console.keys().await.len(), 452);
    browser.follow("form[action='/delete'] button");
    browser.wait_until("return document.title === 'many – Tenon'", &[]);
    assert!(browser.visible_text().contains("Deleted 2 objects."), "{}", browser.visible_text());
    assert_eq!(console.keys().await.len(), 450);
    // The directory with all its contents.
    browser.open(&format!("{}/bucket?name=bucket", console.url()));
    browser.click("input[aria-label='Select many/']");
    browser.follow("button.danger");
    assert!(browser.visible_text().contains("many/ with 449 objects"), "{}", browser.visible_text());
    browser.follow("form[action='/delete'] button");
    browser.wait_until("return document.title === 'bucket – Tenon'", &[]);
    assert_eq!(console.keys().await, ["other"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_versions_and_links_of_an_object() {
    let console = TestConsole::start().await;
    console.store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    console.put("dir/file.txt", "first").await;
    console.put("dir/file.txt", "second!").await;
    let browser = console.browser(ADMIN);
    browser.open(&format!("{}/object?bucket=bucket&key=dir%2Ffile.txt", console.url()));
    assert!(browser.visible_text().contains("7 B"), "{}", browser.visible_text());
    // Tags.
    browser.click("section[aria-labelledby=tags-title] summary");
    browser.type_into("#tags", "colour=green +-=._:/@\nyear=2026");
    browser.follow("form[action='/object/tags'] button");
    browser.wait_until("return document.body.innerText.includes('Saved the tags.')", &[]);
    let chips = browser
        .run("return [...document.querySelectorAll('.chips li')].map(li => li.innerText).join('|')", &[]);
    assert_eq!(chips, "colour green +-=._:/@|year 2026");
    // A link that works without signing in, and no more once its signature is changed.
    browser.follow("section[aria-labelledby=link-title] button");
    browser.wait_until("return document.querySelector('#link') !== null", &[]);
    let link = browser.run("return document.querySelector('#link').value", &[]).as_str().unwrap().to_owned();
    let get = |url: &str| {
        let target = url.strip_prefix(&console.server.url()).unwrap();
        let mut stream = TcpStream::connect(console.server.address()).unwrap();
        let host = console.server.address();
        write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        read_answer(stream)
    };
    let answer = get(&link);
    assert_eq!((answer.status, answer.body.as_str()), (200, "second!"), "{answer:?}");
    assert_eq!(get(&link.replace("file.txt", "other")).status, 403);
    // Versions: the older one is downloaded, and removed for good.
    assert!(browser.visible_text().contains("2 versions"), "{}", browser.visible_text());
    let older = "tbody tr:nth-child(2) a[aria-label^='Download version']";
    assert_eq!(browser.run(DOWNLOAD, &[older]), sha256(b"first").as_str());
    browser.follow("tbody tr:nth-child(2) button");
    assert!(browser.visible_text().contains("removed for good"), "{}", browser.visible_text());
    browser.follow("form[action='/delete'] button");
    browser.open(&format!("{}/object?bucket=bucket&key=dir%2Ffile.txt", console.url()));
    assert!(browser.visible_text().contains("1 version\n"), "{}", browser.visible_text());
    assert_eq!(console.bytes("dir/file.txt").await, b"second!");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_are_created_and_deleted() {
    let console = TestConsole::start().await;
    let browser = console.browser(ADMIN);
    browser.click("details.tools summary");
    browser.type_into("#new-bucket", "fresh");
    browser.follow("form[action='/buckets/create'] button");
    browser.wait_until("return document.body.innerText.includes('Created the bucket fresh.')", &[]);
    assert_eq!(console.buckets.list().await.unwrap(), ["bucket", "fresh"]);
    browser.click("details.tools summary");
    browser.run("document.querySelector('#old-bucket').value = 'fresh'", &[]);
    browser.follow("form[action='/buckets/delete'] button");
    browser.wait_until("return document.body.innerText.includes('Deleted the bucket fresh.')", &[]);
    assert_eq!(console.buckets.list().await.unwrap(), ["bucket"]);
}

/// Buckets of which one store is given. They can be neither made nor deleted.
#[derive(Debug)]
struct OneBucket(Arc<dyn ObjectStore>);

#[async_trait::async_trait]
impl Buckets for OneBucket {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        match name {
            BUCKET => Ok(self.0.clone()),
            _ => Err(StoreError::NoSuchBucket(name.to_owned())),
        }
    }

    async fn create(&self, name: &str) -> store::Result<()> {
        Err(StoreError::Denied(name.to_owned()))
    }

    async fn delete(&self, name: &str) -> store::Result<()> {
        Err(StoreError::Denied(name.to_owned()))
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        Ok(vec![BUCKET.to_owned()])
    }
}

/// Any error of the listing of versions was shown as an object without versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s761_versions_that_cannot_be_listed_are_not_shown_as_none() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(Entropy::keyed(&[7; 32])));
    let store = DirStore::open(dir.path(), DirOptions::default(), clock, entropy).unwrap();
    let faults = Faults::new();
    let store = Arc::new(Wrapped::new(store, faults.clone()));
    let console = TestConsole::start_with(Arc::new(OneBucket(store))).await;
    console.put("a", "bytes").await;
    let client = Client::sign_in(&console, ADMIN);
    // A directory has no versions, which is not a failure.
    let page = client.get("/object?bucket=bucket&key=a").body;
    assert!(!page.contains("versions-title"), "{page}");
    faults.add(Rule::new(Fault::unavailable()).on(Operation::List).always());
    let page = client.get("/object?bucket=bucket&key=a");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("The versions cannot be listed: "), "{}", page.body);
}

/// A user who may not list versions sees none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s761_a_user_who_may_not_list_versions_sees_none() {
    let console = TestConsole::start().await;
    console.store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    console.put("a", "first").await;
    console.put("a", "second").await;
    let policy = r#"{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": ["s3:ListBucketVersions"], "Resource": ["arn:aws:s3:::bucket"]}]}"#;
    console.store.settings().unwrap().set("policy", Some(policy.into())).await.unwrap();
    let page = Client::sign_in(&console, ADMIN).get("/object?bucket=bucket&key=a");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(!page.body.contains("versions-title") && page.body.contains("6 B"), "{}", page.body);
}
