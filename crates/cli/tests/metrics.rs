//! Metrics of real mounts and endpoints: their text, real Prometheus, `tenon stats` and `tenon profile`.

use crate::fixture::{Home, capture, eventually};
use crate::s3;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

impl Home {
    /// Mounts a volume with metrics. Returns their address.
    fn mount_with_metrics(&self, volume: &str, flags: &[&str]) -> String {
        self.ok([&["mount", volume, "mnt", "--metrics=127.0.0.1:0"], flags].concat());
        let url = self.status()["metrics"].as_str().unwrap().to_owned();
        url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned()
    }

    /// Returns the value of a sample of the mount at `mnt`, by `tenon stats`.
    fn stats(&self) -> serde_json::Value {
        let line = self.ok(["stats", "mnt", "--json", "--count=1", "--interval=100ms"]);
        serde_json::from_str(&line).unwrap()
    }
}

fn repository(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

/// Sends a GET request. Returns head and body of the response.
pub(crate) fn get(address: &str, path: &str, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Returns the value of one sample of a text.
pub(crate) fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// Checks a text by the program of Prometheus, without its hints on style.
fn check_by_promtool(text: &str) {
    let mut promtool = Command::new(servers::promtool());
    let mut promtool =
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn s700_a_mount_exports_the_documented_metrics() {
    let server = servers::shared_minio();
    let bucket = format!("s3://{}", s3::new_bucket(server, "metrics"));
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let address = home.mount_with_metrics(&bucket, &["--serve=127.0.0.1:0"]);
    fs::write(home.mnt().join("file"), vec![7; 3 << 20]).unwrap();
    assert_eq!(fs::read(home.mnt().join("file")).unwrap().len(), 3 << 20);
    assert!(fs::metadata(home.mnt().join("missing")).is_err());
    let endpoint = home.status()["endpoint"].as_str().unwrap().trim_start_matches("http://").to_owned();
    get(&endpoint, "/", "*/*");
    eventually("the endpoint's request is counted", || {
        get(&address, "/metrics", "*/*").1.contains("tenon_s3_requests_total{")
    });
    let (head, text) =
        get(&address, "/metrics", "application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    for (name, at_least) in [
        ("tenon_fuse_written_bytes_total", 3 << 20),
        ("tenon_store_sent_bytes_total", 3 << 20),
        ("tenon_fuse_operations_total{operation=\"CREATE\"}", 1),
        ("tenon_fuse_operation_duration_seconds_count{operation=\"CREATE\"}", 1),
        ("tenon_fuse_errors_total{errno=\"ENOENT\"}", 1),
        ("tenon_store_requests_total{operation=\"PUT\",outcome=\"ok\"}", 1),
        ("tenon_store_request_duration_seconds_bucket{operation=\"PUT\",le=\"+Inf\"}", 1),
        ("tenon_memory_limit_bytes", 1),
        ("tenon_backup_interval_seconds", 60),
        ("process_resident_memory_bytes", 1 << 20),
        ("process_start_time_seconds", 1),
    ] {
        let value = sample(&text, name);
        assert!(value >= Some(f64::from(at_least)), "{name} is {value:?}: {text}");
    }
    assert_eq!(sample(&text, "tenon_fuse_errors_total{errno=\"EIO\"}"), Some(0.0));
    let (head, plain) = get(&address, "/metrics", "text/plain");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    check_by_promtool(&plain);
    let document = fs::read_to_string(repository("docs/metrics.md")).unwrap();
    let documented: BTreeSet<&str> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("tenon_") || name.starts_with("process_"))
        .collect();
    let exported: BTreeSet<&str> =
        plain.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert_eq!(documented, exported);
    assert_eq!(get(&address, "/healthz", "*/*").1, "ok\n");
    assert!(get(&address, "/other", "*/*").0.contains(" 404 "));
    // Neither names of files nor keys of access are in the text.
    assert!(!text.contains("missing") && !text.contains(server.secret_key()), "{text}");
}

#[test]
fn s701_prometheus_scrapes_mounts_and_accepts_rules_and_dashboard() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let address = home.mount_with_metrics("volume", &[]);
    fs::write(home.mnt().join("file"), "x").unwrap();
    let prometheus = servers::prometheus(&[address], &repository("packaging/prometheus/tenon.rules.yml"));
    let query = |expression: &str| {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = prometheus.get(&format!("/api/v1/query?query={encoded}"));
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().len()
    };
    eventually("the mount is scraped", || query("up{job=\"tenon\"} == 1") == 1);
    eventually("samples are there", || query("tenon_fuse_operations_total{operation=\"CREATE\"} > 0") == 1);
    assert_eq!(query("tenon_volume_info"), 1);
    let rules: serde_json::Value = serde_json::from_str(&prometheus.get("/api/v1/rules")).unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
    assert!(rules.len() >= 15, "{rules:?}");
    eventually("all rules are evaluated", || {
        let rules: serde_json::Value = serde_json::from_str(&prometheus.get("/api/v1/rules")).unwrap();
        let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        rules.iter().all(|rule| rule["health"] == "ok")
    });
    let dashboard = fs::read_to_string(repository("packaging/grafana/tenon.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            query(&expression.replace("$__rate_interval", "1m").replace("$instance", ".*"));
            expressions += 1;
        }
    }
    assert!(expressions > 20);
}

#[test]
fn s701_alerts_are_raised_when_they_should() {
    let mut promtool = Command::new(servers::promtool());
    let promtool = promtool.args(["test", "rules", "tenon.rules.test.yml"]);
    let tested = capture(promtool.current_dir(repository("packaging/prometheus")));
    assert_eq!(tested.code, 0, "{tested:?}");
}

/// Each metric that a rule or the dashboard names is exported.
#[test]
fn s701_rules_and_dashboard_use_documented_metrics() {
    let document = fs::read_to_string(repository("docs/metrics.md")).unwrap();
    for file in ["packaging/prometheus/tenon.rules.yml", "packaging/grafana/tenon.json"] {
        let text = fs::read_to_string(repository(file)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("tenon_") || word.starts_with("process_")) {
            let name = name.trim_end_matches("_bucket");
            assert!(document.contains(&format!("`{name}`")), "{file}: {name} is not in docs/metrics.md");
        }
    }
}

#[test]
fn s702_without_metrics_no_times_are_measured() {
    let home = Home::new();
    home.mount_volume();
    assert_eq!(home.status()["metrics"], serde_json::Value::Null);
    fs::write(home.mnt().join("file"), "x").unwrap();
    let first = home.stats();
    assert_eq!(
        first["changes"]["tenon_fuse_operation_duration_seconds_count{operation=\"CREATE\"}"],
        serde_json::Value::Null
    );
    // `stats` lets times be measured while it runs.
    let mut stats = home.command(crate::fixture::tenon());
    let stats = stats
        .args(["stats", "mnt", "--json", "--count=50", "--interval=100ms"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let made = std::cell::Cell::new(0);
    eventually("times are measured", || {
        made.set(made.get() + 1);
        fs::write(home.mnt().join(format!("file{}", made.get())), "x").unwrap();
        made.get() > 100
    });
    let output = stats.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 50);
    let created = "tenon_fuse_operation_duration_seconds_count{operation=\"CREATE\"}";
    let count: f64 = text
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["changes"][created].as_f64()
        })
        .sum();
    assert!(count > 0.0 && count <= 101.0, "{count}: {text}");
}

#[test]
fn s703_stats_shows_columns() {
    let home = Home::new();
    home.mount_volume();
    let shown =
        home.ok(["stats", "mnt", "--count=2", "--interval=100ms", "--columns=ops,read,memory,writeback"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["ops", "read", "memory", "writeback"]);
    assert!(lines[1].contains(" MiB") && lines.iter().all(|line| line.len() == lines[0].len()), "{shown}");
    let refused = home.refused(["stats", "mnt", "--columns=speed"]);
    assert!(refused.contains("'speed'"), "{refused}");
    assert!(home.refused(["stats", "volume2"]).contains("is not mounted"));
}

#[test]
fn s704_profile_shows_operations_by_process() {
    let home = Home::new();
    home.mount_volume();
    fs::write(home.mnt().join("file"), vec![1; 1 << 20]).unwrap();
    let mut profile = home.command(crate::fixture::tenon());
    let profile =
        profile.args(["profile", "mnt", "--duration=3s", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let output = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| profile.wait_with_output().unwrap());
        while !waiting.is_finished() {
            let cat = capture(
                home.command("/bin/sh").args(["-c", "cat mnt/file | wc -c; touch mnt/made; rm mnt/made"]),
            );
            assert_eq!(cat.out.trim(), "1048576");
        }
        waiting.join().unwrap()
    });
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (program, operation) in [("cat", "OPEN"), ("touch", "CREATE"), ("rm", "UNLINK")] {
        let found = rows.iter().find(|row| row["program"] == program && row["operation"] == operation);
        let row = found.unwrap_or_else(|| panic!("no {operation} of {program}: {text}"));
        assert!(row["pid"].as_u64() > Some(0) && row["count"].as_u64() >= Some(1), "{row}");
        assert!(row["longest_us"].as_u64() <= row["total_us"].as_u64(), "{row}");
    }
    let table = home.ok(["profile", "mnt", "--duration=1s", "--by=program", "--flame=flame.svg"]);
    let svg = fs::read_to_string(home.path("flame.svg")).unwrap();
    assert!(svg.starts_with("<?xml") && svg.contains("all programs: "), "{svg}");
    assert!(table.contains("no requests reached") || table.contains("total ms"), "{table}");
}

#[test]
fn s719_an_event_handler_has_metrics() {
    let server = servers::shared_minio();
    let home = s3::home(server).with("AWS_ENDPOINT_URL", &server.endpoint());
    let mut handler = home.command(crate::fixture::tenon());
    let metrics = servers::free_address();
    let mut handler = handler
        .args(["events", "serve", "--listen=127.0.0.1:0", &format!("--metrics={metrics}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it serves metrics", || TcpStream::connect(metrics).is_ok());
    let text = get(&metrics.to_string(), "/metrics", "*/*").1;
    assert_eq!(sample(&text, "tenon_handler_objects"), Some(0.0), "{text}");
    assert_eq!(sample(&text, "tenon_handler_hints_total{outcome=\"applied\"}"), Some(0.0), "{text}");
    check_by_promtool(&text);
    home.signal(handler.id(), rustix::process::Signal::TERM);
    assert!(handler.wait().unwrap().success());
}

#[test]
fn s718_a_service_manager_is_notified() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let socket = std::os::unix::net::UnixDatagram::bind(home.path("notify")).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let message = || {
        let mut bytes = [0; 4096];
        let len = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..len].to_vec()).unwrap()
    };
    let mut mount = home.command(crate::fixture::tenon());
    let mount = mount.args(["mount", "-f", "volume", "mnt"]).env("NOTIFY_SOCKET", home.path("notify"));
    let mut mount = mount.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ready = message();
    assert!(ready.starts_with("READY=1\nSTATUS=") && ready.contains("is mounted at"), "{ready}");
    fs::write(home.mnt().join("file"), "x").unwrap();
    home.signal(mount.id(), rustix::process::Signal::TERM);
    assert!(message().starts_with("STOPPING=1\n"));
    assert!(mount.wait().unwrap().success());
}

#[test]
fn s705_an_endpoint_without_files_has_metrics() {
    let home = Home::new();
    fs::create_dir_all(home.path("buckets/first")).unwrap();
    let volume = format!("dirs://{}", home.text("buckets"));
    let mut serve = home.command(crate::fixture::tenon());
    let mut serve = serve
        .args(["serve", &volume, "--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it serves", || home.tenon(["status", &volume]).code == 0);
    let status: serde_json::Value = serde_json::from_str(&home.ok(["status", &volume, "--json"])).unwrap();
    let address = |field: &str| {
        let url = status[field].as_str().unwrap().trim_start_matches("http://");
        url.trim_end_matches("/metrics").to_owned()
    };
    get(&address("endpoint"), "/first", "*/*");
    eventually("the request is counted", || {
        let text = get(&address("metrics"), "/metrics", "*/*").1;
        text.contains("tenon_s3_requests_total{operation=\"") && text.contains("status=\"403\"")
    });
    home.signal(serve.id(), rustix::process::Signal::TERM);
    assert!(serve.wait().unwrap().success());
}

/// A regression test: replies that are made from an errno alone were not errors in the metrics.
#[test]
fn s725_all_replies_with_an_error_are_counted() {
    let home = Home::new();
    home.ok(["format", "volume"]);
    let address = home.mount_with_metrics("volume", &[]);
    let file = home.mnt().join("file");
    fs::write(&file, "x").unwrap();
    rustix::fs::setxattr(&file, "user.long", b"a long value", rustix::fs::XattrFlags::empty()).unwrap();
    let count = || {
        let text = get(&address, "/metrics", "*/*").1;
        sample(&text, "tenon_fuse_errors_total{errno=\"ERANGE\"}")
    };
    assert_eq!(count(), None);
    let refused = rustix::fs::getxattr(&file, "user.long", &mut [0; 2][..]);
    assert_eq!(refused, Err(rustix::io::Errno::RANGE));
    // The reply is sent before it is counted.
    eventually("the reply is counted", || count() == Some(1.0));
}
