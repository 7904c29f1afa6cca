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
    Broker::launch("beanstalkd", Beanstalkd { program: program::debian_program("beanstalkd", "beanstalkd") })
}

#[derive(Debug)]
struct Beanstalkd {
    program: PathBuf,
}

impl Kind for Beanstalkd {
    fn name(&self) -> &'static str {
        "beanstalkd"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        command.current_dir(dir).args(["-l", &ip, "-p", &port, "-f0", "-b"]).arg(dir.join("data"));
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        begins(address, b"list-tube-used\r\n", b"USING default\r\n")
    }
}
