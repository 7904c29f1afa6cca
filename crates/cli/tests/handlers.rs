//! An event handler as a process of its own, and clients of it.

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

/// A run of `tenon` that goes on, and what it has said so far.
pub(crate) struct Run {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Run {
    pub(crate) fn start(home: &Home, words: &[&str]) -> Self {
        let mut command = home.command(tenon());
        let mut child = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, out) = (Arc::new(Mutex::new(Vec::new())), child.stdout.take().unwrap());
        let noted = lines.clone();
        std::thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(Result::ok)
                .for_each(|line| noted.lock().unwrap().push(line));
        });
        Self { child, lines }
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn first_line(&self) -> String {
        eventually("the process says something", || !self.lines().is_empty());
        self.lines()[0].clone()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A port that nobody has at the moment.
pub(crate) fn free_port() -> u16 {
    servers::free_address().port()
}

impl Home {
    /// A volume with an endpoint that tells a port what happens, and clients' credentials.
    fn served(self, events: u16) -> (Self, String) {
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

    fn handler(&self, url: &str, listen: &str, events: u16) -> Run {
        let source = format!("webhook://127.0.0.1:{events}/told");
        Run::start(
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
fn s276_s277_clients_of_a_handler_see_changes_and_go_on_while_it_is_killed_and_back() {
    let events = free_port();
    let (home, url) = Home::new().served(events);
    home.boto(
        &url,
        "notify()\ns3.put_object(Bucket='volume', Key='a', Body=b'1', Metadata={'color': 'green'})",
    );
    let handler = home.handler(&url, "127.0.0.1:0", events);
    let at = handler.first_line();
    let client = ["--handler", &at, "--handler-token", "client-token"];
    let watch =
        Run::start(&home, &[&["views", "watch", "rules.yaml", "--interval", "100ms"], &client[..]].concat());
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
    assert!(stats.contains(" behind; 0 messages wait there\n"), "{stats}");
    // `a` is stored, and changed; `b` is stored, and no view wants `c` that is red.
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
    eventually("the client hears what was missed", || watch.lines().len() == 5);
    let mut last = watch.lines()[3..].to_vec();
    last.sort();
    assert_eq!(last, ["+ green s3://volume/d", "- green s3://volume/b"]);
    drop(watch);
    home.ok(["umount", "mnt"]);
}

#[test]
fn s278_a_handler_is_only_for_who_knows_its_token_and_ends_in_good_order() {
    let events = free_port();
    let (home, url) = Home::new().served(events);
    let mut handler = home.handler(&url, "127.0.0.1:0", events);
    let at = handler.first_line();
    for more in [&[][..], &["--handler-token", "token"]] {
        let refused = home.refused([&["views", "list", "rules.yaml", "--handler", &at], more].concat());
        assert!(refused.contains("token") && !refused.contains(TOKEN), "{refused}");
    }
    let halves = format!("1/2={at}");
    let refused = home.refused(["views", "list", "rules.yaml", "--handler", &halves]);
    assert!(refused.contains("a handler of each part"), "{refused}");
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
fn what_a_source_says_is_shown_as_it_comes() {
    let home = Home::new();
    let events = free_port();
    let tail = Run::start(
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

/// Two mounts with rulesets of their own ask one handler; one goes on with what it knows when that is gone.
#[test]
fn s265_mounts_ask_a_handler_that_others_run() {
    let events = free_port();
    let (home, url) = Home::new().served(events);
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
    assert!(status.contains("green: 1 objects; as it was"), "{status}");
    home.ok(["umount", "views"]);
}
