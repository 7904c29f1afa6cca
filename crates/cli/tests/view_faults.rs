//! Views whose mounts are killed, whose handlers hang, or whose sources send nonsense.

use crate::chain::tcp_proxy::TcpProxy;
use crate::fixture::{Home, eventually};
use crate::handlers::{RunningTenon, free_port};
use crate::s3::{home, new_bucket};
use crate::view_mounts::{Client, names};
use rustix::process::Signal;
use servers::{Mode, S3Server};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

const OBJECTS: usize = 60;

/// Returns the file of this name below a directory.
fn find_file(name: &str, dir: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find_map(|path| match path.is_dir() {
        true => find_file(name, &path),
        false => path.ends_with(name).then_some(path),
    })
}

/// Between a rename and the kill, no request reaches the server, or some objects are moved.
#[test]
fn s272_a_mount_that_is_killed_during_a_rename_continues_it() {
    let server = servers::shared_minio();
    let proxy = servers::proxy(&server.endpoint());
    let bucket = new_bucket(server, "killed-rename");
    let client = Client::of(server, &bucket);
    for number in 0..OBJECTS {
        client.put(&format!("key-{number}"), "x", &[("tenon-directory", "d0")]);
    }
    let home = home(server).with("AWS_ENDPOINT_URL", &proxy.endpoint());
    fs::write(
        home.path("rules.yaml"),
        format!("all:\n  container: {bucket}\n  properties: {{color: null}}\n"),
    )
    .unwrap();
    let words = ["mount", "--views=rules.yaml", "mnt", "--metadata-ttl=1h"];
    home.ok(words);
    let dir = |number: usize| home.mnt().join(format!("all/d{number}"));
    for (number, pause) in [None, Some(0), Some(15), Some(60)].into_iter().enumerate() {
        assert_eq!(names(&dir(number)).len(), OBJECTS);
        if pause.is_none() {
            proxy.set(Mode::BlackHole);
        }
        fs::rename(dir(number), dir(number + 1)).unwrap();
        std::thread::sleep(Duration::from_millis(pause.unwrap_or(50)));
        home.signal(home.pid(), Signal::KILL);
        home.ok(["umount", "mnt"]);
        proxy.set(Mode::Pass);
        // Add what a power loss may leave of a line that was not acknowledged.
        let journal = find_file("directories", &home.path("home")).unwrap();
        let mut journal = fs::OpenOptions::new().append(true).open(journal).unwrap();
        journal.write_all(br#"{"container":"x","ke"#).unwrap();
        home.ok(words);
        // The handler examines objects again that were being moved when the mount was killed.
        let has_moved = || names(&home.mnt().join("all")) == [format!("d{}", number + 1)];
        assert!(has_moved() || pause.is_some(), "before any object was moved");
        eventually("all are in the new directory", has_moved);
        assert_eq!(names(&dir(number + 1)).len(), OBJECTS);
        let says = |key: usize| client.user(&format!("key-{key}")).remove("tenon-directory");
        let to = format!("d{}", number + 1);
        eventually("all objects were moved", || (0..OBJECTS).all(|key| says(key).as_ref() == Some(&to)));
    }
    home.ok(["umount", "mnt"]);
}

/// A handler that accepts connections but does not answer counts as lost, and programs do not wait long for it.
#[test]
fn s274_programs_do_not_wait_long_for_a_hanging_handler() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "still");
    let client = Client::of(server, &bucket);
    client.put("a", "first", &[]);
    let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::write(home.path("rules.yaml"), format!("all:\n  container: {bucket}\n  recency: 0\n")).unwrap();
    let handler =
        RunningTenon::start(&home, &["events", "serve", "--listen=127.0.0.1:0", "--state-dir=handler"]);
    home.ok(["mount", "--views=rules.yaml", "mnt", "--handler", &handler.first_line()]);
    let all = home.mnt().join("all");
    assert_eq!(names(&all), ["a"]);
    home.signal(handler.pid(), Signal::STOP);
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(names(&all), ["a"]);
        assert_eq!(fs::read_to_string(all.join("a")).unwrap(), "first");
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    let status = home.ok(["status", "mnt"]);
    assert!(status.contains("all: 1 objects; out of date"), "{status}");
    home.signal(handler.pid(), Signal::CONT);
    let is_back = || !home.ok(["status", "mnt"]).contains("out of date");
    eventually("the handler is asked again", || names(&all) == ["a"] && is_back());
    home.ok(["umount", "mnt"]);
}

/// 32 processes that start together cause one listing.
#[test]
fn s252_many_clients_that_start_together_cost_one_listing() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "together");
    let client = Client::of(server, &bucket);
    (0..20).for_each(|number| client.put(&format!("key-{number}"), "x", &[("color", "green")]));
    let proxy = TcpProxy::to(server.address());
    let home = home(server).with("AWS_ENDPOINT_URL", &format!("http://{}", proxy.address));
    let rules = format!("one:\n  container: {bucket}\ntwo:\n  container: {bucket}\n  object: '*-1*'\n");
    fs::write(home.path("rules.yaml"), rules).unwrap();
    let handler =
        RunningTenon::start(&home, &["events", "serve", "--listen=127.0.0.1:0", "--state-dir=handler"]);
    let at = handler.first_line();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let listed = home.ok(["views", "list", "rules.yaml", "--handler", &at]);
                assert_eq!(listed, "one: 20 objects, 20 bytes\ntwo: 11 objects, 11 bytes\n");
            });
        }
    });
    assert_eq!(proxy.count("list-type=2"), 1, "listings");
    assert_eq!(proxy.count(&format!("HEAD /{bucket}/key-")), 0, "HEAD requests");
}

/// A handler with a webhook source, and a mount that uses it.
struct WebhookSetup {
    home: Home,
    handler: RunningTenon,
    port: u16,
}

impl WebhookSetup {
    fn new(server: &S3Server, rules: &str) -> Self {
        let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
        fs::write(home.path("rules.yaml"), rules).unwrap();
        fs::write(home.path("secret"), "hush\n").unwrap();
        fs::set_permissions(home.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let port = free_port();
        let events = format!("--events=webhook://127.0.0.1:{port}/told");
        let words =
            ["events", "serve", "--listen=127.0.0.1:0", "--state-dir=handler", "--event-secret=secret"];
        let handler =
            RunningTenon::start(&home, &[&words[..], &[events.as_str(), "--log-file=log"]].concat());
        let at = handler.first_line();
        home.ok(["mount", "--views=rules.yaml", "mnt", "--handler", &at, "--metadata-ttl=0s"]);
        Self { home, handler, port }
    }

    /// Posts a message. Returns the status of the answer.
    fn post(&self, secret: &str, body: &str) -> String {
        let length = body.len();
        let head = format!(
            "POST /told HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {secret}\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    }
}

/// Returns an event as MinIO writes it.
fn event(bucket: &str, key: &str, time: &str) -> String {
    format!(
        r#"{{"Records":[{{"eventVersion":"2.0","eventSource":"minio:s3","eventTime":"{time}","eventName":"s3:ObjectCreated:Put",
        "s3":{{"bucket":{{"name":"{bucket}"}},"object":{{"key":"{key}","size":1,"eTag":"e","sequencer":"18D7"}}}}}}]}}"#
    )
}

/// Wrong rules, buckets, secrets, messages and times do not affect correct ones.
#[test]
fn s282_invalid_input_does_not_affect_others() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "nonsense");
    let client = Client::of(server, &bucket);
    client.put("a", "first", &[]);
    let setup = WebhookSetup::new(server, &format!("all:\n  container: {bucket}\n"));
    let all = setup.home.mnt().join("all");
    assert_eq!(names(&all), ["a"]);
    let at = setup.handler.first_line();
    fs::write(setup.home.path("wrong.yaml"), "all:\n  contaner: x\n").unwrap();
    let wrong = setup.home.tenon(["views", "list", "wrong.yaml", "--handler", &at]);
    assert!(wrong.err.contains("wrong.yaml:2:3: 'contaner' is not a rule"), "{wrong:?}");
    fs::write(setup.home.path("none.yaml"), "none:\n  container: no-such-bucket\n").unwrap();
    let missing = setup.home.refused(["views", "list", "none.yaml", "--handler", &at]);
    assert!(missing.contains("no-such-bucket"), "{missing}");
    let now = "2026-11-22T18:00:00.000Z";
    assert_eq!(setup.post("guess", &event(&bucket, "b", now)), "401");
    for nonsense in [
        "{\"Records\":[{",
        "\u{0}\u{1}",
        "[]",
        &event(&bucket, &"k".repeat(2000), now),
        &event(&bucket, "", now),
        &event(&bucket, "b", "yesterday"),
        &event(&bucket, "b", "2999-01-01T00:00:00.000Z"),
        &event(&bucket, "b", "1970-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(setup.post("hush", nonsense), "200", "{nonsense}");
    }
    client.put("b", "second", &[]);
    assert_eq!(setup.post("hush", &event(&bucket, "b", now)), "200");
    eventually("the valid event is applied", || names(&all) == ["a", "b"]);
    assert_eq!(fs::read_to_string(all.join("b")).unwrap(), "second");
    let letters =
        fs::read_to_string(find_file("dead-letters", &setup.home.path("handler")).unwrap()).unwrap();
    assert!((3..=6).contains(&letters.lines().count()), "{letters}");
    setup.home.ok(["umount", "mnt"]);
}
