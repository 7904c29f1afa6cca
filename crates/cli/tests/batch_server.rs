//! `tenon batch serve` and its tokens, and the display of batches in `tenon top`.

use crate::batches::{assert_all, field, write_all};
use crate::fixture::{Home, capture, is_mounted, tenon};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// A job that knows only the URL of a server and its token works in its directory, and in no other one.
#[test]
fn s625_s626_a_batch_server_obeys_tokens() {
    let home = Home::new();
    let job = home.mount_with_job(false);
    fs::create_dir_all(job.join("run")).unwrap();
    fs::create_dir(home.mnt().join("other")).unwrap();
    let issue = |name: &str, words: &[&str]| {
        let token = home.ok([&["batch", "token", "tokens", "--name", name][..], words].concat());
        fs::write(home.path(name), &token).unwrap();
        fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o600)).unwrap();
        token.trim().to_owned()
    };
    let token = issue("job-token", &["--dir", "/job"]);
    let other = issue("other-token", &["--dir", "/other", "--expires", "1h"]);
    let expired = issue("expired-token", &["--dir", "/job", "--expires", "0s"]);
    let mut server = home.command(tenon());
    server.args(["batch", "serve", "mnt", "--tokens", "tokens", "--listen", "127.0.0.1:0"]);
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let url = BufReader::new(server.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let run = |path: &str| format!("{url}/{path}");
    let post = |token: Option<&str>, body: &str| {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let length = body.len();
        write!(stream, "POST /batches HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{token}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().to_owned(), answer)
    };
    let list = r#"{"batch":"list"}"#;
    assert_eq!(post(None, list).0, "401");
    assert_eq!(post(Some(&format!("{token}0")), list).0, "401");
    let (status, answer) = post(Some(&expired), list);
    assert!(status == "401" && answer.contains("'expired-token' expired at"), "{answer}");
    assert_eq!(post(Some(&token), "{}").0, "400");
    assert_eq!(post(Some(&token), &" ".repeat(70_000)).0, "400");
    let begun = home.ok(["batch", "begin", &run("job/run"), "--token", "job-token"]);
    let id = begun.trim().rsplit(' ').next().unwrap().to_owned();
    assert!(is_mounted(&job.join("run")));
    write_all(&job.join("run"), 0..40);
    // Another token neither sees nor touches it.
    assert_eq!(home.ok(["batch", "list", &url, "--token", "other-token", "--json"]), "");
    let own = home.ok(["batch", "list", &url, "--token", "job-token", "--json"]);
    assert_eq!(field(&own, "path"), "job/run");
    for words in [["begin", &run("job")], ["begin", &run("other/../job")], ["end", &run("job/run")]] {
        let refused = home.refused([&["batch"][..], &words[..], &["--token", "other-token"]].concat());
        assert!(refused.contains("the token is for '/other'"), "{refused}");
    }
    for action in ["discard", "conflicts", "watch"] {
        let refused = home.refused(["batch", action, &url, &id, "--token", "other-token"]);
        assert!(refused.contains(&format!("has no batch '{id}'")), "{refused}");
    }
    assert_eq!(post(Some(&other), &format!(r#"{{"batch":"retry","id":"{id}","index":0}}"#)).0, "403");
    let refused = home.refused(["batch", "end", &run("job/none"), "--token", "job-token"]);
    assert!(refused.contains("no such file"), "{refused}");
    let ended = home.ok(["batch", "end", &run("job/run"), "--token", "job-token"]);
    assert!(ended.contains(&id) && ended.contains("0 refused"), "{ended}");
    assert_all(&job.join("run"), 0..40);
    let watched = home.ok(["batch", "watch", &url, &id, "--token", "job-token"]);
    assert!(watched.contains("40 files"), "{watched}");
    home.ok(["batch", "discard", &url, &id, "--token", "job-token"]);
    // A token that is revoked ends at once.
    assert!(home.ok(["batch", "token", "tokens"]).contains("job-token  until "));
    home.ok(["batch", "token", "tokens", "--revoke", "job-token"]);
    assert!(home.refused(["batch", "list", &url, "--token", "job-token"]).contains("unknown"));
    home.signal(server.id(), rustix::process::Signal::TERM);
    assert!(server.wait().unwrap().success());
    home.ok(["umount", "mnt"]);
}

#[test]
fn s624_top_shows_open_batches() {
    let home = Home::new();
    let job = home.mount_with_job(true);
    fs::write(job.join("a"), "a").unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/top.py");
    let (tenon, mnt, id) = (tenon().to_str().unwrap(), home.text("mnt"), home.begun_batch());
    let shown = capture(home.command("python3").args([script, tenon, &mnt, &id]).env("TERM", "xterm"));
    assert_eq!(shown.code, 0, "{shown:?}");
}
