//! `tenon analyze` with real servers on real loop devices. Needs root, MinIO, e2fsprogs, and 1 GiB of disk.

use crate::fixture::{Home, eventually, tenon};
use crate::s3::new_bucket;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Lists loop devices, mounts and processes that use a directory, and the files in it.
fn leftovers(scratch: &Path) -> Vec<String> {
    let shown = scratch.to_str().unwrap();
    let devices = Command::new("losetup").arg("--all").output().unwrap().stdout;
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let processes = Command::new("ps").args(["-eo", "args"]).output().unwrap().stdout;
    let all = [String::from_utf8(devices).unwrap(), mounts, String::from_utf8(processes).unwrap()];
    let lines = all.iter().flat_map(|text| text.lines()).filter(|line| line.contains(shown));
    let files = fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    lines.map(str::to_owned).chain(files).collect()
}

/// Returns the arguments of a small comparison in `scratch`.
fn comparison(home: &Home, more: &[&str]) -> Vec<String> {
    let (scratch, minio) = (home.text("scratch"), servers::program("minio"));
    fs::create_dir_all(&scratch).unwrap();
    let fixed = ["analyze", "compare", "--scale", "tiny", "--scratch", &scratch];
    let minio = ["--minio", minio.to_str().unwrap()];
    [fixed.as_slice(), &minio, more].concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn two_systems_are_compared_and_leave_nothing() {
    let home = Home::new();
    let more = [
        "--systems=dir-ext4,minio-ext4",
        "--device-size=400MiB",
        "--workloads=w-o,put-4k,enumerate",
        "--enumerated=300",
        "--rounds=1",
        "--no-fio",
        "--json=all.json",
        "--html=all.html",
    ];
    let output = home.tenon(comparison(&home, &more));
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("MinIO on ext4") && output.out.contains("flushes/op"), "{}", output.out);
    let all: Value = serde_json::from_str(&fs::read_to_string(home.path("all.json")).unwrap()).unwrap();
    let cells = all["cells"].as_array().unwrap();
    // Two systems, three workloads; one round each without and one with tracing.
    assert_eq!((cells.len(), all["failures"].as_array().unwrap().len()), (12, 0), "{all}");
    for cell in cells {
        assert_eq!(cell["measured"]["done"]["errors"], 0, "{cell}");
        assert!(cell["measured"]["usage"]["server_secs"].as_f64().unwrap() >= 0.0, "{cell}");
        if cell["workload"] != "enumerate" {
            assert!(cell["measured"]["io"]["flushes"].as_u64().unwrap() > 0, "{cell}");
        }
        assert_eq!(cell["is_traced"], !cell["measured"]["metrics"].is_null(), "{cell}");
    }
    assert!(home.path("all.html").is_file());
    assert_eq!(leftovers(&home.path("scratch")), Vec::<String>::new());
}

/// Regression: an interrupted comparison of an hour had to start over, and results of another scale were mixed in.
#[test]
fn s574_an_interrupted_comparison_is_resumed() {
    let home = Home::new();
    let measured = |systems: &str, scale: &str| {
        let more = [
            systems,
            "--device-size=1GiB",
            "--workloads=w-o",
            scale,
            "--rounds=1",
            "--no-fio",
            "--no-trace",
            "--json=all.json",
        ];
        home.tenon(comparison(&home, &more))
    };
    let cells = || {
        let text = fs::read_to_string(home.path("all.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["cells"].as_array().unwrap().clone()
    };
    let first = measured("--systems=drive-md5", "--objects=8");
    assert_eq!(first.code, 0, "{first:?}");
    let before = cells();
    let further = measured("--systems=drive-md5,drive-array", "--objects=8");
    assert_eq!(further.code, 0, "{further:?}");
    assert!(further.out.contains("4 devices, 2 of them parity"), "{}", further.out);
    let after = cells();
    assert_eq!((before.len(), after.len()), (1, 2));
    assert_eq!(before[0], after[0], "it was measured again");
    let other = measured("--systems=drive-md5", "--objects=9");
    assert!(other.code != 0 && other.err.contains("other conditions"), "{other:?}");

    let shown = home.ok(["analyze", "report", "all.json", "--html=all.html"]);
    assert!(shown.contains("Tenon's drive, with MD5"), "{shown}");
    assert!(fs::read_to_string(home.path("all.html")).unwrap().contains("class=\"card\""));
    assert_eq!(leftovers(&home.path("scratch")), Vec::<String>::new());
}

/// A comparison that is interrupted, or killed, releases its devices, mounts and servers.
#[test]
fn s337_a_comparison_that_is_ended_leaves_nothing() {
    for signal in ["INT", "KILL"] {
        let home = Home::new();
        let scratch = home.path("scratch");
        let more = [
            "--systems=minio-ext4",
            "--device-size=400MiB",
            "--workloads=w-o",
            "--operations=100000",
            "--no-fio",
        ];
        let mut command = home.command(tenon());
        let mut running = command
            .args(comparison(&home, &more))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the server runs", || {
            leftovers(&scratch).iter().any(|line| line.contains("minio server"))
        });
        let killed = Command::new("kill").args([&format!("-{signal}"), &running.id().to_string()]).status();
        assert!(killed.unwrap().success());
        assert!(!running.wait().unwrap().success());
        eventually("everything is given back", || leftovers(&scratch).is_empty());
    }
}

#[test]
fn s338_a_workload_runs_on_any_server() {
    let server = servers::shared_minio();
    let bucket = new_bucket(server, "analyze");
    let home = crate::s3::home(server);
    let (endpoint, pid) = (server.endpoint(), server.pid().unwrap().to_string());
    let words = ["analyze", "run", "--bucket", &bucket, "--endpoint-url", &endpoint, "--pid", &pid];
    let scale = ["--scale=tiny", "--workload=r-w", "--size=1MiB", "--json=run.json"];
    home.ok(words.iter().chain(&scale));
    let all: Value = serde_json::from_str(&fs::read_to_string(home.path("run.json")).unwrap()).unwrap();
    assert_eq!(all[0]["workloads"][0]["operations"], 32, "{all}");
    assert_eq!(all[0]["workloads"][0]["errors"], 0, "{all}");
    let listed = || home.ok(["object", "ls", &format!("s3://{bucket}"), "--endpoint-url", &endpoint]);
    assert_eq!(listed(), "");

    let mut command = home.command(tenon());
    let endless = ["--scale=tiny", "--workload=w-o", "--size=64KiB", "--operations=1000000"];
    let mut running = command.args(words.iter().chain(&endless)).stderr(Stdio::null()).spawn().unwrap();
    eventually("objects are there", || !listed().is_empty());
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(!running.wait().unwrap().success());
    assert_eq!(listed(), "");
}

#[test]
fn impossible_comparisons_are_refused_in_one_line() {
    let home = Home::new();
    let refused = |more: &[&str]| home.refused(comparison(&home, more));
    assert!(refused(&["--workloads=w-x"]).contains("W-O, R-O"));
    assert!(refused(&["--systems=ceph"]).contains("minio-xfs, minio-ext4"));
    assert!(refused(&["--device-size=500TiB", "--systems=dir-ext4"]).contains("--scratch"));
    let refused = home.refused(["analyze", "compare", "--systems=minio-ext4", "--scratch=."]);
    assert!(refused.contains("--minio"), "{refused}");
    let refused = home.refused(["analyze", "run", "--workload=aged-r-o", "--bucket=b"]);
    assert!(refused.contains("--capacity"), "{refused}");
    // Regression: these flags were accepted and did nothing; zero rounds gave empty tables.
    let run = ["analyze", "run", "--workload=r-o", "--bucket=b"];
    for ignored in ["--trace=t.json", "--mount=/", "--naming=minio"] {
        let refused = home.refused(run.iter().copied().chain([ignored]));
        assert!(refused.contains("--device") || refused.contains("--mount"), "{ignored}: {refused}");
    }
    assert!(refused_rounds(&home).contains("--rounds"));
    let refused = home.refused(["analyze", "what-if", "none.json"]);
    assert!(refused.contains("none.json"), "{refused}");
}

fn refused_rounds(home: &Home) -> String {
    home.refused(comparison(home, &["--rounds=0"]))
}
