//! ElasticMQ, a server of queues with the interface of Amazon SQS.

use super::{Broker, replies_with, write_config};
use crate::program;
use crate::server::ServerSpec;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts an ElasticMQ, which takes some seconds. It has one queue, `events`. A message that was received and not deleted is visible again after
/// five seconds. Signatures are not checked.
///
/// # Panics
/// Panics if Java or ElasticMQ's classes are missing, or if ElasticMQ does not answer.
pub fn elasticmq() -> Broker {
    Broker::launch("sqs+http", ElasticMq { classes: program::find_directory("elasticmq") })
}

#[derive(Debug)]
struct ElasticMq {
    classes: PathBuf,
}

impl ServerSpec for ElasticMq {
    fn name(&self) -> &'static str {
        "elasticmq"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let (file, (host, port), dir) =
            (dir.join("elasticmq.conf"), (address.ip(), address.port()), dir.display());
        // Each message is written before it is answered: the process may be killed.
        write_config(
            &file,
            &format!(
                "include classpath(\"application.conf\")\n\
                 node-address {{ protocol = http, host = \"{host}\", port = {port} }}\n\
                 rest-sqs {{ bind-hostname = \"{host}\", bind-port = {port}, sqs-limits = strict }}\n\
                 rest-stats.enabled = false\n\
                 queues-storage {{ enabled = true, path = \"{dir}/queues.conf\" }}\n\
                 messages-storage {{ enabled = true, uri = \"jdbc:h2:{dir}/messages;WRITE_DELAY=0\" }}\n\
                 queues {{ events {{ defaultVisibilityTimeout = 5 seconds }} }}\n"
            ),
        );
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:TieredStopAtLevel=1"])
            .arg(format!("-Dconfig.file={}", file.display()));
        command.arg("-cp").arg(self.classes.join("*")).arg("org.elasticmq.server.Main");
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        replies_with(address, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200")
    }
}
