//! beanstalkd, which OpenIO runs on each node.

use super::{Broker, replies_with};
use crate::program;
use crate::server::ServerSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a beanstalkd that writes each job to its log at once. It has no authentication.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn beanstalkd() -> Broker {
    beanstalkd_synced_every(0)
}

/// Starts a beanstalkd that syncs its log every `sync_ms` milliseconds; OpenIO sets 1000.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn beanstalkd_synced_every(sync_ms: u32) -> Broker {
    let program = program::find_debian_program("beanstalkd", "beanstalkd");
    Broker::launch("beanstalkd", Beanstalkd { program, sync_ms })
}

#[derive(Debug)]
struct Beanstalkd {
    program: PathBuf,
    sync_ms: u32,
}

impl ServerSpec for Beanstalkd {
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

    fn is_ready(&self, address: SocketAddr) -> bool {
        replies_with(address, b"list-tube-used\r\n", b"USING default\r\n")
    }
}
