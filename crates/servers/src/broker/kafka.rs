//! A Kafka cluster of one node, without ZooKeeper.

use super::{Broker, PASSWORD, USER, write_config};
use crate::program;
use crate::server::ServerSpec;
use crate::server::free_address;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Starts a Kafka, which takes some seconds. Topics must be created explicitly.
///
/// # Panics
/// Panics if Java or Kafka's classes are missing, or if Kafka does not answer.
pub fn kafka() -> Broker {
    Broker::launch("kafka", Kafka { classes: program::find_directory("kafka"), controller: free_address() })
}

#[derive(Debug)]
struct Kafka {
    classes: PathBuf,
    /// Address of the controller listener, which only this node uses.
    controller: SocketAddr,
}

/// An arbitrary cluster id: 16 bytes in base 64.
const CLUSTER: &str = "dGVub24tdGVzdHMtMDAwMQ";

impl ServerSpec for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let (file, data, controller) = (dir.join("kafka.properties"), dir.join("data"), self.controller);
        let data = data.display();
        let login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        write_config(
            &file,
            &format!(
                "process.roles=broker,controller\n\
                 node.id=1\n\
                 listeners=CLIENTS://{address},CONTROLLER://{controller}\n\
                 advertised.listeners=CLIENTS://{address}\n\
                 listener.security.protocol.map=CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT\n\
                 controller.listener.names=CONTROLLER\n\
                 inter.broker.listener.name=CLIENTS\n\
                 controller.quorum.voters=1@{controller}\n\
                 sasl.enabled.mechanisms=PLAIN\n\
                 sasl.mechanism.inter.broker.protocol=PLAIN\n\
                 listener.name.clients.plain.sasl.jaas.config={login} username=\"{USER}\" \
                 password=\"{PASSWORD}\" user_{USER}=\"{PASSWORD}\";\n\
                 log.dirs={data}\n\
                 offsets.topic.replication.factor=1\n\
                 auto.create.topics.enable=false\n"
            ),
        );
        let script = "[ -e data/meta.properties ] || \
            java -cp \"$0\" kafka.tools.StorageTool format -t \"$2\" -c \"$1\" || exit 1; \
            exec java -Xmx256m -XX:TieredStopAtLevel=1 -cp \"$0\" kafka.Kafka \"$1\"";
        let mut command = Command::new("/bin/sh");
        command.current_dir(dir).args(["-c", script]).arg(self.classes.join("*")).arg(file).arg(CLUSTER);
        command
    }

    fn is_ready(&self, address: SocketAddr) -> bool {
        // Request ApiVersions (18) version 0 with correlation id 7 and no client id. The response is its length and then that id.
        let question = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xFF, 0xFF];
        let ask = || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(&question)?;
            let mut answer = [0; 8];
            stream.read_exact(&mut answer)?;
            Ok(answer[4..] == [0, 0, 0, 7])
        };
        ask().unwrap_or(false)
    }
}
