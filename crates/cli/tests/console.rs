//! The consoles of real processes: a mount over an embedded volume, a mount of a bucket with a conflict, and a served drive.

use crate::drives::ServeProcess;
use crate::endpoint::{KEY, SECRET};
use crate::events::Receiver;
use crate::fixture::{Home, capture};
use crate::users::make_certificate;
use servers::Browser;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// The flags of a console at a free port.
const CONSOLE: [&str; 4] = ["--console", "127.0.0.1:0", "--users", "users.toml"];

impl Home {
    /// Returns the URL of the console of the mount.
    fn console(&self) -> String {
        self.status()["console"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn sign_in(url: &str, user: &str) -> Browser {
    let browser = Browser::start();
    browser.open(url);
    browser.type_into("#access_key", user);
    browser.type_into("#secret_key", SECRET);
    browser.follow("button[type=submit]");
    browser.wait_until("return document.title === 'Buckets – Tenon'", &[]);
    browser
}

/// Clicks each page of the navigation, and returns their titles.
fn click_through(browser: &Browser) -> String {
    let titles =
        browser.run("return [...document.querySelectorAll('nav.pages a')].map(a => a.innerText).join()", &[]);
    let titles = titles.as_str().unwrap().to_owned();
    for (at, title) in titles.split(',').enumerate() {
        browser.follow(&format!("nav.pages li:nth-child({}) a", at + 1));
        browser.wait_until("return document.title === arguments[0] + ' – Tenon'", &[title]);
        assert_eq!(
            browser.run("return document.querySelector('main .notice.failure') === null", &[]),
            true,
            "{title}"
        );
    }
    titles
}

fn upload(browser: &Browser, path: &std::path::Path) {
    browser.type_into("#files", path.to_str().unwrap());
    browser.click("#upload button");
    browser.wait_until("return document.querySelector('#uploads .result.good') !== null", &[]);
}

#[test]
fn s753_a_mount_has_a_console_without_an_endpoint() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.ok(["mount", "volume", "mnt"].iter().chain(&CONSOLE));
    assert_eq!(home.status()["endpoint"], serde_json::Value::Null);
    fs::create_dir(home.mnt().join("docs")).unwrap();
    fs::write(home.mnt().join("docs/from the mount.txt"), "by a program").unwrap();
    fs::write(home.path("from the browser.txt"), "by a browser").unwrap();
    let browser = sign_in(&home.console(), KEY);
    assert_eq!(click_through(&browser), "Buckets,Status,Metrics,Conflicts,Batches,Views,Users,Log");
    assert!(
        browser
            .run("return document.querySelector('pre').textContent", &[])
            .as_str()
            .unwrap()
            .contains("the console is served at")
    );
    browser.open(&format!("{}/bucket?name=volume&prefix=docs%2F", home.console()));
    assert!(browser.visible_text().contains("from the mount.txt"), "{}", browser.visible_text());
    upload(&browser, &home.path("from the browser.txt"));
    assert_eq!(fs::read_to_string(home.mnt().join("docs/from the browser.txt")).unwrap(), "by a browser");
    browser.open(&format!("{}/object?bucket=volume&key=docs%2Ffrom%20the%20mount.txt", home.console()));
    assert!(
        !browser.visible_text().contains("Link for others"),
        "there is no endpoint that a link could lead to"
    );
    browser.follow("form[action='/delete/confirm'] button");
    browser.follow("form[action='/delete'] button");
    browser.wait_until("return document.title === 'docs – Tenon'", &[]);
    assert!(!home.mnt().join("docs/from the mount.txt").exists());
    // The whole directory, also with a directory that a program made in it.
    fs::create_dir(home.mnt().join("docs/inner")).unwrap();
    browser.open(&format!("{}/bucket?name=volume", home.console()));
    browser.click("input[aria-label='Select docs/']");
    browser.follow("button.danger");
    browser.follow("form[action='/delete'] button");
    browser.wait_until("return document.title === 'volume – Tenon'", &[]);
    assert!(!home.mnt().join("docs").exists(), "{:?}", fs::read_dir(home.mnt()).unwrap().collect::<Vec<_>>());
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

/// The status had no webhooks if only the console used the endpoint, nor if buckets were served.
#[test]
fn the_status_has_the_webhooks_of_a_console_without_an_endpoint() {
    let home = Home::new().with_users();
    home.ok(["format", "volume"]);
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    home.ok(["mount", "volume", "mnt", &receiver.flag()].iter().copied().chain(CONSOLE));
    assert_eq!(home.status()["webhooks"]["hook"]["sent"], 0, "{}", home.status());
    let browser = sign_in(&home.console(), KEY);
    browser.open(&format!("{}/status", home.console()));
    assert!(browser.visible_text().contains("To hook"), "{}", browser.visible_text());
    home.ok(["umount", "mnt"]);
    home.ok(["drive", "format", "drive.img", "--size", "256MiB"]);
    let drive = format!("drive://{}", home.path("drive.img").display());
    let serving = home.serve(&drive, &[&receiver.flag()]);
    let status: serde_json::Value = serde_json::from_str(&home.ok(["status", &drive, "--json"])).unwrap();
    assert_eq!(status["webhooks"]["hook"]["sent"], 0, "{status}");
    drop(serving);
}

#[test]
fn s753_requests_of_the_console_are_requests_of_the_endpoint() {
    let home = Home::new().with_users();
    home.ok(["format", "volume", "--naming", "inode"]);
    home.mount_and_serve("volume", &["--console", "127.0.0.1:0", "--access-log", "access.log"]);
    fs::write(home.mnt().join("a"), "bytes").unwrap();
    let browser = sign_in(&home.console(), KEY);
    browser.open(&format!("{}/object?bucket=volume&key=a&link=900", home.console()));
    let link = browser.run("return document.querySelector('#link').value", &[]);
    let fetched = capture(home.command("/usr/bin/curl").args(["--silent", "--fail", link.as_str().unwrap()]));
    assert_eq!((fetched.code, fetched.out.as_str()), (0, "bytes"), "{fetched:?}");
    browser.open(&format!("{}/metrics", home.console()));
    browser.click("summary");
    assert!(
        browser.visible_text().contains("tenon_s3_requests_total{operation=\"HeadObject\",status=\"200\"}")
    );
    let log = fs::read_to_string(home.path("access.log")).unwrap();
    assert!(
        log.lines().any(|line| line.contains(&format!("127.0.0.1 {KEY} HEAD HeadObject volume a 200"))),
        "{log}"
    );
    home.ok(["umount", "mnt"]);
}

#[test]
fn s753_conflicts_of_a_bucket_are_resolved_in_the_console() {
    let server = servers::shared_minio();
    let bucket = crate::s3::new_bucket(server, "console");
    let home = crate::s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint()).with_users();
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", "--metadata-ttl=0s", "--conflict=keep-both"].iter().chain(&CONSOLE));
    assert_eq!(home.race(&bucket, "raced.txt"), "0 0 0");
    let browser = sign_in(&home.console(), KEY);
    browser.follow("nav.pages a[href='/conflicts']");
    assert!(browser.visible_text().contains("raced.txt"), "{}", browser.visible_text());
    browser.follow("button[value=file]");
    browser.wait_until("return document.body.innerText.includes('There are no conflicts.')", &[]);
    assert_eq!(home.ok(["conflicts", "list", "mnt"]), "mnt has no conflicts\n");
    assert_eq!(fs::read_to_string(home.mnt().join("raced.txt")).unwrap(), "ours");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s753_a_served_drive_has_a_console_with_its_map() {
    let home = Home::new().with_users();
    home.ok(["drive", "format", "drive.img", "--size", "256MiB"]);
    let volume = format!("drive://{}", home.path("drive.img").display());
    let serving: ServeProcess = home.serve(&volume, &["--console", "127.0.0.1:0", "--log-file", "log"]);
    let status: serde_json::Value = serde_json::from_str(&home.ok(["status", &volume, "--json"])).unwrap();
    let url = status["console"].as_str().unwrap();
    let browser = sign_in(url, KEY);
    assert_eq!(click_through(&browser), "Buckets,Status,Metrics,Views,Drives,Users,Log");
    browser.follow("nav.pages a");
    browser.click("details.tools summary");
    browser.type_into("#new-bucket", "photos");
    browser.follow("form[action='/buckets/create'] button");
    browser.follow("main table a");
    fs::write(home.path("large"), vec![7; 40 << 20]).unwrap();
    upload(&browser, &home.path("large"));
    browser.open(&format!("{url}/drives"));
    assert_eq!(browser.run("return document.querySelectorAll('.map .runs').length > 0", &[]), true);
    browser.follow("form[action='/drives/scrub'] button");
    browser.wait_until("return document.body.innerText.includes('1 object (40 MiB) read')", &[]);
    assert!(browser.visible_text().contains("0 damaged beyond repair"), "{}", browser.visible_text());
    drop(serving);
}

#[test]
fn s750_the_console_is_for_this_machine_unless_allowed() {
    let home = Home::new().with_users();
    home.ok(["format", "volume"]);
    for command in [&["mount", "volume", "mnt"][..], &["serve", "volume", "--listen", "127.0.0.1:0"]] {
        let remote = ["--console", "0.0.0.0:0", "--users", "users.toml"];
        let refused = home.refused(command.iter().chain(&remote));
        assert!(refused.contains("--console-allow-remote"), "{refused}");
    }
    let remote = ["--console", "0.0.0.0:0", "--users", "users.toml", "--console-allow-remote"];
    home.ok(["mount", "volume", "mnt"].iter().chain(&remote));
    assert!(home.console().starts_with("http://0.0.0.0:"), "{}", home.console());
    home.ok(["umount", "mnt"]);
}

#[test]
fn s750_a_console_with_a_certificate_is_served_by_https() {
    let home = Home::new().with_users();
    make_certificate(&home, "own");
    home.ok(["format", "volume"]);
    let tls = ["--tls-cert", "own.pem", "--tls-key", "own.key"];
    home.ok(["mount", "volume", "mnt"].iter().chain(&CONSOLE).chain(&tls));
    let url = home.console();
    assert!(url.starts_with("https://"), "{url}");
    fs::write(home.path("form"), format!("access_key={KEY}&secret_key={SECRET}")).unwrap();
    fs::set_permissions(home.path("form"), fs::Permissions::from_mode(0o600)).unwrap();
    let target = format!("{url}/sign-in");
    let words = ["--silent", "--insecure", "--include", "--data", "@form", &target];
    let answer = capture(home.command("/usr/bin/curl").args(words));
    let cookie =
        answer.out.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:")).unwrap();
    assert!(cookie.contains("__Host-tenon-console") && cookie.contains("; Secure"), "{cookie}");
    home.ok(["umount", "mnt"]);
}
