//! NATS with JetStream.

use super::{Broker, PASSWORD, USER, begins, configure};
use crate::program;
use crate::server::Kind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a NATS server that keeps streams.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn nats() -> Broker {
    launch("nats", String::new())
}

/// The same with TLS: with a certificate and its key in PEM files.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn nats_with_tls(certificate: &Path, key: &Path) -> Broker {
    let (certificate, key) = (certificate.display(), key.display());
    launch("tls", format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n"))
}

fn launch(scheme: &'static str, tls: String) -> Broker {
    Broker::launch(scheme, Nats { program: program::debian_program("nats-server", "nats-server"), tls })
}

#[derive(Debug)]
struct Nats {
    program: PathBuf,
    /// The part of its settings that says so.
    tls: String,
}

impl Kind for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("nats.conf");
        let (data, user, password) = (dir.join("data"), USER, PASSWORD);
        let (data, tls) = (data.display(), &self.tls);
        configure(
            &file,
            &format!(
                "listen: \"{address}\"\n\
                 jetstream {{ store_dir: \"{data}\", max_file: 4GB }}\n\
                 authorization {{ user: {user}, password: \"{password}\" }}\n{tls}"
            ),
        );
        let mut command = Command::new(&self.program);
        command.current_dir(dir).arg("--config").arg(file);
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        begins(address, b"", b"INFO ")
    }
}
