//! Clients that take all resources they can: the endpoint's memory stays bounded, and other clients are served.

use crate::fixture::{Home, capture, eventually, tenon};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

pub(crate) const KEY: &str = "tenon-tests";
pub(crate) const SECRET: &str = "not-a-secret-but-long-enough";
/// Maximum memory of the endpoint beyond its memory without clients, in KiB.
const HELD_KIB_MAX: u64 = 512 << 10;

/// An endpoint in a process of its own, with the bucket `volume`.
pub(crate) struct EndpointProcess {
    pub(crate) home: Home,
    process: Child,
    pub(crate) address: String,
    log: fs::File,
}

impl EndpointProcess {
    fn start(limits: &str) -> Self {
        Self::start_with(limits, "")
    }

    /// Starts the endpoint with further users, in the format of the users file.
    pub(crate) fn start_with(limits: &str, more_users: &str) -> Self {
        let home = Home::new();
        let users = format!("[[user]]\naccess_key = \"{KEY}\"\nsecret_key = \"{SECRET}\"\n{more_users}");
        fs::write(home.path("users.toml"), users).unwrap();
        fs::set_permissions(home.path("users.toml"), fs::Permissions::from_mode(0o600)).unwrap();
        home.ok(["format", "volume", "--naming", "inode"]);
        let script = format!(
            "{limits} exec {} serve volume --users users.toml --listen 127.0.0.1:0 --memory-limit 64MiB",
            tenon().display()
        );
        let mut command = home.command("/bin/sh");
        let log = fs::File::create(home.path("log")).unwrap();
        command.args(["-c", &script]).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().strip_prefix("http://").unwrap().to_owned();
        let log = fs::File::open(home.path("log")).unwrap();
        Self { home, process, address, log }
    }

    /// Allows everybody to use the bucket.
    fn open_to_all(self) -> Self {
        let program = r#"
import boto3, os, json
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], region_name="us-east-1")
everything = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": ["arn:aws:s3:::volume", "arn:aws:s3:::volume/*"]}
s3.put_bucket_policy(Bucket="volume", Policy=json.dumps({"Version": "2012-10-17", "Statement": [everything]}))
"#;
        let mut script = self.home.command("/usr/bin/python3");
        let url = format!("http://{}", self.address);
        script.args(["-c", program]).env("URL", url);
        script.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        let outcome = capture(&mut script);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        self
    }

    /// Connects, and retries while the server is busy with many connections.
    fn connect(&self) -> TcpStream {
        let mut tries = (0..100).map(|_| {
            let connected = TcpStream::connect(&self.address);
            if connected.is_err() {
                std::thread::sleep(Duration::from_millis(100));
            }
            connected
        });
        let stream = tries.find_map(Result::ok).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Sends the beginning of a request, as far as the server accepts it.
    fn begin(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
        stream.write_all(bytes).ok();
        stream
    }

    /// Returns the memory of the server and its peak, in KiB.
    fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let kib = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        (kib("VmRSS:"), kib("VmHWM:"))
    }

    /// Asserts that another client is answered, perhaps after retries.
    fn assert_serves_others(&self) {
        eventually("another client is served", || {
            let mut stream = self.connect();
            stream.write_all(b"GET /volume/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).is_ok()
                && ["HTTP/1.1 404", "HTTP/1.1 403"].iter().any(|status| answer.starts_with(status))
        });
    }
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn s190_ten_thousand_idle_connections_cost_little() {
    let served = EndpointProcess::start("");
    served.assert_serves_others();
    let before = served.memory().0;
    let mut idle = Vec::new();
    for number in 0..10_000 {
        let mut stream = served.connect();
        if number % 2 == 0 {
            stream.write_all(b"GET /volume/none HTTP/1.1\r\nHost:").unwrap();
        }
        idle.push(stream);
    }
    served.assert_serves_others();
    let held = served.memory().0.saturating_sub(before);
    println!("10,000 idle connections: {held} KiB");
    assert!(held < 256 << 10, "{held} KiB");
    drop(idle);
    served.assert_serves_others();
}

/// Runs each attack on a server of its own, and measures the server's peak memory beyond its initial memory.
#[test]
fn s190_no_attack_exceeds_the_memory_limit() {
    let big_head = [b"GET /volume/none HTTP/1.1\r\nHost: x\r\nx-a: ".as_slice(), &[b'a'; 60_000]].concat();
    let slow_body = [
        b"PUT /volume/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 5368709120\r\n\r\n".as_slice(),
        &[7; 9 << 20],
    ]
    .concat();
    let document = |line: &str, [begin, piece, end]: [&str; 3]| {
        let text = [begin, &piece.repeat((3 << 20) / piece.len()), end].concat();
        format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
    };
    let deep = document("PUT /volume?tagging", ["", "<a>", ""]);
    let objects = ["<Delete>", "<Object><Key>a</Key></Object>", "</Delete>"];
    let objects = document("POST /volume?delete", objects);
    let parts = [
        "<CompleteMultipartUpload>",
        "<Part><PartNumber>1</PartNumber></Part>",
        "</CompleteMultipartUpload>",
    ];
    let parts = document("POST /volume/big?uploadId=1", parts);
    let form = "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n";
    let head = "POST /volume HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 60000000\r\n\r\n";
    let slow_form = [head.as_bytes(), form.as_bytes(), &[7; 9 << 20]].concat();
    let slow_document = objects[..objects.len() - 1].to_vec();
    let mut most = Vec::new();
    for (what, bytes, count) in [
        ("big heads", big_head, 3000),
        ("slow bodies", slow_body, 300),
        ("slow forms", slow_form, 300),
        ("slow documents", slow_document, 300),
        ("deep documents", deep, 300),
        ("lists of objects", objects, 300),
        ("lists of parts", parts, 300),
    ] {
        let served = EndpointProcess::start("").open_to_all();
        served.assert_serves_others();
        let before = served.memory().0;
        let clients = std::thread::scope(|scope| {
            let begin = || (0..count / 20).map(|_| served.begin(&bytes)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..20).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        std::thread::sleep(Duration::from_secs(1));
        let held = served.memory().1.saturating_sub(before);
        println!("{count} {what}: {held} KiB at most");
        most.push((what, held));
        drop(clients);
        served.assert_serves_others();
    }
    assert!(most.iter().all(|(_, held)| *held < HELD_KIB_MAX), "{most:?}");
}

#[test]
fn a_limit_of_open_files_is_raised_or_logged() {
    let raised = EndpointProcess::start("ulimit -S -n 300;");
    let limits = fs::read_to_string(format!("/proc/{}/limits", raised.process.id())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    assert_eq!(files[3], files[4], "{limits}");
    let mut low = EndpointProcess::start("ulimit -n 600;");
    low.assert_serves_others();
    let mut log = String::new();
    low.log.read_to_string(&mut log).unwrap();
    assert!(log.contains("300 connections") && log.contains("ulimit -n"), "{log}");
    let _idle: Vec<TcpStream> = (0..290).map(|_| low.connect()).collect();
    low.assert_serves_others();
}
