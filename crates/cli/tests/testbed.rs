//! `tenon bench` with Tenon itself: as a package over MinIO and over its own endpoint, and by the actions of one target.

use crate::fixture::{Home, eventually};
use serde_json::Value;
use std::fs;

/// Runs `tenon bench` with the test's own directories.
fn bench(home: &Home, words: &[&str]) -> String {
    home.ok(["bench"].iter().chain(words).copied())
}

#[test]
fn tenon_in_every_layout_is_measured_over_its_own_endpoints() {
    let home = Home::new();
    let (scratch, results) = (home.text("scratch"), home.text("results.jsonl"));
    let targets =
        "raw,tenon.durable,tenon-inode.writeback,tenon-chunked.durable,tenon-drive.path,tenon-drive.inode";
    let run = ["bench", "run", "--packages", targets, "--platform", "tenon-dir", "--platform", "tenon-drive"];
    let sizes =
        ["--scale", "tiny", "--repeats", "1", "--scratch", &scratch, "--results", &results, "--keep-caches"];
    let output = home.tenon(run.iter().chain(&sizes).copied());
    assert_eq!(output.code, 0, "{output:?}");
    let text = fs::read_to_string(&results).unwrap();
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 2 * 6 * 6);
    for record in &records {
        let measured = &record["outcome"]["measured"];
        assert!(measured["clocks"]["job"].as_f64().unwrap() > 0.0, "{record}");
    }
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
    let report = bench(&home, &["report", &results, "--html", &home.text("report.html"), "--rank", "job6=1"]);
    assert!(
        report.contains("tenon-drive: ranking for job6 1") && report.contains("has the highest median"),
        "{report}"
    );
    assert!(fs::read_to_string(home.path("report.html")).unwrap().contains("data-value"));
}

#[test]
fn a_target_goes_up_and_down() {
    let home = Home::new();
    let place = ["--platform", "tenon-dir"];
    let point = bench(&home, &["up", "tenon.durable", place[0], place[1]]);
    let point = std::path::Path::new(point.trim());
    fs::write(point.join("file"), "hello").unwrap();
    let listed = bench(&home, &["list", "tenon"]);
    assert!(listed.contains(point.to_str().unwrap()), "{listed}");
    let refused = home.tenon(["bench", "clean-bucket", "tenon.durable", place[0], place[1]]);
    assert!(refused.code != 0 && refused.err.contains("tenon bench down tenon.durable"), "{refused:?}");
    let down = bench(&home, &["down", "tenon.durable"]);
    assert!(down.contains("stays"), "{down}");
    assert!(!point.join("file").exists());
    let again = bench(&home, &["up", "tenon.durable", place[0], place[1]]);
    assert_eq!(fs::read(std::path::Path::new(again.trim()).join("file")).unwrap(), b"hello");
    // Killed, the process that holds the mount leaves nothing mounted, and `clean-all` leaves nothing at all.
    let state = home.path("home/.local/state/tenon/bench");
    let station: Value =
        serde_json::from_slice(&fs::read(state.join("mounted/tenon.durable.json")).unwrap()).unwrap();
    let pid = station["pid"].as_u64().unwrap().to_string();
    assert!(home.command("kill").args(["-9", &pid]).status().unwrap().success());
    let mounts = || fs::read_to_string("/proc/mounts").unwrap();
    eventually("the mount is gone", || !mounts().contains(point.to_str().unwrap()));
    bench(&home, &["clean-all"]);
    assert!(!state.join("servers").exists() && !state.join("targets").exists());
    assert!(!bench(&home, &["list", "tenon"]).contains("tenon-bench-"));
}

#[test]
fn a_run_that_costs_money_is_not_begun_without_a_word() {
    let home = Home::new().with("KEY", "access").with("SECRET", "hush-hush");
    let platform = "cloud=https://127.0.0.1:9,access-key=KEY,secret-key=SECRET";
    let run = ["bench", "run", "--packages", "raw", "--platform", platform, "--scale", "tiny"];
    let output = home.tenon(run);
    assert_ne!(output.code, 0);
    assert!(output.err.contains("cloud: at least") && output.err.contains("give --yes"), "{output:?}");
    assert!(!output.err.contains("hush"));
}
