//! Events keep ordinary paths current: the kernel and the tables cache entries for an hour, and still show foreign
//! changes in a moment.

use crate::fixture::{Home, eventually};
use crate::s3::{home, new_bucket};
use crate::view_mounts::{Client, NotifyingServer, names, requests};
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

fn time_until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    eventually(what, holds);
    began.elapsed()
}

#[test]
fn s268_foreign_changes_are_seen_at_ordinary_paths_despite_a_long_cache_time() {
    let notifying = NotifyingServer::start();
    let bucket = new_bucket(&notifying.server, "coherent");
    let client = Client::of(&notifying.server, &bucket);
    let home = notifying.home();
    client.put("dir/file", "short", &[]);
    client.put("dir/gone", "x", &[]);
    let [events, secret] = &notifying.flags;
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", events, secret, "--metadata-ttl=1h", "--list-budget=0/m"]);
    notifying.enable_notifications(&home, &bucket);
    let (root, dir) = (home.mnt(), home.mnt().join("dir"));
    let size = |name: &str| fs::metadata(dir.join(name)).map(|found| found.len()).ok();
    assert_eq!(
        (names(&root), names(&dir)),
        (vec!["dir".to_owned()], vec!["file".to_owned(), "gone".to_owned()])
    );
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "short");

    client.put("dir/file", "much longer", &[]);
    let took = time_until("the size is the new one", || size("file") == Some(11));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "much longer");
    client.put("dir/new", "new", &[]);
    time_until("a new object is listed", || names(&dir).contains(&"new".to_owned()));
    assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "new");
    client.delete("dir/gone");
    time_until("a deleted one is not", || size("gone").is_none());
    assert_eq!(names(&dir), ["file", "new"]);
    client.put("other/deep/file", "in a directory", &[]);
    time_until("a directory appears", || names(&root) == ["dir", "other"]);
    assert_eq!(fs::read_to_string(root.join("other/deep/file")).unwrap(), "in a directory");
    client.delete("other/deep/file");
    time_until("a directory vanishes", || names(&root) == ["dir"] && !root.join("other").exists());

    // A program that has the file open keeps what it opened.
    let mut open = fs::File::open(dir.join("file")).unwrap();
    client.put("dir/file", "again other", &[]);
    // Until the event is applied, another open of the old version may report that it is gone (S431).
    let is_stale = |error: &std::io::Error| error.raw_os_error() == Some(libc::ESTALE);
    time_until("the next open sees it", || match fs::read_to_string(dir.join("file")) {
        Ok(text) => text == "again other",
        Err(error) => {
            assert!(is_stale(&error), "{error}");
            false
        }
    });
    let mut text = String::new();
    match std::io::Read::read_to_string(&mut open, &mut text) {
        Ok(_) => assert_eq!(text, "much longer"),
        Err(error) => assert!(is_stale(&error), "{error}"),
    }
    drop(open);

    // The mount's own changes come back as events, and cost nothing.
    let messages = || home.status()["event_sources"][0]["messages"].as_u64().unwrap();
    let (before, asked) = (messages(), requests(&home));
    for number in 0..10 {
        fs::write(dir.join(format!("ours-{number}")), "x").unwrap();
    }
    eventually("the bucket has sent the events", || messages() >= before + 10);
    let asked = requests(&home) - asked;
    assert!(asked <= 12, "{asked} requests for ten files");
    assert!(home.ok(["status", "mnt"]).contains("connected"));
    home.ok(["umount", "mnt"]);
}

/// A burst of events does not delay what comes after it.
#[test]
fn s269_a_thousand_foreign_objects_are_seen() {
    let notifying = NotifyingServer::start();
    let bucket = new_bucket(&notifying.server, "burst");
    let client = Client::of(&notifying.server, &bucket);
    let home = notifying.home();
    client.put("dir/first", "x", &[]);
    let [events, secret] = &notifying.flags;
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", events, secret, "--metadata-ttl=1h"]);
    notifying.enable_notifications(&home, &bucket);
    let dir = home.mnt().join("dir");
    assert_eq!(names(&dir), ["first"]);
    for number in 0..1000 {
        client.put(&format!("dir/{number:04}"), "x", &[]);
    }
    eventually("all of them are there", || names(&dir).len() == 1001);
    for number in 0..1000 {
        client.delete(&format!("dir/{number:04}"));
    }
    eventually("none of them is", || names(&dir) == ["first"]);
    home.ok(["umount", "mnt"]);
}

/// After a channel has lost events, everything is stale until it is read again, which happens as soon as the channel
/// is back.
#[test]
fn s269_changes_during_a_broker_outage_are_seen_afterwards() {
    let server = servers::shared_minio();
    let mut redis = servers::redis();
    let bucket = new_bucket(server, "lost");
    let client = Client::of(server, &bucket);
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let home = home.with("TENON_EVENTS_SECRET", &format!("{}:{}", redis.user(), redis.password()));
    client.put("dir/file", "short", &[]);
    let events = format!("--events={}/0?channel=events", redis.url_without_user());
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", &events, "--metadata-ttl=1h", "--list-budget=0/m"]);
    let is_connected = || home.status()["event_sources"][0]["connected"] == true;
    let dir = home.mnt().join("dir");
    eventually("it is connected", || names(&dir) == ["file"] && is_connected());
    let size = || fs::metadata(dir.join("file")).unwrap().len();
    assert_eq!(size(), 5);
    redis.stop();
    eventually("it is away", || !is_connected());
    client.put("dir/file", "much longer", &[]);
    client.put("dir/new", "x", &[]);
    assert_eq!((size(), names(&dir).len()), (5, 1), "no event came");
    redis.restart();
    eventually("everything is read again", || size() == 11 && names(&dir) == ["file", "new"]);
    home.ok(["umount", "mnt"]);
}

#[test]
fn volumes_named_by_inode_refuse_event_sources() {
    let home = Home::new();
    home.ok(["format", "by-inode", "--naming=inode"]);
    let output = home.refused(["mount", "by-inode", "mnt", "--events=webhook://127.0.0.1:0/"]);
    assert!(output.contains("named by inode") && output.contains("tenon import"), "{output}");
    let output = home.refused(["mount", "by-inode", "mnt", "--handler=http://127.0.0.1:1"]);
    assert!(output.contains("--views FILE"), "{output}");
}
