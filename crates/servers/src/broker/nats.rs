//! NATS with JetStream.

use super::{Broker, PASSWORD, USER, replies_with, write_config};
use crate::program;
use crate::server::ServerSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a NATS server with streams on disk.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn nats() -> Broker {
    launch("nats", String::new())
}

/// Starts a NATS server with streams on disk and TLS. The certificate and its key are PEM files.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn nats_with_tls(certificate: &Path, key: &Path) -> Broker {
    let (certificate, key) = (certificate.display(), key.display());
    launch("tls", format!("tls {{ cert_file: \"{certificate}\", key_file: \"{key}\" }}\n"))
}

fn launch(scheme: &'static str, tls: String) -> Broker {
    Broker::launch(scheme, Nats { program: program::find_debian_program("nats-server", "nats-server"), tls })
}

#[derive(Debug)]
struct Nats {
    program: PathBuf,
    /// The `tls` block of the configuration, or nothing.
    tls: String,
}

impl ServerSpec for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("nats.conf");
        let (data, user, password) = (dir.join("data"), USER, PASSWORD);
        let (data, tls) = (data.display(), &self.tls);
        write_config(
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

    fn is_ready(&self, address: SocketAddr) -> bool {
        replies_with(address, b"", b"INFO ")
    }
}
