//! Events as what keeps ordinary paths current: kernels and tables believe for an hour, and see in a moment what others do.

use crate::fixture::{Home, eventually};
use crate::s3::{home, new_bucket};
use crate::view_mounts::{Client, Telling, names, requests};
use std::fs;
use std::time::Duration;
use tokio::time::Instant;

fn seen(what: &str, holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    eventually(what, holds);
    began.elapsed()
}

#[test]
fn s268_what_others_do_is_seen_at_ordinary_paths_though_all_is_believed_for_an_hour() {
    let telling = Telling::start();
    let bucket = new_bucket(&telling.server, "coherent");
    let client = Client::of(&telling.server, &bucket);
    let home = telling.home();
    client.put("dir/file", "short", &[]);
    client.put("dir/gone", "x", &[]);
    let [events, secret] = &telling.flags;
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", events, secret, "--metadata-ttl=1h", "--list-budget=0/m"]);
    telling.tells_of(&home, &bucket);
    let (root, dir) = (home.mnt(), home.mnt().join("dir"));
    let size = |name: &str| fs::metadata(dir.join(name)).map(|found| found.len()).ok();
    assert_eq!(
        (names(&root), names(&dir)),
        (vec!["dir".to_owned()], vec!["file".to_owned(), "gone".to_owned()])
    );
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "short");

    client.put("dir/file", "much longer", &[]);
    let took = seen("the size is the new one", || size("file") == Some(11));
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "much longer");
    client.put("dir/new", "new", &[]);
    seen("a new object is listed", || names(&dir).contains(&"new".to_owned()));
    assert_eq!(fs::read_to_string(dir.join("new")).unwrap(), "new");
    client.delete("dir/gone");
    seen("a deleted one is not", || size("gone").is_none());
    assert_eq!(names(&dir), ["file", "new"]);
    client.put("other/deep/file", "in a directory", &[]);
    seen("a directory appears", || names(&root) == ["dir", "other"]);
    assert_eq!(fs::read_to_string(root.join("other/deep/file")).unwrap(), "in a directory");
    client.delete("other/deep/file");
    seen("a directory vanishes", || names(&root) == ["dir"] && !root.join("other").exists());

    // A program that has it open goes on with what it opened.
    let mut open = fs::File::open(dir.join("file")).unwrap();
    client.put("dir/file", "again other", &[]);
    // Until the event is heard, a further descriptor of the version that is open may be told that it is gone (S431).
    let is_stale = |error: &std::io::Error| error.raw_os_error() == Some(libc::ESTALE);
    seen("the next who opens it sees", || match fs::read_to_string(dir.join("file")) {
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

    // What is done here comes back, and costs nothing.
    let messages = || home.status()["event_sources"][0]["messages"].as_u64().unwrap();
    let (before, asked) = (messages(), requests(&home));
    for number in 0..10 {
        fs::write(dir.join(format!("ours-{number}")), "x").unwrap();
    }
    eventually("the bucket has told of it", || messages() >= before + 10);
    let asked = requests(&home) - asked;
    assert!(asked <= 12, "{asked} requests for ten files");
    assert!(home.ok(["status", "mnt"]).contains("connected"));
    home.ok(["umount", "mnt"]);
}

/// Much at once does not hold up what comes after it.
#[test]
fn s269_a_thousand_objects_that_others_store_are_seen() {
    let telling = Telling::start();
    let bucket = new_bucket(&telling.server, "burst");
    let client = Client::of(&telling.server, &bucket);
    let home = telling.home();
    client.put("dir/first", "x", &[]);
    let [events, secret] = &telling.flags;
    let volume = format!("s3://{bucket}");
    home.ok(["mount", &volume, "mnt", events, secret, "--metadata-ttl=1h"]);
    telling.tells_of(&home, &bucket);
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

/// A channel that lost what it had to say is as good as none until somebody looks again, which is at once.
#[test]
fn s269_what_happened_while_the_broker_was_away_is_seen_when_it_is_back() {
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
    assert_eq!((size(), names(&dir).len()), (5, 1), "nobody said so");
    redis.restart();
    eventually("all is asked for again", || size() == 11 && names(&dir) == ["file", "new"]);
    home.ok(["umount", "mnt"]);
}

#[test]
fn volumes_whose_objects_are_no_files_hear_nothing() {
    let home = Home::new();
    home.ok(["format", "by-inode", "--naming=inode"]);
    let said = home.refused(["mount", "by-inode", "mnt", "--events=webhook://127.0.0.1:0/"]);
    assert!(said.contains("named by inode") && said.contains("tenon import"), "{said}");
    let said = home.refused(["mount", "by-inode", "mnt", "--handler=http://127.0.0.1:1"]);
    assert!(said.contains("--views FILE"), "{said}");
}
