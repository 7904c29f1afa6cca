//! Redis.

use super::{Broker, PASSWORD, USER, begins, configure};
use crate::program;
use crate::server::Kind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a Redis that logs every change.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis() -> Broker {
    Broker::launch("redis", Redis { program: program::debian_program("redis-server", "redis-server") })
}

#[derive(Debug)]
struct Redis {
    program: PathBuf,
}

impl Kind for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("redis.conf");
        let data = dir.join("data");
        let (ip, port, data) = (address.ip(), address.port(), data.display());
        // MinIO logs in with a password and no name, which is the user `default`.
        configure(
            &file,
            &format!(
                "bind {ip}\nport {port}\ndir {data}\nappendonly yes\nsave \"\"\n\
                 user default on >{PASSWORD} ~* &* +@all\nuser {USER} on >{PASSWORD} ~* &* +@all\n"
            ),
        );
        let mut command = Command::new(&self.program);
        command.current_dir(dir).arg(file);
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        // While it loads it says -LOADING.
        let greeting = format!("AUTH {USER} {PASSWORD}\r\nPING\r\n");
        begins(address, greeting.as_bytes(), b"+OK\r\n+PONG")
    }
}
