//! A collector of traces: the OTLP receiver of the OpenTelemetry collector.

use crate::program;
use crate::server::{Server, ServerSpec};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running collector.
#[derive(Debug)]
pub struct Collector(Server);

/// Starts a collector.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn collector() -> Collector {
    Collector(Server::launch(Box::new(Spec(program("otlp-receiver")))))
}

impl Collector {
    /// Returns the URL for `--otlp`.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address())
    }

    /// Returns what the collector has received so far: a line of OTLP's JSON for each message.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub fn received(&self) -> String {
        let file = self.0.data_dir().with_file_name(RECEIVED);
        std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
    }

    /// Returns the `Authorization` header of the last message; empty for none.
    ///
    /// # Panics
    /// If no message was received.
    pub fn authorization(&self) -> String {
        let file = self.0.data_dir().with_file_name(format!("{RECEIVED}.authorization"));
        std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()))
    }

    /// Kills the collector. Its port stays reserved for [`Collector::restart`].
    pub fn stop(&mut self) {
        self.0.stop();
    }

    /// Starts the collector again.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart(&mut self) {
        self.0.restart();
    }
}

/// Name of the file of received messages.
const RECEIVED: &str = "received.jsonl";

#[derive(Debug)]
struct Spec(PathBuf);

impl ServerSpec for Spec {
    fn name(&self) -> &'static str {
        "otlp-receiver"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(address.to_string()).arg(dir.join(RECEIVED));
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        TcpStream::connect(address).is_ok()
    }
}
