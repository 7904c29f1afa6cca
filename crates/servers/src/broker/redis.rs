//! Redis.

use super::{Broker, PASSWORD, USER, replies_with, write_config};
use crate::program;
use crate::server::ServerSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a Redis that syncs each change to its append-only file before it replies. With Redis' default, `appendfsync everysec`, a change that was
/// answered while a sync takes long is not yet written, and a kill loses it.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis() -> Broker {
    redis_with("appendfsync always")
}

/// Starts a Redis with an append-only file, and further lines of its configuration.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis_with(settings: &str) -> Broker {
    let program = program::find_debian_program("redis-server", "redis-server");
    Broker::launch("redis", Redis { program, settings: settings.to_owned() })
}

/// Starts a Sentinel that watches a Redis under the name `names`, and makes one of its replicas the primary server a second after it is lost.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis_sentinel(primary: &Broker) -> Broker {
    sentinel(primary, "")
}

/// Starts a Sentinel like [`redis_sentinel`] that wants the password of the broker.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn redis_sentinel_with_password(primary: &Broker) -> Broker {
    sentinel(primary, &format!("requirepass {PASSWORD}"))
}

fn sentinel(primary: &Broker, settings: &str) -> Broker {
    let program = program::find_debian_program("redis-server", "redis-server");
    let settings = settings.to_owned();
    Broker::launch("redis-sentinel", Sentinel { program, primary: primary.address(), settings })
}

#[derive(Debug)]
struct Sentinel {
    program: PathBuf,
    primary: SocketAddr,
    /// Further lines of the configuration.
    settings: String,
}

impl ServerSpec for Sentinel {
    fn name(&self) -> &'static str {
        "redis-sentinel"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let (file, (ip, port)) = (dir.join("sentinel.conf"), (self.primary.ip(), self.primary.port()));
        write_config(
            &file,
            &format!(
                "bind {}\nport {}\nsentinel monitor names {ip} {port} 1\nsentinel auth-pass names {PASSWORD}\n\
                 sentinel down-after-milliseconds names 1000\nsentinel failover-timeout names 5000\n{}\n",
                address.ip(),
                address.port(),
                self.settings
            ),
        );
        let mut command = Command::new(&self.program);
        command.current_dir(dir).arg(file).arg("--sentinel");
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        // With a password, a PING needs it first.
        match self.settings.is_empty() {
            true => replies_with(address, b"PING\r\n", b"+PONG"),
            false => replies_with(address, b"PING\r\n", b"-NOAUTH"),
        }
    }
}

#[derive(Debug)]
struct Redis {
    program: PathBuf,
    settings: String,
}

impl ServerSpec for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let file = dir.join("redis.conf");
        let data = dir.join("data");
        let (ip, port, data, settings) = (address.ip(), address.port(), data.display(), &self.settings);
        // MinIO logs in with a password and no user name, which means the user `default`.
        write_config(
            &file,
            &format!(
                "bind {ip}\nport {port}\ndir {data}\nappendonly yes\nsave \"\"\n\
                 user default on >{PASSWORD} ~* &* +@all\nuser {USER} on >{PASSWORD} ~* &* +@all\n{settings}\n"
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
