//! `tenon batch serve --primary`: batches that another process verifies, in another mount namespace, with the bucket on MinIO.

use crate::batches::{assert_all, write_all};
use crate::fixture::{Home, tenon};
use crate::s3::{home, new_bucket};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::time::Instant;

/// A mounted volume with the directory `job` in batch mode, and a batch server.
struct Primary {
    home: Arc<Home>,
    volume: String,
    server: Child,
    url: String,
}

/// A verifier, which knows nothing but its token and the URL of the server.
struct Verifier {
    home: Home,
    process: Child,
}

impl Primary {
    fn new(name: &str) -> Self {
        let server = servers::shared_minio();
        let volume = format!("s3://{}", new_bucket(server, name));
        let home = home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
        home.ok(["format", &volume, "--naming", "inode"]);
        fs::create_dir(home.path("outside")).unwrap();
        home.ok(["mount", &volume, "mnt", "--also", "outside"]);
        fs::create_dir(home.mnt().join("job")).unwrap();
        let mut server = home.command(tenon());
        server.args(["batch", "serve", "mnt", "--tokens", "tokens", "--listen", "127.0.0.1:0"]);
        let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
        let url = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        Self { home: Arc::new(home), volume, server, url }
    }

    fn job(&self) -> PathBuf {
        self.home.mnt().join("job")
    }

    /// Issues a token.
    fn token(&self, name: &str, right: &[&str]) -> String {
        let words = [&["batch", "token", "tokens", "--name", name][..], right].concat();
        self.home.ok(words).trim().to_owned()
    }

    /// Starts a verifier that reaches the server by a URL.
    fn verifier_at(&self, name: &str, url: &str) -> Verifier {
        let token = self.token(name, &["--verifier"]);
        Verifier::start(&token, url)
    }

    fn verifier(&self, name: &str) -> Verifier {
        self.verifier_at(name, &self.url)
    }

    fn begin(&self) {
        self.home.ok(["batch", "begin", "mnt/job"]);
    }

    /// Ends the batch on a thread of its own.
    fn end(&self) -> JoinHandle<String> {
        let home = Arc::clone(&self.home);
        thread::spawn(move || home.ok(["batch", "end", "mnt/job"]))
    }

    /// Sends a request as a client that is not Tenon. Returns the status and the answer.
    fn send(&self, method: &str, path: &str, token: Option<&str>, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.url.strip_prefix("http://").unwrap()).unwrap();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}Content-Length: {}\r\n\r\n",
            body.len()
        );
        // The server may answer before it has read everything.
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        (status, answer.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
    }

    fn ask(&self, token: &str, request: &Value) -> (u16, Value) {
        let (status, body) = self.send("POST", "/verifications", Some(token), request.to_string().as_bytes());
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Takes the batch as a verifier that then does nothing. Returns the lease.
    fn take(&self, token: &str) -> Value {
        let mut taken = Value::Null;
        for _ in 0..1000 {
            let (status, answer) = self.ask(token, &json!({"verification": "take"}));
            assert_eq!(status, 200, "{answer}");
            if answer["verification"] == "taken" {
                taken = answer["task"].clone();
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        assert!(taken["files"].as_array().unwrap().len() == 3 && taken["lease_ms"] == 10_000, "{taken}");
        taken["lease"].clone()
    }

    /// Makes the server know that a verifier is there.
    fn announce(&self, token: &str) {
        let (status, answer) = self.ask(token, &json!({"verification": "take"}));
        assert_eq!(answer["verification"], "nothing", "{status}: {answer}");
    }

    /// Unmounts and checks the volume. The verifiers must have ended: their mount namespaces keep the mount.
    fn unmount_and_check(&mut self) {
        self.home.signal(self.server.id(), Signal::TERM);
        assert!(self.server.wait().unwrap().success());
        self.home.ok(["umount", "outside"]);
        self.home.ok(["umount", "mnt"]);
        self.home.ok(["fsck", &self.volume]);
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Verifier {
    fn start(token: &str, url: &str) -> Self {
        let home = Home::new();
        fs::write(home.path("token"), token).unwrap();
        fs::set_permissions(home.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = home.command("unshare");
        command.args(["-m", "--propagation", "slave"]).arg(tenon());
        command.args(["batch", "serve", "--primary", url, "--token", "token", "--scratch", "scratch"]);
        let log = fs::File::create(home.path("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert_eq!(said, url);
        Self { home, process }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path("log")).unwrap()
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ten thousand files are verified by their rows, and a batch that collides with others by its ops.
#[test]
fn s633_another_process_verifies_batches() {
    let mut primary = Primary::new("verified");
    let mut verifier = primary.verifier("aux");
    primary.begin();
    let files = 10_000;
    for number in 0..files {
        let dir = primary.job().join(format!("step-{}", number % 10));
        if number < 10 {
            fs::create_dir(&dir).unwrap();
        }
        fs::write(dir.join(format!("file-{number}")), format!("content {number}")).unwrap();
    }
    let ended = primary.home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("0 refused") && ended.contains("verified by 'aux'"), "{ended}");
    for number in (0..files).step_by(77) {
        let path = primary.home.path(&format!("outside/job/step-{}/file-{number}", number % 10));
        assert_eq!(fs::read_to_string(path).unwrap(), format!("content {number}"));
    }
    // A change of what exists, and a collision.
    primary.begin();
    fs::write(primary.job().join("taken"), "by the batch").unwrap();
    fs::rename(primary.job().join("step-1/file-1"), primary.job().join("moved")).unwrap();
    fs::remove_file(primary.job().join("step-2/file-2")).unwrap();
    fs::write(primary.home.path("outside/job/taken"), "by others").unwrap();
    let ended = primary.home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains(", 1 refused") && ended.contains("verified by 'aux'"), "{ended}");
    assert_eq!(fs::read_to_string(primary.job().join("taken")).unwrap(), "by others");
    assert_eq!(fs::read_to_string(primary.job().join("moved")).unwrap(), "content 1");
    assert!(!primary.job().join("step-2/file-2").exists());
    let id = ended.split(' ').nth(1).unwrap();
    let conflicts = primary.home.ok(["batch", "conflicts", "mnt", id]);
    assert!(
        conflicts.contains("create job/taken: the name already exists; kept as /job/taken.batch-"),
        "{conflicts}"
    );
    // The end of the verifier leaves nothing, and batches are verified by their mount.
    primary.home.signal(verifier.process.id(), Signal::TERM);
    assert!(verifier.process.wait().unwrap().success(), "{}", verifier.log());
    assert_eq!(fs::read_dir(verifier.home.path("scratch")).unwrap().count(), 0);
    primary.begin();
    write_all(&primary.job(), 0..30);
    let ended = primary.home.ok(["batch", "end", "mnt/job"]);
    assert!(ended.contains("0 refused") && !ended.contains("verified by"), "{ended}");
    assert_all(&primary.job(), 0..30);
    primary.unmount_and_check();
}

/// Forwards connections to the server, and calls `stop` once at the request that follows a number of requests with a lease.
fn forwarder(
    to: &str,
    requests: usize,
    stop: impl Fn() + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (to, stop) = (to.strip_prefix("http://").unwrap().to_owned(), Arc::new(stop));
    let (has_lease, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(mut client), Ok(mut server)) = (client, TcpStream::connect(&to)) else { return };
            let (mut back, mut answers) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let seen = Arc::clone(&has_lease);
            thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(len @ 1..) = answers.read(&mut bytes) {
                    if String::from_utf8_lossy(&bytes[..len]).contains(r#""taken""#) {
                        seen.store(true, Ordering::SeqCst);
                    }
                    if back.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
            let (has_lease, count, stop) = (Arc::clone(&has_lease), Arc::clone(&count), Arc::clone(&stop));
            thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(len @ 1..) = client.read(&mut bytes) {
                    let is_request = String::from_utf8_lossy(&bytes[..len]).contains(" HTTP/1.1\r\n");
                    if has_lease.load(Ordering::SeqCst) && is_request {
                        let number = count.fetch_add(1, Ordering::SeqCst);
                        if number == requests {
                            stop();
                            return;
                        }
                        if number > requests {
                            return;
                        }
                    }
                    if server.write_all(&bytes[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, counted)
}

/// A verifier is killed at each of its requests: the batch is merged nevertheless, completely and once.
#[test]
fn s634_a_verifier_killed_at_any_step_delays_a_batch_for_seconds() {
    let mut primary = Primary::new("killed-verifiers");
    let mut requests = 0;
    let mut steps = 0;
    loop {
        let killed = Arc::new(Mutex::new(None::<u32>));
        let victim = Arc::clone(&killed);
        let (url, _) = forwarder(&primary.url, requests, move || {
            if let Some(pid) = *victim.lock().unwrap() {
                let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                rustix::process::kill_process(pid, Signal::KILL).unwrap();
            }
        });
        let mut verifier = primary.verifier_at(&format!("aux-{requests}"), &url);
        *killed.lock().unwrap() = Some(verifier.process.id());
        primary.begin();
        let files = steps * 20..(steps + 1) * 20;
        write_all(&primary.job(), files.clone());
        let began = Instant::now();
        let ended = primary.home.ok(["batch", "end", "mnt/job"]);
        assert!(ended.contains("0 refused") && began.elapsed() < Duration::from_secs(25), "{ended}");
        assert_all(&primary.job(), files);
        steps += 1;
        if ended.contains("verified by") {
            // It was not killed before the verdict.
            verifier.kill();
            break;
        }
        // Most requests of a verification are alike.
        requests = 2 * requests + 1;
    }
    assert!(steps > 3, "{steps} steps");
    primary.unmount_and_check();
}

/// The batch of a verifier that stops is taken by another verifier, and the lease of the first one does not count any more.
#[test]
fn s635_a_stale_lease_has_no_effect() {
    let mut primary = Primary::new("stale-leases");
    let token = primary.token("slow", &["--verifier"]);
    primary.begin();
    write_all(&primary.job(), 0..50);
    primary.announce(&token);
    let ending = primary.end();
    let lease = primary.take(&token);
    let renew = json!({"verification": "renew", "lease": lease});
    assert_eq!(primary.ask(&token, &renew).0, 200);
    let verifier = primary.verifier("quick");
    let ended = ending.join().unwrap();
    assert!(ended.contains("verified by 'quick'"), "{ended}\n{}", verifier.log());
    let verifications = [
        renew,
        json!({"verification": "finish", "lease": lease}),
        json!({"verification": "read", "lease": lease, "read": {"read": "get", "keys_hex": ["49"]}}),
    ];
    for request in verifications {
        let (status, answer) = primary.ask(&token, &request);
        assert!(status == 409 && answer["error"].as_str().unwrap().contains("lease"), "{request}: {answer}");
    }
    assert_all(&primary.job(), 0..50);
    // Two verifiers, several batches: each is merged once.
    let second = primary.verifier("second");
    for round in 1..5 {
        primary.begin();
        write_all(&primary.job(), round * 50..(round + 1) * 50);
        let ended = primary.home.ok(["batch", "end", "mnt/job"]);
        assert!(ended.contains("0 refused") && ended.contains("verified by"), "{ended}");
    }
    assert_all(&primary.job(), 0..250);
    drop((verifier, second));
    primary.unmount_and_check();
}

/// A restart of the mount ends its leases, and a verifier continues with the next batch.
#[test]
fn s635_leases_do_not_outlive_the_mount() {
    let mut primary = Primary::new("restarted-primary");
    let token = primary.token("slow", &["--verifier"]);
    primary.begin();
    write_all(&primary.job(), 0..50);
    primary.announce(&token);
    let home = Arc::clone(&primary.home);
    let ending = thread::spawn(move || home.refused(["batch", "end", "mnt/job"]));
    let lease = primary.take(&token);
    primary.home.signal(primary.home.pid(), Signal::KILL);
    ending.join().unwrap();
    primary.home.ok(["umount", "outside"]);
    primary.home.ok(["umount", "mnt"]);
    primary.home.ok(["mount", &primary.volume, "mnt", "--also", "outside"]);
    assert_all(&primary.job(), 0..50);
    assert_eq!(primary.ask(&token, &json!({"verification": "finish", "lease": lease})).0, 409);
    let verifier = primary.verifier("aux");
    // It has asked for a batch by then.
    thread::sleep(Duration::from_secs(2));
    let ended = primary.home.ok(["batch", "end", "mnt/job"]);
    assert!(
        ended.contains("0 refused") && ended.contains("verified by 'aux'"),
        "{ended}\n{}",
        verifier.log()
    );
    assert_all(&primary.job(), 0..50);
    drop(verifier);
    primary.unmount_and_check();
}

/// Verdicts count only from verifiers, and bytes that are no verdict change nothing.
#[test]
fn s636_s637_s638_only_verifiers_return_verdicts_and_bad_ones_are_refused() {
    let mut primary = Primary::new("hostile-verifiers");
    let (client, aux) = (primary.token("client", &["--dir", "/"]), primary.token("aux", &["--verifier"]));
    let take = json!({"verification": "take"}).to_string();
    assert_eq!(primary.send("POST", "/verifications", None, take.as_bytes()).0, 401);
    assert_eq!(primary.send("POST", "/verifications", Some(&format!("{aux}0")), take.as_bytes()).0, 401);
    assert_eq!(primary.send("POST", "/verifications", Some(&client), take.as_bytes()).0, 403);
    assert_eq!(primary.send("POST", "/batches", Some(&aux), br#"{"batch":"list"}"#).0, 403);
    primary.begin();
    write_all(&primary.job(), 0..50);
    primary.announce(&aux);
    let ending = primary.end();
    let lease = primary.take(&aux);
    let at = format!("/verifications/{}/{}", lease["batch"].as_str().unwrap(), lease["fence"]);
    let other = primary.token("other", &["--verifier"]);
    for (what, token, path, status) in [
        ("another verifier", &other, format!("{at}/ops/0"), 409),
        ("a client", &client, format!("{at}/ops/0"), 403),
        ("another lease", &aux, format!("{at}0/ops/0"), 409),
        ("no file of a batch", &aux, format!("{at}/submitted/0"), 400),
        ("a path", &aux, format!("{at}/..%2fops/0"), 400),
    ] {
        assert_eq!(primary.send("GET", &path, Some(token), b"").0, status, "{what}");
    }
    assert_eq!(primary.send("GET", &format!("{at}/ops/0"), Some(&aux), b"").0, 200);
    for (what, path, len, status) in [
        ("a file of the batch", format!("{at}/ops/0"), 10, 400),
        ("a long piece", format!("{at}/verdict/0"), (1 << 20) + 1, 400),
        ("beyond the limit", format!("{at}/verdict/{}", 1_u64 << 40), 10, 400),
        ("an overflow", format!("{at}/verdict/{}", u64::MAX), 10, 400),
        ("a piece", format!("{at}/verdict/0"), 1000, 200),
    ] {
        assert_eq!(primary.send("PUT", &path, Some(&aux), &vec![7; len]).0, status, "{what}");
    }
    // The mount gives the paths of its directories only to the batch server.
    assert_eq!(primary.ask(&aux, &json!({"verification": "files", "lease": lease})).0, 400);
    assert_eq!(primary.ask(&aux, &json!({"verification": "finish", "lease": lease})).0, 200);
    let ended = ending.join().unwrap();
    assert!(ended.contains("0 refused") && !ended.contains("verified by"), "{ended}");
    assert_all(&primary.job(), 0..50);
    // The token is revoked while a batch is verified.
    primary.begin();
    write_all(&primary.job(), 50..100);
    primary.announce(&aux);
    let ending = primary.end();
    let lease = primary.take(&aux);
    primary.home.ok(["batch", "token", "tokens", "--revoke", "aux"]);
    assert_eq!(primary.ask(&aux, &json!({"verification": "finish", "lease": lease})).0, 401);
    let ended = ending.join().unwrap();
    assert!(ended.contains("0 refused") && !ended.contains("verified by"), "{ended}");
    assert_all(&primary.job(), 0..100);
    primary.unmount_and_check();
}
