//! Redis.

use super::{Broker, PASSWORD, USER, replies_with, write_config};
use crate::program;
use crate::server::ServerSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a Redis that writes each change to its append-only file.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis() -> Broker {
    Broker::launch("redis", Redis { program: program::find_debian_program("redis-server", "redis-server") })
}

#[derive(Debug)]
struct Redis {
    program: PathBuf,
}

impl ServerSpec for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("redis.conf");
        let data = dir.join("data");
        let (ip, port, data) = (address.ip(), address.port(), data.display());
        // MinIO logs in with a password and no user name, which means the user `default`.
        write_config(
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

    fn is_ready(&self, address: SocketAddr) -> bool {
        // While Redis loads its data it replies -LOADING.
        let greeting = format!("AUTH {USER} {PASSWORD}\r\nPING\r\n");
        replies_with(address, greeting.as_bytes(), b"+OK\r\n+PONG")
    }
}
