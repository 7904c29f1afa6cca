//! `tenon trace` and `tenon top` on real mounts: what they show of operations and store requests, and keys in a real terminal.

use crate::fixture::{Home, capture, eventually};
use crate::s3;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

/// A script that uses the mount like any program does, in several processes.
const SCRIPT: &str = "set -e; mkdir mnt/d; echo hello > mnt/d/f.tmp; mv mnt/d/f.tmp mnt/d/f; cat mnt/d/f; \
     echo more >> mnt/d/f; ls mnt/d; test ! -e mnt/missing; head -c 300000 /dev/zero > mnt/big; rm mnt/big";

/// Traces the script. Returns the operations and the background requests.
fn trace_script(home: &Home, flags: &[&str]) -> Vec<Value> {
    let words = [&["trace", "mnt", "--json"], flags, &["--", "sh", "-c", SCRIPT]].concat();
    let text = home.ok(words);
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn s720_a_trace_shows_operations_with_their_store_requests() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "trace"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    home.ok(["mount", &bucket, "mnt"]);
    let calls = trace_script(&home, &[]);
    let find = |operation: &str, path: &str| {
        let found = calls.iter().find(|call| call["operation"] == operation && call["path"] == path);
        found.unwrap_or_else(|| panic!("no {operation} of {path}: {calls:#?}"))
    };
    let create = find("CREATE", "d/f.tmp");
    assert_eq!(create["process"]["program"], "sh");
    assert!(create["process"]["pid"].as_u64() > Some(0) && create["error"].is_null());
    let write = find("WRITE", "d/f.tmp");
    assert_eq!((write["offset"].as_u64(), write["bytes"].as_u64()), (Some(0), Some(6)));
    let rename = find("RENAME", "d/f.tmp");
    assert_eq!(rename["to"], "d/f");
    let steps = rename["requests"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["kind"] == "COMMIT" && step["outcome"] == "ok"), "{rename}");
    assert_eq!(find("UNLINK", "big")["process"]["program"], "rm");
    // The name of the file when it was read, although the inode was made with another one.
    assert!(find("OPEN", "d/f")["took_us"].as_u64().is_some());
    assert_eq!(find("LOOKUP", "missing")["error"], "ENOENT");
    let puts = |path: &str| {
        let of_path = calls.iter().filter(|call| call["path"] == path);
        let requests = of_path.flat_map(|call| call["requests"].as_array().cloned().unwrap_or_default());
        requests.filter(|request| request["kind"] == "PUT").collect::<Vec<_>>()
    };
    for path in ["d/f.tmp", "big"] {
        let puts = puts(path);
        assert!(puts.iter().any(|put| put["key"] == path && put["outcome"] == "ok"), "{path}: {calls:#?}");
        assert!(puts[0]["took_us"].as_u64() > Some(0), "{puts:?}");
    }
    let flush =
        calls.iter().find(|call| call["operation"] == "FLUSH" && !call["requests"].is_null()).unwrap();
    let request = &flush["requests"][0];
    assert!(request["at_us"].as_u64() >= flush["at_us"].as_u64(), "{flush}");
    assert_eq!(request["operation"], flush["id"]);
    // Conditions.
    home.ok(["rm", "-r", "mnt/d"]);
    let only = trace_script(&home, &["--operation=create,unlink"]);
    let kinds: std::collections::BTreeSet<&str> =
        only.iter().map(|call| call["operation"].as_str().unwrap()).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), ["CREATE", "UNLINK"]);
    home.ok(["rm", "-r", "mnt/d"]);
    let inside = trace_script(&home, &["--path", &home.text("mnt/d")]);
    assert!(inside.iter().any(|call| call["path"] == "d/f"), "{inside:#?}");
    assert!(inside.iter().all(|call| call["path"].as_str().unwrap().starts_with('d')), "{inside:#?}");
    home.ok(["rm", "-r", "mnt/d"]);
    assert!(trace_script(&home, &["--slower-than=1h"]).is_empty());
    home.ok(["rm", "-r", "mnt/d"]);
    let pid = std::process::id().to_string();
    assert!(trace_script(&home, &["--pid", &pid]).is_empty());
    // Lines for readers, and errors.
    let shown = home.ok(["trace", "mnt", "--", "cat", &home.text("mnt/d/f")]);
    assert!(
        shown.contains("  result  ") && shown.contains("hello\nmore\n") && shown.contains("d/f"),
        "{shown}"
    );
    assert!(home.refused(["trace", "mnt", "--operation=SPEED"]).contains("there is no operation 'SPEED'"));
    assert_eq!(home.tenon(["trace", "mnt", "--", "sh", "-c", "exit 7"]).code, 7);
}

#[test]
fn s721_a_recorded_trace_is_replayed() {
    let home = Home::new();
    home.mount_volume();
    home.ok(["trace", "mnt", "--out=trace.jsonl", "--", "sh", "-c", SCRIPT]);
    let text = fs::read_to_string(home.path("trace.jsonl")).unwrap();
    let steps: Vec<Value> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let calls: Vec<(&str, &str)> =
        steps.iter().map(|step| (step["op"].as_str().unwrap(), step["path"].as_str().unwrap())).collect();
    for expected in [
        ("mkdir", "d"),
        ("create", "d/f.tmp"),
        ("write", "d/f.tmp"),
        ("rename", "d/f.tmp"),
        ("unlink", "big"),
    ] {
        assert!(calls.contains(&expected), "{expected:?}: {text}");
    }
    assert!(text.starts_with("# Recorded by tenon trace from ") && text.contains("\n# {\"id\":"), "{text}");
    fs::write(
        home.path("recorded.toml"),
        "name = \"recorded\"\n[[job]]\nname = \"replay\"\ntitle = \"recorded script\"\noperation = \"trace\"\nfiles = \"empty\"\nthreads = 1\ntrace = \"trace.jsonl\"\n",
    )
    .unwrap();
    let (scratch, results, workload) =
        (home.text("scratch"), home.text("results.jsonl"), home.text("recorded.toml"));
    let run = [
        "bench",
        "run",
        "--packages",
        "local,tenon.durable",
        "--platform",
        "tenon-dir",
        "--workload",
        &workload,
    ];
    let sizes =
        ["--scale", "tiny", "--repeats", "1", "--scratch", &scratch, "--results", &results, "--keep-caches"];
    let output = home.tenon(run.iter().chain(&sizes).copied());
    assert_eq!(output.code, 0, "{output:?}");
    let results = fs::read_to_string(&results).unwrap();
    let records: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!records.is_empty());
    for record in &records {
        assert!(record["outcome"]["measured"]["clocks"]["job"].as_f64().unwrap() > 0.0, "{record}");
    }
}

/// Writes and reads a file until its standard input ends.
const BUSY: &str = "import os, select, sys\n\
     while not select.select([sys.stdin], [], [], 0.01)[0]:\n    \
         with open('mnt/busy.dat', 'wb') as file: file.write(b'x' * 100000)\n    \
         open('mnt/busy.dat', 'rb').read()\n    \
         os.listdir('mnt')\n";

#[test]
fn s724_top_shows_a_mount_in_a_terminal_and_follows_keys() {
    let home = Home::new();
    home.mount_volume();
    let mut busy = home.command("python3");
    let mut busy = busy.args(["-c", BUSY]).stdin(Stdio::piped()).spawn().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/top.py");
    let tenon = crate::fixture::tenon().to_str().unwrap();
    let shown =
        capture(home.command("python3").args([script, tenon, &home.text("mnt")]).env("TERM", "xterm"));
    drop(busy.stdin.take());
    assert!(busy.wait().unwrap().success());
    assert_eq!(shown.code, 0, "{shown:?}");
    // Without a terminal there is nothing to draw on.
    let refused = home.refused(["top"]);
    assert!(refused.contains("not a terminal") && refused.contains("tenon stats"), "{refused}");
}

/// Checks that a process with a log continues it at its path after a rotation.
fn check_rotation(home: &Home, words: &[&str], is_ready: impl Fn() -> bool) {
    let log = home.path("serve.log");
    let mut process = home.command(crate::fixture::tenon());
    let process = process.args(words).args(["--log-level=info", "--log-file"]).arg(&log);
    let mut process = process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("it serves", || is_ready() && log.exists());
    fs::rename(&log, home.path("serve.log.1")).unwrap();
    home.signal(process.id(), rustix::process::Signal::HUP);
    eventually("the log is opened again", || log.exists());
    home.signal(process.id(), rustix::process::Signal::TERM);
    assert!(process.wait().unwrap().success());
    fs::remove_file(&log).unwrap();
}

/// A regression test: SIGHUP, which logrotate sends, ended these processes.
#[test]
fn s727_endpoints_of_buckets_and_event_handlers_reopen_their_logs() {
    let server = servers::shared_minio();
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    fs::create_dir_all(home.path("buckets/first")).unwrap();
    let volume = format!("dirs://{}", home.text("buckets"));
    check_rotation(&home, &["serve", &volume, "--listen=127.0.0.1:0"], || {
        home.tenon(["status", &volume]).code == 0
    });
    let metrics = servers::free_address();
    let handler = ["events", "serve", "--listen=127.0.0.1:0", &format!("--metrics={metrics}")];
    check_rotation(&home, &handler, || std::net::TcpStream::connect(metrics).is_ok());
}
