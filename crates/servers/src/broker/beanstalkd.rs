//! beanstalkd, which OpenIO has on every node.

use super::{Broker, begins};
use crate::program;
use crate::server::Kind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a beanstalkd that logs every job, and knows no users.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn beanstalkd() -> Broker {
    beanstalkd_synced_every(0)
}

/// The same with a log that is synced so often, in milliseconds: OpenIO has 1000.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn beanstalkd_synced_every(sync_ms: u32) -> Broker {
    let program = program::debian_program("beanstalkd", "beanstalkd");
    Broker::launch("beanstalkd", Beanstalkd { program, sync_ms })
}

#[derive(Debug)]
struct Beanstalkd {
    program: PathBuf,
    sync_ms: u32,
}

impl Kind for Beanstalkd {
    fn name(&self) -> &'static str {
        "beanstalkd"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let sync = self.sync_ms.to_string();
        command.current_dir(dir).args(["-l", &ip, "-p", &port, "-f", &sync, "-b"]).arg(dir.join("data"));
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        begins(address, b"list-tube-used\r\n", b"USING default\r\n")
    }
}
