//! The page of a report in headless Chromium: its bars have the values of the results, and lengths in proportion to them.

use crate::bench_run::BenchRun;
use crate::fake::Fake;
use bench::{Catalog, Clock, Platform, Record, Results, Summary};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Returns, for each heading, the bars below it: the label, the value and the length on the screen.
const BARS: &str = "
    return [...document.querySelectorAll('.panels > div')]
        .filter(panel => panel.querySelector('rect[data-value]'))
        .map(panel => ({
            job: panel.querySelector('h3').textContent,
            bars: [...panel.querySelectorAll('rect[data-value]')].map(bar => {
                const labels = [...panel.querySelectorAll('text.label')];
                const above = labels.filter(label => label.getBBox().y < bar.getBBox().y).pop();
                return {
                    label: above.textContent,
                    value: Number(bar.dataset.value),
                    length: bar.getBoundingClientRect().width,
                };
            }),
        }));";

/// Chromium's driver, which speaks WebDriver. Dropping it ends the browser.
struct Driver {
    child: Child,
    address: String,
    session: String,
}

impl Driver {
    fn start(profile: &std::path::Path) -> Self {
        let address = servers::free_address().to_string();
        let port = address.rsplit(':').next().unwrap();
        let child = Command::new("/usr/bin/chromedriver")
            .arg(format!("--port={port}"))
            .process_group(0)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}: run scripts/packages chromium-driver"));
        let mut driver = Self { child, address, session: String::new() };
        for _ in 0..200 {
            if TcpStream::connect(&driver.address).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1400,1000",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let options = json!({"browserName": "chrome", "goog:chromeOptions": {"args": flags}});
        let made = driver.call("POST", "/session", &json!({"capabilities": {"alwaysMatch": options}}));
        driver.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        driver
    }

    /// Makes a call of WebDriver, and returns its value.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (mut stream, body) = (TcpStream::connect(&self.address).unwrap(), body.to_string());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut from = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while from.read_line(&mut head).unwrap() > 2 {
            let last = head.lines().last().unwrap_or_default().to_lowercase();
            if let Some(value) = last.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(head.contains(" 200 "), "{path}: {body}");
        let document: Value = serde_json::from_str(&body).unwrap();
        document["value"].clone()
    }

    fn open(&self, url: &str) {
        self.call("POST", &format!("{}/url", self.session), &json!({"url": url}));
    }

    fn run(&self, script: &str) -> Value {
        self.call("POST", &format!("{}/execute/sync", self.session), &json!({"script": script, "args": []}))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &self.session, &json!({}));
        }
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Returns the medians of the results, by the title of the job and that of the package.
fn medians(records: &[Record]) -> BTreeMap<(String, String), f64> {
    let summary = Summary::of(records, Clock::Durable);
    let mut medians = BTreeMap::new();
    for row in &summary.rows {
        for (job, cell) in summary.jobs.iter().zip(&row.cells) {
            if let Some(spread) = cell.spread() {
                medians.insert((job.title.clone(), row.title.clone()), spread.median);
            }
        }
    }
    medians
}

#[test]
fn the_bars_of_the_page_show_the_results() {
    let mut targets = Catalog::shipped().unwrap().targets("local").unwrap();
    targets.push(Fake::good().target());
    let mut bench_run = BenchRun::new(targets, Platform::directory());
    bench_run.plan.repeats = 3;
    let records = bench_run.run();
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("report.html");
    std::fs::write(&page, bench::report::html(&records, Clock::Durable, &Default::default(), &[])).unwrap();
    let driver = Driver::start(&dir.path().join("profile"));
    driver.open(&format!("file://{}", page.display()));
    let panels = driver.run(BARS);
    let mut shown = BTreeMap::new();
    for panel in panels.as_array().unwrap() {
        let job = panel["job"].as_str().unwrap();
        let bars: Vec<(&str, f64, f64)> = panel["bars"]
            .as_array()
            .unwrap()
            .iter()
            .map(|bar| {
                let number = |name: &str| bar[name].as_f64().unwrap();
                (bar["label"].as_str().unwrap(), number("value"), number("length"))
            })
            .collect();
        let longest = bars.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        for (label, value, length) in bars {
            let expected = value / longest.1 * longest.2;
            assert!((length - expected).abs() < 2.0, "{job}, {label}: {length} px instead of {expected}");
            shown.insert((job.to_owned(), label.to_owned()), value);
        }
    }
    let medians = medians(&Results::read(&bench_run.results_path()).unwrap());
    assert_eq!((shown.len(), medians.len()), (12, 12));
    for (bar, value) in shown {
        // The last digit may differ: the page and the file of results are parsed by different programs.
        assert!((value / medians[&bar] - 1.0).abs() < 1e-12, "{bar:?}: {value} instead of {}", medians[&bar]);
    }
    // Nothing is cut off, and no script is needed.
    assert_eq!(driver.run("return document.documentElement.scrollWidth <= window.innerWidth"), json!(true));
    assert_eq!(driver.run("return document.scripts.length"), json!(0));
}
