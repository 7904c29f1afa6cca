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
    Broker::launch("nats", Nats { program: program::debian_program("nats-server", "nats-server") })
}

#[derive(Debug)]
struct Nats {
    program: PathBuf,
}

impl Kind for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("nats.conf");
        let (data, user, password) = (dir.join("data"), USER, PASSWORD);
        let data = data.display();
        configure(
            &file,
            &format!(
                "listen: \"{address}\"\n\
                 jetstream {{ store_dir: \"{data}\", max_file: 4GB }}\n\
                 authorization {{ user: {user}, password: \"{password}\" }}\n"
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
