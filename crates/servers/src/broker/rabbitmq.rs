//! RabbitMQ.

use super::{Broker, PASSWORD, USER, replies_with, write_config};
use crate::program;
use crate::server::ServerSpec;
use crate::server::free_address;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mnesia, which stores the list of queues, keeps its log in memory for two seconds. With this option it writes the log after each
/// change, so that a queue survives a kill of the broker right after its declaration.
const DUMP_LOG_AT_ONCE: &str = "-mnesia dump_log_write_threshold 1";

/// Starts a RabbitMQ of one node, which takes some seconds.
///
/// # Panics
/// If the program is missing or does not answer.
pub fn rabbitmq() -> Broker {
    // Not the wrapper on the path: it changes to another user.
    let program = program::find_debian_program("rabbitmq-server", "rabbitmq-server");
    Broker::launch(
        "amqp",
        Rabbitmq { program, distribution_address: free_address(), epmd_address: free_address() },
    )
}

#[derive(Debug)]
struct Rabbitmq {
    program: PathBuf,
    /// Address for Erlang distribution (to other nodes), and address of epmd, the name service of nodes.
    distribution_address: SocketAddr,
    epmd_address: SocketAddr,
}

impl ServerSpec for Rabbitmq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        write_config(
            &dir.join("rabbitmq.conf"),
            &format!(
                "default_user = {USER}\ndefault_pass = {PASSWORD}\n\
                 vm_memory_high_watermark.absolute = 1GB\ndisk_free_limit.absolute = 50MB\n"
            ),
        );
        write_config(&dir.join("plugins"), "[].\n");
        let mut command = Command::new("/bin/sh");
        command
            // The node looks up names in epmd. Without a running epmd it starts one that outlives the node.
            .args(["-c", "epmd -address 127.0.0.1 & exec \"$0\""])
            .arg(&self.program)
            .current_dir(dir)
            .env("HOME", dir)
            .env("ERL_EPMD_PORT", self.epmd_address.port().to_string())
            .env(
                "ERL_AFLAGS",
                format!("-start_epmd false -kernel inet_dist_use_interface {{127,0,0,1}} {DUMP_LOG_AT_ONCE}"),
            )
            // Run as one process that does not wait for another one.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env("RABBITMQ_NODENAME", "tenon@localhost")
            .env("RABBITMQ_NODE_IP_ADDRESS", address.ip().to_string())
            .env("RABBITMQ_NODE_PORT", address.port().to_string())
            .env("RABBITMQ_DIST_PORT", self.distribution_address.port().to_string())
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_MNESIA_BASE", dir.join("data"))
            .env("RABBITMQ_LOG_BASE", dir)
            .env("RABBITMQ_CONFIG_FILE", dir.join("rabbitmq"))
            .env("RABBITMQ_CONF_ENV_FILE", dir.join("none"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", dir.join("plugins"));
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        // Expect a frame of type method (1) on channel 0.
        replies_with(address, b"AMQP\0\0\x09\x01", &[1, 0, 0])
    }
}
