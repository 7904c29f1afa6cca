//! Prometheus, which scrapes metrics and evaluates alert rules.

use crate::program;
use crate::server::{Server, ServerSpec};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus(Server);

/// Starts a Prometheus that scrapes the addresses every second, and loads a file of rules.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn prometheus(targets: &[String], rules: &Path) -> Prometheus {
    let program = program::find_debian_program("prometheus", "prometheus");
    let (targets, rules) = (targets.to_vec(), rules.to_owned());
    Prometheus(Server::launch(Box::new(Spec { program, targets, rules })))
}

/// Returns the program that checks metrics and rules.
///
/// # Panics
/// If the program is missing.
pub fn promtool() -> PathBuf {
    program::find_debian_program("promtool", "prometheus")
}

impl Prometheus {
    /// Sends a GET request, such as `/api/v1/query?query=up`. Returns the body of the response.
    ///
    /// # Panics
    /// If the server does not answer with status 200.
    pub fn get(&self, path: &str) -> String {
        let response = http_get(self.0.address(), path);
        let response = response.unwrap_or_else(|error| panic!("Prometheus does not answer {path}: {error}"));
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{path}: {response}");
        body.to_owned()
    }
}

#[derive(Debug)]
struct Spec {
    program: PathBuf,
    targets: Vec<String>,
    rules: PathBuf,
}

impl ServerSpec for Spec {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{:?}]\nscrape_configs:\n- job_name: tenon\n  static_configs:\n  - targets:\n",
            self.rules
        );
        for target in &self.targets {
            // Writing to a string cannot fail.
            let _ = writeln!(config, "    - {target}");
        }
        let file = dir.join("prometheus.yml");
        std::fs::write(&file, config)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        http_get(address, "/-/ready").is_ok_and(|response| response.contains(" 200 "))
    }
}

/// Sends a GET request in HTTP/1.0, whose response ends with the connection.
fn http_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}
