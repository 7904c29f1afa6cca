//! Brokers: NATS, Redis, RabbitMQ and beanstalkd from Debian's packages, Kafka, and ElasticMQ in place of SQS.

mod beanstalkd;
mod elasticmq;
mod kafka;
mod nats;
mod rabbitmq;
mod redis;

use crate::server::{Server, ServerSpec};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::time::Duration;

pub use beanstalkd::{beanstalkd, beanstalkd_synced_every};
pub use elasticmq::elasticmq;
pub use kafka::kafka;
pub use nats::{nats, nats_with_tls};
pub use rabbitmq::rabbitmq;
pub use redis::{redis, redis_sentinel, redis_sentinel_with_password, redis_with};

const USER: &str = "tenon";
const PASSWORD: &str = "no-secret-either";

/// A running broker with one user. Its data survives [`Server::stop`] and [`Server::restart`].
#[derive(Debug)]
pub struct Broker {
    scheme: &'static str,
    server: Server,
}

impl Broker {
    fn launch(scheme: &'static str, spec: impl ServerSpec + 'static) -> Self {
        Self { scheme, server: Server::launch(Box::new(spec)) }
    }

    /// Returns the URL `scheme://user:password@127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("{}://{USER}:{PASSWORD}@{}", self.scheme, self.address())
    }

    /// Returns the URL `scheme://127.0.0.1:port`.
    pub fn url_without_user(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// Returns the name of the user, who has all rights.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// Returns the user's password.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }
}

impl Deref for Broker {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

impl DerefMut for Broker {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.server
    }
}

/// Writes the configuration file that a broker is started with.
fn write_config(file: &Path, settings: &str) {
    std::fs::write(file, settings).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
}

/// Whether the broker's reply to `greeting` begins with `expected`.
fn replies_with(address: SocketAddr, greeting: &[u8], expected: &[u8]) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(greeting)?;
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer == expected)
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_lifecycle(mut broker: Broker) {
        let (address, dir) = (broker.address(), broker.data_dir());
        assert!(TcpStream::connect(address).is_ok());
        broker.stop();
        assert!(TcpStream::connect(address).is_err());
        broker.restart();
        assert_eq!(broker.address(), address);
        drop(broker);
        assert!(TcpStream::connect(address).is_err());
        assert!(!dir.exists());
    }

    #[test]
    fn elasticmq_stops_with_its_handle() {
        check_lifecycle(elasticmq());
    }

    #[test]
    fn kafka_stops_with_its_handle() {
        check_lifecycle(kafka());
    }

    #[test]
    fn nats_stops_with_its_handle() {
        check_lifecycle(nats());
    }

    #[test]
    fn redis_stops_with_its_handle() {
        check_lifecycle(redis());
    }

    #[test]
    fn rabbitmq_stops_with_its_handle() {
        check_lifecycle(rabbitmq());
    }

    #[test]
    fn beanstalkd_stops_with_its_handle() {
        check_lifecycle(beanstalkd());
    }
}
