//! Real servers, brokers and databases for tests. Each runs on a free loopback port and ends with the test.
//!
//! Owns finding the programs, starting them on a fresh directory, waiting until they answer, stopping and
//! restarting them. Development only: no product crate depends on this crate. Cleanup, free ports and the proxy are those of `harness`.
//!
//! Also starts a [`Browser`], a [`Proxy`] that injects network faults, and commands with a time limit ([`run_to_end`]), and has a [`SmallDisk`] that a
//! test can fill.
//!
//! Refuses: to skip. A missing program is a panic that says how to get it, so that a test which needs a server
//! fails on a machine without one.
//!
//! Invariant: however the test process ends, the server is killed and its directory removed ([`harness::CleanupProcess`]).

mod broker;
mod browser;
mod collector;
mod command;
mod postgres;
mod program;
mod prometheus;
mod proxy;
mod s3;
mod server;
mod small_disk;

pub use broker::{
    Broker, beanstalkd, beanstalkd_synced_every, elasticmq, kafka, nats, nats_with_tls, rabbitmq, redis,
    redis_sentinel, redis_sentinel_with_password, redis_with,
};
pub use browser::Browser;
pub use collector::{Collector, collector};
pub use command::run_to_end;
pub use harness::{Mode, Proxy};
pub use postgres::{Postgres, postgres, postgres_on};
pub use program::program;
pub use prometheus::{Prometheus, prometheus, promtool};
pub use proxy::proxy;
pub use s3::{S3Server, minio, minio_with, shared_minio, shared_versitygw, versitygw, versitygw_with};
pub use server::{Server, free_address};
pub use small_disk::SmallDisk;
