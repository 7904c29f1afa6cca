//! Kafka, of one node, without ZooKeeper.

use super::{Broker, PASSWORD, USER, configure};
use crate::free_address::free_address;
use crate::program;
use crate::server::Kind;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Starts a Kafka, which takes some seconds. Topics are not made by themselves.
///
/// # Panics
/// If its classes or Java are missing, or it does not answer.
pub fn kafka() -> Broker {
    Broker::launch("kafka", Kafka { classes: program::directory("kafka"), controller: free_address() })
}

#[derive(Debug)]
struct Kafka {
    classes: PathBuf,
    /// Where it talks to itself.
    controller: SocketAddr,
}

/// Any identity of a cluster: 16 bytes in base 64.
const CLUSTER: &str = "dGVub24tdGVzdHMtMDAwMQ";

impl Kind for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn command(&self, address: SocketAddr, dir: &Path) -> Command {
        let (file, data, controller) = (dir.join("kafka.properties"), dir.join("data"), self.controller);
        let data = data.display();
        let login = "org.apache.kafka.common.security.plain.PlainLoginModule required";
        configure(
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

    fn answers(&self, address: SocketAddr) -> bool {
        // ApiVersions (18) 0 with the number 7, from a client without a name. The answer has its length before that number.
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
