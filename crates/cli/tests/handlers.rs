//! An event handler as a process of its own, and its clients.

use crate::endpoint::{KEY, SECRET};
use crate::events::TOKEN;
use crate::fixture::{Home, eventually, tenon};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

const RULES: &str = "green:\n  container: volume\n  properties: {color: green}\n";

/// A `tenon` process that keeps running, and the lines that it has printed so far.
pub(crate) struct RunningTenon {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl RunningTenon {
    pub(crate) fn start(home: &Home, words: &[&str]) -> Self {
        let mut command = home.command(tenon());
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, out) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let recorded = lines.clone();
        std::thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| recorded.lock().unwrap().push(line));
        });
        Self { child, lines }
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn first_line(&self) -> String {
        eventually("the process prints a line", || !self.lines().is_empty());
        self.lines()[0].clone()
    }
}

impl Drop for RunningTenon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Returns a port that is free at the moment.
pub(crate) fn free_port() -> u16 {
    servers::free_address().port()
}

impl Home {
    /// Mounts and serves a volume whose endpoint sends events to a port, and writes credentials for clients.
    fn serve_with_events(self, events: u16) -> (Self, String) {
        let home = self
            .with_users()
            .with_token()
            .with("AWS_ACCESS_KEY_ID", KEY)
            .with("AWS_SECRET_ACCESS_KEY", SECRET);
        home.ok(["format", "volume", "--naming", "inode"]);
        let hook = format!("--webhook=hook=http://127.0.0.1:{events}/told");
        let url = home.mount_and_serve("volume", &[&hook, "--webhook-token=hook=token"]);
        fs::write(home.path("rules.yaml"), RULES).unwrap();
        fs::write(home.path("client-token"), "for-clients\n").unwrap();
        fs::set_permissions(home.path("client-token"), fs::Permissions::from_mode(0o600)).unwrap();
        (home, url)
    }

    fn handler(&self, url: &str, listen: &str, events: u16) -> RunningTenon {
        let source = format!("webhook://127.0.0.1:{events}/told");
        RunningTenon::start(
            self,
            &[
                "events",
                "serve",
                "--listen",
                listen,
                "--events",
                &source,
                "--event-secret",
                "token",
                "--token",
                "client-token",
                "--endpoint-url",
                url,
                "--state-dir",
                "handler",
            ],
        )
    }
}

#[test]
fn s276_s277_clients_of_a_handler_see_changes_across_its_restart() {
    let events = free_port();
    let (home, url) = Home::new().serve_with_events(events);
    home.boto(
        &url,
        "notify()\ns3.put_object(Bucket='volume', Key='a', Body=b'1', Metadata={'color': 'green'})",
    );
    let handler = home.handler(&url, "127.0.0.1:0", events);
    let at = handler.first_line();
    let client = ["--handler", &at, "--handler-token", "client-token"];
    let watch = RunningTenon::start(
        &home,
        &[&["views", "watch", "rules.yaml", "--interval", "100ms"], &client[..]].concat(),
    );
    let expect = |lines: &[&str]| {
        let has = || watch.lines() == lines;
        eventually(&format!("{lines:?}"), has);
    };
    expect(&["+ green s3://volume/a"]);
    home.boto(
        &url,
        "s3.put_object(Bucket='volume', Key='b', Body=b'22', Metadata={'color': 'green'})\n\
         s3.put_object(Bucket='volume', Key='c', Body=b'22', Metadata={'color': 'red'})",
    );
    expect(&["+ green s3://volume/a", "+ green s3://volume/b"]);
    home.boto(&url, "s3.put_object(Bucket='volume', Key='a', Body=b'1', Metadata={'color': 'red'})");
    expect(&["+ green s3://volume/a", "+ green s3://volume/b", "- green s3://volume/a"]);
    let listed = home.ok([&["views", "list", "rules.yaml"], &client[..]].concat());
    assert_eq!(listed, "green: 1 objects, 2 bytes\n");
    let stats = home.ok([&["events", "stats"], &client[..]].concat());
    assert!(stats.contains("connected") && stats.contains("unreadable 0"), "{stats}");
    assert!(stats.contains(" behind; 0 messages waiting\n"), "{stats}");
    // `a` is stored, and changed; `b` is stored; no view wants `c`, which is red.
    let outcomes = |line: &&str| line.starts_with("  hints: ") && line.contains(" applied, ");
    assert!(stats.lines().any(|line| outcomes(&line)), "{stats}");
    assert!(
        stats.starts_with("1 views of ") && stats.contains("\n  1 objects: container: [\"volume\"], "),
        "{stats}"
    );
    drop(handler);
    home.boto(
        &url,
        "s3.delete_object(Bucket='volume', Key='b')\n\
         s3.put_object(Bucket='volume', Key='d', Body=b'1', Metadata={'color': 'green'})",
    );
    let _handler = home.handler(&url, at.trim_start_matches("http://"), events);
    eventually("the client learns what it missed", || watch.lines().len() == 5);
    let mut last = watch.lines()[3..].to_vec();
    last.sort();
    assert_eq!(last, ["+ green s3://volume/d", "- green s3://volume/b"]);
    drop(watch);
    home.ok(["umount", "mnt"]);
}

#[test]
fn s278_a_handler_requires_its_token_and_ends_in_order() {
    let events = free_port();
    let (home, url) = Home::new().serve_with_events(events);
    let mut handler = home.handler(&url, "127.0.0.1:0", events);
    let at = handler.first_line();
    for more in [&[][..], &["--handler-token", "token"]] {
        let refused = home.refused([&["views", "list", "rules.yaml", "--handler", &at], more].concat());
        assert!(refused.contains("token") && !refused.contains(TOKEN), "{refused}");
    }
    let halves = format!("1/2={at}");
    let refused = home.refused(["views", "list", "rules.yaml", "--handler", &halves]);
    assert!(refused.contains("a handler for each part"), "{refused}");
    let port = free_port().to_string();
    let second = home.refused([
        "events",
        "serve",
        "--state-dir",
        "handler",
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--endpoint-url",
        &url,
    ]);
    assert!(second.contains("in use") || second.contains("already"), "{second}");
    home.signal(handler.child.id(), rustix::process::Signal::TERM);
    assert!(handler.child.wait().unwrap().success());
    let lost =
        home.refused(["views", "list", "rules.yaml", "--handler", &at, "--handler-token", "client-token"]);
    assert!(lost.contains("cannot be reached"), "{lost}");
    home.ok(["umount", "mnt"]);
}

#[test]
fn events_of_a_source_are_shown_as_they_arrive() {
    let home = Home::new();
    let events = free_port();
    let tail = RunningTenon::start(
        &home,
        &["events", "tail", &format!("webhook://127.0.0.1:{events}/t"), "--take", "--count", "1"],
    );
    let body = r#"{"Records":[{"eventName":"ObjectCreated:Put","eventTime":"2026-11-22T15:00:00Z","s3":{"bucket":{"name":"b"},"object":{"key":"a+b%2Fc","size":7,"sequencer":"01"}}}]}"#;
    let post = format!(
        "POST /t HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = None;
    eventually("the source listens", || TcpStream::connect(("127.0.0.1", events)).is_ok());
    stream
        .get_or_insert_with(|| TcpStream::connect(("127.0.0.1", events)).unwrap())
        .write_all(post.as_bytes())
        .unwrap();
    assert_eq!(tail.first_line(), "2026-11-22T15:00:00Z stored  s3://b/a b/c 7 bytes");
    let refused = home.refused(["events", "tail", "ftp://host/x"]);
    assert!(refused.contains("webhook"), "{refused}");
    let refused = home.refused(["events", "tail", "webhook://127.0.0.1:1/x", "--event-dialect", "klingon"]);
    assert!(refused.contains("eventbridge"), "{refused}");
}

/// Two mounts with different rulesets use one handler; one continues with what it knows when the handler is gone.
#[test]
fn s265_mounts_use_a_remote_handler() {
    let events = free_port();
    let (home, url) = Home::new().serve_with_events(events);
    let handler = home.handler(&url, "127.0.0.1:0", events);
    let at = handler.first_line();
    fs::create_dir(home.path("views")).unwrap();
    fs::write(home.path("rules.yaml"), RULES.replace("properties", "recency: 100ms\n  properties")).unwrap();
    let words = ["mount", "--views=rules.yaml", "views", "--handler", &at, "--handler-token=client-token"];
    home.ok(words.iter().chain(&["--endpoint-url", &url]));
    let green = home.path("views/green");
    assert_eq!(fs::read_dir(&green).unwrap().count(), 0);
    fs::write(green.join("made"), "in a view").unwrap();
    assert_eq!(fs::read_to_string(home.mnt().join("made")).unwrap(), "in a view");
    fs::write(home.path("body"), "put").unwrap();
    let put =
        |key: &str| home.ok(["object", "put", &format!("s3://volume/{key}"), "body", "--endpoint-url", &url]);
    put("plain");
    assert!(!green.join("plain").exists());
    drop(handler);
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(fs::read_to_string(green.join("made")).unwrap(), "in a view", "without the handler");
    let status = home.ok(["status", "views"]);
    assert!(status.contains("green: 1 objects; out of date"), "{status}");
    home.ok(["umount", "views"]);
}
