//! Replays of dead letters and of recorded messages.

use crate::events::{Receiver, TOKEN};
use crate::fixture::{Home, eventually};
use crate::handlers::RunningTenon;
use crate::s3::new_bucket;
use crate::view_mounts::{Client, NotifyingServer};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Returns an event in AWS's form about a key.
fn event(key: &str) -> String {
    format!(
        r#"{{"Records":[{{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"","eventTime":"2026-01-31T23:59:59.000Z","eventName":"ObjectCreated:Put","userIdentity":{{"principalId":"p"}},"requestParameters":{{"sourceIPAddress":""}},"responseElements":{{}},"s3":{{"s3SchemaVersion":"1.0","configurationId":"c","bucket":{{"name":"b","ownerIdentity":{{"principalId":"p"}},"arn":"arn:aws:s3:::b"}},"object":{{"key":"{key}","size":1,"eTag":"e","sequencer":"01"}}}}}}]}}"#
    )
}

fn letter(key: &str) -> String {
    serde_json::json!({"time": "2026-01-31T23:59:59Z", "source": "s", "reason": "r", "text": event(key)})
        .to_string()
}

#[test]
fn s236_accepted_messages_leave_the_file_and_the_rest_stays() {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_token().with("TENON_EVENTS_SECRET", TOKEN);
    let to = format!("--to=http://{}/", receiver.address);
    let unreadable = r#"{"time":"t","source":"s","text":"not even JSON"}"#;
    // A webhook's dead letter is the message itself.
    let lines = [letter("a"), "{\"broken\":".to_owned(), event("b"), unreadable.to_owned(), letter("c")];
    fs::write(home.path("dead"), lines.join("\n")).unwrap();
    let output = home.tenon(["events", "replay", "dead", &to, "--keep"]);
    assert_eq!((output.code, output.out.as_str()), (1, "3 sent, 2 not sent; dead is unchanged\n"));
    assert_eq!(fs::read_to_string(home.path("dead")).unwrap(), lines.join("\n"));
    let output = home.tenon(["events", "replay", "dead", &to]);
    assert_eq!((output.code, output.out.as_str()), (1, "3 sent, 2 left in dead\n"));
    assert!(
        output.err.contains("line 2: ") && output.err.contains("line 4: the message cannot be read"),
        "{output:?}"
    );
    assert_eq!(fs::read_to_string(home.path("dead")).unwrap(), format!("{}\n{unreadable}\n", lines[1]));
    let keys: Vec<_> = receiver.received().iter().map(|event| event.key.to_string()).collect();
    assert_eq!(keys, ["a", "b", "c", "a", "b", "c"], "in order");

    // The file is removed once all of its messages were sent.
    fs::write(home.path("dead"), letter("d")).unwrap();
    assert_eq!(home.ok(["events", "replay", "dead", &to]), "1 sent, 0 left in dead\n");
    assert!(!home.path("dead").exists() && !home.path("dead.replaying").exists());
    assert!(home.refused(["events", "replay", "dead", &to]).contains("cannot read dead"));
    fs::write(home.path("notes"), "remember the milk\n").unwrap();
    assert!(home.refused(["events", "replay", "notes", &to]).contains("not a file of messages"));
    assert_eq!(fs::read_to_string(home.path("notes")).unwrap(), "remember the milk\n");
    let output = home.refused(["events", "replay", "notes", "--to=nowhere"]);
    assert!(output.contains("https://host/path"), "{output}");
}

#[test]
fn s236_nothing_is_lost_without_a_receiver_or_when_a_replay_is_killed() {
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with("TENON_EVENTS_SECRET", "wrong");
    let to = format!("--to=http://{}/", receiver.address);
    let text = format!("{}\n{}\n", letter("a"), letter("b"));
    fs::write(home.path("dead"), &text).unwrap();
    let output = home.tenon(["events", "replay", "dead", &to]);
    assert_eq!((output.code, output.out.as_str()), (1, "0 sent, 2 left in dead\n"));
    assert!(output.err.contains("answers 403") && output.err.lines().count() == 1, "{output:?}");
    assert_eq!(fs::read_to_string(home.path("dead")).unwrap(), text);
    let address = receiver.address.clone();
    drop(receiver);
    let output = home.tenon(["events", "replay", "dead", &to, "--retry-timeout=1s"]);
    assert_eq!((output.code, output.out.as_str()), (1, "0 sent, 2 left in dead\n"));
    assert_eq!(fs::read_to_string(home.path("dead")).unwrap(), text);
    // Leave the files as a killed replay does.
    fs::rename(home.path("dead"), home.path("dead.replaying")).unwrap();
    fs::write(home.path("dead"), letter("c")).unwrap();
    let receiver = Receiver::start(&address, Duration::ZERO);
    let home = home.with("TENON_EVENTS_SECRET", TOKEN);
    assert_eq!(home.ok(["events", "replay", "dead", &to]), "3 sent, 0 left in dead\n");
    assert_eq!(receiver.keys(), ["a", "b", "c"]);
}

/// A handler that was started with the wrong dialect kept unreadable messages; one with the right dialect gets them
/// afterwards.
#[test]
fn dead_letters_can_be_replayed_to_their_handler() {
    let notifying = NotifyingServer::start();
    let bucket = new_bucket(&notifying.server, "replays");
    let client = Client::of(&notifying.server, &bucket);
    let home = notifying.home();
    fs::write(home.path("rules.yaml"), format!("all: {{container: {bucket}}}\n")).unwrap();
    let [events, secret] = &notifying.flags;
    let to = events.replace("--events=webhook", "--to=http");
    let serve = ["events", "serve", "--listen=127.0.0.1:0", "--state-dir=state", events, secret];
    let shown =
        |handler: &RunningTenon| home.ok(["views", "list", "rules.yaml", "--handler", &handler.first_line()]);
    let handler = RunningTenon::start(&home, &[&serve[..], &["--event-dialect=gcs"]].concat());
    assert_eq!(shown(&handler), "all: 0 objects, 0 bytes\n");
    notifying.enable_notifications(&home, &bucket);
    client.put("a", "x", &[]);
    let dead = home.path("state/views/dead-letters");
    let count = || fs::read_to_string(&dead).unwrap_or_default().lines().count();
    eventually("it is a dead letter", || count() == 1);
    assert_eq!(shown(&handler), "all: 0 objects, 0 bytes\n");
    drop(handler);
    let handler = RunningTenon::start(&home, &serve);
    assert_eq!(shown(&handler), "all: 0 objects, 0 bytes\n", "the handler keeps its state");
    let output = home.ok(["events", "replay", dead.to_str().unwrap(), &to, secret]);
    assert!(output.starts_with("1 sent, 0 left"), "{output}");
    assert_eq!(shown(&handler), "all: 1 objects, 1 bytes\n");
    assert!(!dead.exists());
}

/// Messages of a queue are recorded, removed from it, and replayed as often as needed.
#[test]
fn recorded_messages_can_be_replayed() {
    let redis = servers::redis();
    let receiver = Receiver::start("127.0.0.1:0", Duration::ZERO);
    let home = Home::new().with_token();
    let login = home.path("login");
    fs::write(&login, format!("{}:{}", redis.user(), redis.password())).unwrap();
    fs::set_permissions(&login, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut server = TcpStream::connect(redis.address()).unwrap();
    let words = |words: &[&str]| {
        let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>())
    };
    let commands = words(&["AUTH", redis.user(), redis.password()])
        + &words(&["RPUSH", "events", &event("a"), &event("b")]);
    server.write_all(commands.as_bytes()).unwrap();
    let mut lines = BufReader::new(server).lines();
    assert_eq!((lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()), ("+OK".into(), ":2".into()));
    let list = format!("{}/0?list=events", redis.url_without_user());
    let tail = ["events", "tail", &list, "--event-secret=login", "--take", "--record=kept", "--count=2"];
    assert_eq!(home.ok(tail).lines().count(), 2);
    let to = format!("--to=http://{}/", receiver.address);
    for _ in 0..2 {
        let output = home.ok(["events", "replay", "kept", &to, "--event-secret=token", "--keep"]);
        assert_eq!(output, "2 sent, 0 not sent; kept is unchanged\n");
    }
    assert_eq!(receiver.received().len(), 4);
}
