//! Events of a volume's endpoint: usual clients on one side, an HTTP receiver on the other.

use crate::endpoint::{KEY, SECRET};
use crate::fixture::{Home, capture, eventually};
use events::{EventKind, ObjectEvent};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

pub(crate) const TOKEN: &str = "hush-hush-token";

/// An HTTP receiver that accepts posts with the right token, after a delay.
pub(crate) struct Receiver {
    pub(crate) address: String,
    received: Arc<Mutex<Vec<ObjectEvent>>>,
    is_ending: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn start(address: &str, delay: Duration) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (received, is_ending) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (recorded, ending) = (received.clone(), is_ending.clone());
        let accepting = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                let (recorded, ending) = (recorded.clone(), ending.clone());
                std::thread::spawn(move || serve(stream, &recorded, &ending, delay));
            }
        });
        Self { address, received, is_ending, accepting: Some(accepting) }
    }

    pub(crate) fn flag(&self) -> String {
        format!("--webhook=hook=http://{}/", self.address)
    }

    pub(crate) fn received(&self) -> Vec<ObjectEvent> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.received().iter().map(|event| event.key.to_string()).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// Stops the receiver, so that its address refuses connections.
impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
        self.accepting.take().map(std::thread::JoinHandle::join);
    }
}

fn serve(
    stream: TcpStream,
    recorded: &Mutex<Vec<ObjectEvent>>,
    ending: &AtomicBool,
    delay: Duration,
) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let (headers, body) = read_post(&mut reader)?;
        std::thread::sleep(delay);
        // Ignore posts on connections that outlived the receiver.
        if ending.load(Ordering::Relaxed) {
            return None;
        }
        let is_right = headers.get("authorization").map(String::as_str) == Some(&format!("Bearer {TOKEN}"));
        let status = if is_right { "200 OK" } else { "403 Forbidden" };
        if is_right {
            recorded.lock().unwrap().extend(events::aws::parse(&body).unwrap());
        }
        write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Reads the next post of a connection: its headers and its body. Returns `None` if the connection ended.
pub(crate) fn read_post(reader: &mut impl BufRead) -> Option<(BTreeMap<String, String>, Vec<u8>)> {
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None if line.trim().is_empty() => break,
            None => None,
        };
    }
    let mut body = vec![0; headers.get("content-length").map_or(0, |len| len.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((headers, body))
}

impl Home {
    /// Writes the token to a file `token`.
    pub(crate) fn with_token(self) -> Self {
        fs::write(self.path("token"), format!("{TOKEN}\n")).unwrap();
        fs::set_permissions(self.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    /// Runs a boto3 program with the client `s3` and the bucket `volume`.
    pub(crate) fn boto(&self, url: &str, program: &str) {
        let begin = r#"
import boto3, io, json, os, urllib.request
from botocore.config import Config
s3 = boto3.client("s3", endpoint_url=os.environ["URL"], region_name="us-east-1", config=Config(retries={"max_attempts": 1}))
def notify(**rule):
    rule = {"QueueArn": "arn:tenon:sqs::hook:webhook", "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*"], **rule}
    s3.put_bucket_notification_configuration(Bucket="volume", NotificationConfiguration={"QueueConfigurations": [rule]})
"#;
        let mut command = self.command("/usr/bin/python3");
        command.args(["-c", &format!("{begin}{program}")]);
        command.envs([("URL", url), ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)]);
        let output = capture(&mut command);
        assert_eq!(output.code, 0, "{output:?}");
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        serde_json::from_value(self.status()["webhooks"]["hook"].clone()).unwrap()
    }

    fn dead_letters(&self) -> Vec<ObjectEvent> {
        let text = fs::read_to_string(self.path("volume/state/webhook-hook.dead.jsonl")).unwrap_or_default();
        text.lines().flat_map(|line| events::aws::parse(line.as_bytes()).unwrap()).collect()
    }
}

fn events_of_all_requests_arrive(format: &[&str]) {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_users().with_token();
    home.ok(["format", "volume"].iter().chain(format));
    let url = home.mount_and_serve("volume", &[&receiver.flag(), "--webhook-token=hook=token"]);
    home.boto(
        &url,
        r#"
notify()
s3.put_object(Bucket="volume", Key="in/a b+ü.txt", Body=b"abc", ContentType="text/plain", Metadata={"project": "x"}, Tagging="class=raw")
s3.copy_object(Bucket="volume", Key="copy", CopySource={"Bucket": "volume", "Key": "in/a b+ü.txt"})
s3.copy_object(Bucket="volume", Key="kept", CopySource={"Bucket": "volume", "Key": "in/a b+ü.txt"})
s3.put_object_tagging(Bucket="volume", Key="copy", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
s3.delete_object_tagging(Bucket="volume", Key="copy")
s3.upload_fileobj(io.BytesIO(b"x" * (9 << 20)), "volume", "big", ExtraArgs={"Metadata": {"project": "y"}})
s3.delete_objects(Bucket="volume", Delete={"Objects": [{"Key": "copy"}]})
post = s3.generate_presigned_post("volume", "posted")
line = "\r\n--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\n%s"
form = "".join(line % field for field in list(post["fields"].items()) + [("file", "from a form")]) + "\r\n--b--\r\n"
request = urllib.request.Request(post["url"], form.encode(), {"Content-Type": "multipart/form-data; boundary=b"})
assert urllib.request.urlopen(request).status in (200, 204)
"#,
    );
    eventually("everything arrived", || receiver.received().len() == 8);
    let received = receiver.received();
    let events_of = |key: &str| -> Vec<&ObjectEvent> {
        received.iter().filter(|event| event.key.as_bytes() == key.as_bytes()).collect()
    };
    let kinds = |key: &str| -> Vec<EventKind> { events_of(key).iter().map(|event| event.kind).collect() };
    let [put] = events_of("in/a b+ü.txt").try_into().unwrap();
    assert_eq!((put.kind, put.object.size_bytes), (EventKind::CreatedPut, Some(3)));
    assert_eq!(put.object.content_type.as_deref(), Some("text/plain"));
    assert_eq!(put.object.user.get("project").map(String::as_str), Some("x"));
    assert_eq!(put.object.tags.get("class").map(String::as_str), Some("raw"));
    assert_eq!((put.bucket.as_str(), put.principal.as_str()), ("volume", KEY));
    let copied =
        [EventKind::CreatedCopy, EventKind::TaggingPut, EventKind::TaggingDelete, EventKind::RemovedDelete];
    assert_eq!(kinds("copy"), copied);
    assert!(events_of("copy").is_sorted_by_key(|event| event.sequence));
    // An event shows the tags at the time when it is sent: those of the copy have changed since.
    assert_eq!(events_of("kept")[0].object.tags.get("class").map(String::as_str), Some("raw"));
    assert_eq!(kinds("big"), [EventKind::CreatedCompleteMultipartUpload]);
    let big = &events_of("big")[0].object;
    assert_eq!((big.size_bytes, big.user.get("project").map(String::as_str)), (Some(9 << 20), Some("y")));
    assert_eq!(kinds("posted"), [EventKind::CreatedPost]);
    // A message is counted after its answer has arrived.
    eventually("all messages are counted", || home.counts()["sent"] == 8);
    assert_eq!(home.counts()["failed"], 0);
    let shown = home.ok(["status", "mnt"]);
    assert!(shown.contains("hook: 8 sent, 0 queued"), "{shown}");
    home.ok(["umount", "mnt"]);
}

#[test]
fn s193_s194_events_of_all_requests_arrive_from_a_volume_named_by_inode() {
    events_of_all_requests_arrive(&["--naming", "inode"]);
}

#[test]
fn s193_s194_events_of_all_requests_arrive_from_a_volume_named_by_path() {
    events_of_all_requests_arrive(&["--naming", "file-path"]);
}

/// The receiver is down while clients write, and comes back: all events arrive, and no client waited.
#[test]
fn s196_a_receiver_that_was_down_gets_everything() {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_users().with_token().with("TENON_WEBHOOK_TOKEN_HOOK", TOKEN);
    home.ok(["format", "volume"]);
    let url = home.mount_and_serve("volume", &[&receiver.flag()]);
    home.boto(&url, "notify()\ns3.put_object(Bucket='volume', Key='before', Body=b'')");
    eventually("the first arrived", || receiver.keys() == ["before"]);
    let address = receiver.address.clone();
    drop(receiver);
    let program = "for n in range(40): s3.put_object(Bucket='volume', Key=f'while-{n % 10}', Body=b'%d' % n)";
    home.boto(&url, program);
    eventually("posts are repeated", || home.counts()["retried"] > 0);
    assert_eq!(home.counts()["sent"], 1);
    let receiver = Receiver::start(&address, Duration::ZERO);
    eventually("the rest arrived", || home.counts()["sent"] == 41);
    let received = receiver.received();
    assert_eq!(receiver.keys().len(), 10);
    for key in receiver.keys() {
        let of_key: Vec<_> = received.iter().filter(|event| event.key.to_string() == key).collect();
        assert!(of_key.len() >= 4 && of_key.is_sorted_by_key(|event| event.sequence), "{key}");
    }
    assert!(home.dead_letters().is_empty());
    home.ok(["umount", "mnt"]);
}

#[test]
fn s118_s196_a_wrong_token_makes_dead_letters_and_is_never_shown() {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_users().with_token();
    let wrong = "hush-hush-but-wrong";
    fs::write(home.path("token"), wrong).unwrap();
    home.ok(["format", "volume"]);
    let more = [&receiver.flag(), "--webhook-token=hook=token", "--log-level=trace", "--log-file=log"];
    let url = home.mount_and_serve("volume", &more);
    home.boto(&url, "notify()\ns3.put_object(Bucket='volume', Key='a', Body=b'')");
    eventually("it is a dead letter", || home.counts()["failed"] == 1);
    assert_eq!(home.dead_letters()[0].key.as_bytes(), b"a");
    assert!(receiver.received().is_empty());
    let arguments = fs::read(format!("/proc/{}/cmdline", home.pid())).unwrap();
    let seen = [
        String::from_utf8_lossy(&arguments).into_owned(),
        home.ok(["status", "mnt"]),
        fs::read_to_string(home.path("log")).unwrap(),
    ];
    for text in seen {
        assert!(!text.is_empty() && !text.contains(wrong), "{text}");
    }
    home.ok(["umount", "mnt"]);
    // With the right token the next event arrives.
    let home = home.with_token();
    let url = home.mount_and_serve("volume", &more);
    home.boto(&url, "s3.put_object(Bucket='volume', Key='b', Body=b'')");
    eventually("it arrived", || receiver.keys() == ["b"]);
    home.ok(["umount", "mnt"]);
}

/// Clients do not wait for a slow receiver, and the end waits only within its own limit: the remaining events are
/// dead letters.
#[test]
fn s193_s196_clients_do_not_wait_for_a_slow_receiver() {
    let receiver = Receiver::start("127.0.0.1:0", Duration::from_secs(2));
    let home = Home::new().with_users().with_token();
    home.ok(["format", "volume", "--naming", "inode"]);
    let url = home.mount_and_serve("volume", &[&receiver.flag(), "--webhook-token=hook=token"]);
    let began = Instant::now();
    home.boto(&url, "notify()\nfor n in range(60): s3.put_object(Bucket='volume', Key=f'{n}', Body=b'')");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(home.counts()["queued"] > 30, "{:?}", home.counts());
    let began = Instant::now();
    let pid = home.pid();
    home.signal(pid, rustix::process::Signal::TERM);
    eventually("the process has ended", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let dead = home.dead_letters();
    let mut keys: Vec<String> = dead.iter().map(|event| event.key.to_string()).collect();
    keys.extend(receiver.keys());
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), dead.is_empty()), (60, false));
}

#[test]
fn invalid_receivers_are_refused() {
    let home = Home::new().with_users().with_token();
    home.ok(["format", "volume"]);
    let refused = |more: &[&str]| {
        let words = ["serve", "volume", "--listen", "127.0.0.1:0", "--users", "users.toml"];
        home.refused(words.iter().chain(more))
    };
    for (more, says) in [
        (&["--webhook=http://127.0.0.1/"] as &[&str], "NAME=URL"),
        (&["--webhook=Hook=http://127.0.0.1/"], "lower-case"),
        (&["--webhook=hook=nowhere"], "https://host/path"),
        (&["--webhook=hook=http://me:hush-hush-token@127.0.0.1/"], "token"),
        (&["--webhook=hook=http://127.0.0.1/", "--webhook=hook=http://127.0.0.1/"], "twice"),
        (&["--webhook-token=hook=token"], "there is no --webhook hook"),
        (&["--webhook=hook=http://127.0.0.1/", "--webhook-token=hook=none"], "none"),
    ] {
        let output = refused(more);
        assert!(output.contains(says) && !output.contains(TOKEN), "{output}");
    }
    fs::set_permissions(home.path("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let output = refused(&["--webhook=hook=http://127.0.0.1/", "--webhook-token=hook=token"]);
    assert!(output.contains("chmod 600"), "{output}");
}

/// Objects that a lifecycle rule expires are deleted while the volume is mounted, with an event each; others stay.
fn expired_objects_are_deleted(format: &[&str]) {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_users().with_token();
    home.ok(["format", "volume"].iter().chain(format));
    let more = [&receiver.flag(), "--webhook-token=hook=token", "--metadata-ttl=0s"];
    let url = home.mount_and_serve("volume", &more);
    for name in ["old/a", "old/sub/b", "days/fresh", "days/aged", "kept"] {
        let path = home.mnt().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, name).unwrap();
    }
    home.boto(
        &url,
        r#"
notify(Events=["s3:LifecycleExpiration:*"])
rule = lambda prefix, **expiration: {"Status": "Enabled", "Filter": {"Prefix": prefix}, "Expiration": expiration}
rules = [rule("old/", Date="2020-01-01T00:00:00Z"), rule("days/", Days=30)]
s3.put_bucket_lifecycle_configuration(Bucket="volume", LifecycleConfiguration={"Rules": rules})
assert "expiry-date" in s3.head_object(Bucket="volume", Key="days/fresh")["Expiration"]
assert "Expiration" not in s3.head_object(Bucket="volume", Key="kept")
"#,
    );
    let by_inode = format.contains(&"inode");
    if by_inode {
        // A file is as old as its last modification.
        let aged = fs::File::options().write(true).open(home.mnt().join("days/aged")).unwrap();
        aged.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_577_836_800)).unwrap();
    }
    home.ok(["umount", "mnt"]);
    home.mount_and_serve("volume", &more);
    let mut gone = vec!["old/a", "old/sub/b"];
    if by_inode {
        gone.insert(0, "days/aged");
    }
    eventually("expired objects are gone", || gone.iter().all(|name| !home.mnt().join(name).exists()));
    // Directories are objects too, and have events of their own.
    let file_keys =
        || -> Vec<String> { receiver.keys().into_iter().filter(|key| !key.ends_with('/')).collect() };
    eventually("the events arrived", || file_keys() == gone);
    assert!(receiver.received().iter().all(|event| event.kind == EventKind::ExpirationDelete));
    for name in ["days/fresh", "kept"] {
        assert_eq!(fs::read_to_string(home.mnt().join(name)).unwrap(), name);
    }
    home.ok(["umount", "mnt"]);
    home.ok(["fsck", "volume"]);
}

#[test]
fn s198_expired_objects_are_deleted_from_a_volume_named_by_inode() {
    expired_objects_are_deleted(&["--naming", "inode"]);
}

#[test]
fn s198_expired_objects_are_deleted_from_a_volume_named_by_path() {
    expired_objects_are_deleted(&["--naming", "file-path"]);
}
