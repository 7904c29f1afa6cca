//! RabbitMQ.

use super::{Broker, PASSWORD, USER, begins, configure};
use crate::free_address::free_address;
use crate::program;
use crate::server::Kind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which queues there are is kept by Mnesia, whose log stays in memory for two seconds. With this it is written after each change, so
/// that a queue outlasts a broker that is killed right after the queue was made.
const KEEP_AT_ONCE: &str = "-mnesia dump_log_write_threshold 1";

/// Starts a RabbitMQ of one node, which takes some seconds.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn rabbitmq() -> Broker {
    // Not the one on the path: that one becomes another user.
    let program = program::debian_program("rabbitmq-server", "rabbitmq-server");
    Broker::launch("amqp", Rabbitmq { program, erlang: free_address(), names: free_address() })
}

#[derive(Debug)]
struct Rabbitmq {
    program: PathBuf,
    /// Where the node would talk to other nodes, and where it asks which there are.
    erlang: SocketAddr,
    names: SocketAddr,
}

impl Kind for Rabbitmq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        configure(
            &dir.join("rabbitmq.conf"),
            &format!(
                "default_user = {USER}\ndefault_pass = {PASSWORD}\n\
                 vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n"
            ),
        );
        configure(&dir.join("plugins"), "[].\n");
        let mut command = Command::new("/bin/sh");
        command
            // The node asks a second program for the names of nodes, and starts one that stays unless there is one.
            .args(["-c", "epmd -address 127.0.0.1 & exec \"$0\""])
            .arg(&self.program)
            .current_dir(dir)
            .env("HOME", dir)
            .env("ERL_EPMD_PORT", self.names.port().to_string())
            .env(
                "ERL_AFLAGS",
                format!("-start_epmd false -kernel inet_dist_use_interface {{127,0,0,1}} {KEEP_AT_ONCE}"),
            )
            // One process, which does not wait for another.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("RABBITMQ_NODENAME", "tenon@localhost")
            .env("RABBITMQ_NODE_IP_ADDRESS", address.ip().to_string())
            .env("RABBITMQ_NODE_PORT", address.port().to_string())
            .env("RABBITMQ_DIST_PORT", self.erlang.port().to_string())
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
            .env("RABBITMQ_LOG_BASE", dir)
            .env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq"))
            .env("RABBITMQ_CONF_ENV_FILE", dir.join("none"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("plugins"));
        command
    }

    fn answers(&self, address: SocketAddr) -> bool {
        // A method (1) on channel 0.
        begins(address, b"AMQP\0\0\x09\x01", &[1, 0, 0])
    }
}
