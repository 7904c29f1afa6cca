//! Endpoints that exist without the testbed: nothing is left on them, and their credentials reach no package over TLS.

use crate::bench_run::{BenchRun, environment};
use crate::fake::Fake;
use bench::{Catalog, Platform, Results, Target};
use harness::Stopwatch;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const KEYS: &str = "access-key=LAB_ACCESS,secret-key=LAB_SECRET";

fn raw() -> Target {
    Catalog::shipped().unwrap().targets("raw").unwrap().remove(0)
}

/// Returns the MinIO of a URL as a platform.
fn lab(url: &str, more: &str) -> Platform {
    Platform::parse(&format!("lab={url},{KEYS}{more}"), &environment).unwrap()
}

/// Runs `mc` with an alias for an endpoint.
fn try_mc(url: &str, arguments: &[&str]) -> Output {
    let server = servers::shared_minio();
    let (scheme, rest) = url.split_once("://").unwrap();
    let alias = format!("{scheme}://{}:{}@{rest}", server.access_key(), server.secret_key());
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(servers::program("mc"));
    command.env("MC_HOST_lab", alias).args(["--quiet", "--insecure", "--config-dir"]).arg(dir.path());
    command.args(arguments).output().unwrap()
}

/// Runs `mc`, which must succeed, and returns its output.
fn mc(url: &str, arguments: &[&str]) -> String {
    let output = try_mc(url, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the buckets of the testbed on an endpoint.
fn own_buckets(url: &str, contain: &str) -> Vec<String> {
    let listed = mc(url, &["ls", "lab"]);
    listed
        .lines()
        .filter(|line| line.contains("tenon-bench-") && line.contains(contain))
        .map(str::to_owned)
        .collect()
}

/// Name of the variable that makes [`a_foreign_run_to_kill`] do something: the directory of the run.
const DIR: &str = "TENON_BENCH_FOREIGN_RUN";
const URL: &str = "TENON_BENCH_FOREIGN_URL";
/// Repeats of a run that is killed: no machine finishes them in the seconds that the kills take.
const ENDLESS_REPEATS: u32 = 10_000;

/// Runs in a process of its own, which [`no_bucket_is_left_after_a_kill`] starts and kills.
#[test]
#[expect(clippy::disallowed_methods, reason = "the parent process passes a directory")]
fn a_foreign_run_to_kill() {
    let (Ok(dir), Ok(url)) = (std::env::var(DIR), std::env::var(URL)) else { return };
    drop(run_in(Path::new(&dir), &url).run_until(&AtomicBool::new(false), &|| {}));
}

fn run_in(dir: &Path, url: &str) -> BenchRun {
    let platform = Platform::parse(&format!("lab={url},{KEYS}"), &fixed_environment).unwrap();
    let mut bench_run = BenchRun::in_directory(dir, vec![raw()], platform).jobs(&["job5", "job6"]);
    bench_run.plan.repeats = ENDLESS_REPEATS;
    bench_run
}

/// Returns the credentials of every MinIO of the tests, without starting one.
fn fixed_environment(name: &str) -> Option<String> {
    match name {
        "LAB_ACCESS" => Some("tenon-tests".to_owned()),
        "LAB_SECRET" => Some("not-a-secret-but-long-enough".to_owned()),
        _ => None,
    }
}

/// Each kill comes at another moment. The next run removes the bucket that the one before has left, and goes on.
#[test]
fn no_bucket_is_left_after_a_kill() {
    let server = servers::minio();
    let (url, dir) = (server.endpoint(), tempfile::tempdir().unwrap());
    mc(&url, &["mb", "lab/tenon-bench-of-another-machine"]);
    let (mut left, watch) = (0, Stopwatch::start());
    // On a slow machine the first kills come before there is a bucket, on a fast one some come between two sessions.
    for kill in 0.. {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "foreign::a_foreign_run_to_kill"])
            .env(DIR, dir.path())
            .env(URL, &url)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(150 + 130 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
        left += own_buckets(&url, "").len() - 1;
        if left >= 4 {
            break;
        }
        assert!(watch.elapsed() < Duration::from_secs(120), "no kill came while a bucket existed");
    }
    let mut last = run_in(dir.path(), &url);
    let measured = Results::read(&last.results_path()).unwrap().len();
    last.plan.repeats = (measured / last.plan.workload.jobs.len()) as u32 + 2;
    last.run_until(&AtomicBool::new(false), &|| {}).unwrap();
    assert!(Results::read(&last.results_path()).unwrap().len() > measured);
    assert_eq!(own_buckets(&url, "").len(), 1, "only the bucket that the testbed did not create is left");
}

#[test]
fn signatures_hold_through_the_proxy_on_plain_http() {
    let server = servers::shared_minio();
    let records = BenchRun::new(vec![raw()], lab(&server.endpoint(), "")).jobs(&["job1", "job2"]).run();
    assert!(records.iter().all(|record| record.outcome.measurement().is_some()), "{records:?}");
    // MinIO checks them: another secret is refused.
    let wrong = |name: &str| match name {
        "LAB_SECRET" => Some("another-secret".to_owned()),
        name => environment(name),
    };
    let platform = Platform::parse(&format!("lab={},{KEYS}", server.endpoint()), &wrong).unwrap();
    let refused = BenchRun::new(vec![raw()], platform).jobs(&["job1"]).try_run().unwrap_err().to_string();
    assert!(refused.contains("could not be removed"), "{refused}");
}

/// A MinIO with TLS, whose certificate is signed by itself. Dropping it ends it.
struct TlsServer {
    child: Child,
    dir: tempfile::TempDir,
    url: String,
}

impl TlsServer {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let certs = dir.path().join("certs");
        std::fs::create_dir(&certs).unwrap();
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
            ])
            .args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(certs.join("private.key"))
            .arg("-out")
            .arg(certs.join("public.crt"))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let address = servers::free_address().to_string();
        let server = servers::shared_minio();
        let child = Command::new(servers::program("minio"))
            .env("MINIO_ROOT_USER", server.access_key())
            .env("MINIO_ROOT_PASSWORD", server.secret_key())
            .env("MINIO_BROWSER", "off")
            .env("HOME", dir.path())
            .args(["server", "--quiet", "--certs-dir"])
            .arg(&certs)
            .args(["--address", &address])
            .arg(dir.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = format!("https://{address}");
        for _ in 0..200 {
            if try_mc(&url, &["ls", "lab"]).status.success() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { child, dir, url }
    }

    fn platform(&self) -> Platform {
        lab(&self.url, &format!(",ca={}", self.dir.path().join("certs/public.crt").display()))
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Packages speak plain HTTP with keys of the proxy's; the endpoint gets TLS and its own signatures. `mc` signs every chunk.
#[test]
fn towards_tls_requests_are_signed_anew() {
    let server = TlsServer::start();
    let platform = server.platform();
    assert!(platform.is_paid());
    let mc = servers::program("mc").display().to_string();
    let copy = |command: &str| {
        format!(
            r#"[ "$SECRET" != not-a-secret-but-long-enough ]; "{mc}" --quiet --config-dir "$3/mc" {command}"#
        )
    };
    let bucket = r#"bench/"${1##*/}""#;
    let fetch = format!(
        r#"mkdir -p "$3/files"; mount --bind "$3/files" "$2"; {}"#,
        copy(&format!(r#"mirror --overwrite {bucket} "$3/files""#))
    );
    let store = format!(
        r#"umount "$2"; {}; rm -rf "$3/files""#,
        copy(&format!(r#"mirror --overwrite "$3/files" {bucket}"#))
    );
    let fake = Fake::good().mount(&fetch).unmount(&store).environment(
        "MC_HOST_bench = \"http://${access_key}:${secret_key}@${host}\"\nSECRET = \"${secret_key}\"",
    );
    let jobs = ["job1", "job2", "job5", "job6"];
    let mut bench_run = BenchRun::new(vec![fake.target(), raw()], platform).jobs(&jobs);
    // More than one chunk of a signed body, and more than one part.
    bench_run.plan.scale.big_bytes = 20 << 20;
    bench_run.plan.scale.big_files = 2;
    let cost = {
        let results = Results::open(&bench_run.results_path(), &bench_run.plan.conditions()).unwrap();
        bench_run.plan.costs(&results)
    };
    let records = bench_run.run();
    assert_eq!(records.len(), 8);
    let mut requests = 0;
    for record in &records {
        let measurement = record.outcome.measurement().unwrap_or_else(|| panic!("{record:?}"));
        requests += measurement.traffic.as_ref().unwrap().total();
    }
    assert!(cost[0].requests > requests / 4 && cost[0].uploaded_bytes > 80 << 20, "{cost:?} {requests}");
    assert_eq!(own_buckets(&server.url, ""), Vec::<String>::new());
    let text = std::fs::read_to_string(bench_run.results_path()).unwrap();
    assert!(!text.contains("not-a-secret"));
}
