//! Real servers and brokers for tests, started on free loopback ports and gone with the test.
//!
//! Owns finding the programs, starting them on a fresh directory, waiting until they answer, stopping and
//! reviving them, and cleaning up. Development only: no product crate depends on it, and it depends on none.
//!
//! Beside them a [`Proxy`] that fails as networks do, and a [`SmallDisk`] that is soon full.
//!
//! Refuses: to skip. A program that cannot be found is a panic that says how to get it, so that a test which
//! needs a server fails where there is none.
//!
//! Invariant: however the test process ends, the server is killed and its directory removed (see [`reaper`]).

mod broker;
mod free_address;
mod program;
mod proxy;
mod reaper;
mod s3;
mod server;
mod small_disk;

pub use broker::{Broker, beanstalkd, beanstalkd_synced_every, kafka, nats, nats_with_tls, rabbitmq, redis};
pub use free_address::free_address;
pub use program::program;
pub use proxy::{Mode, Proxy};
pub use s3::{S3Server, minio, minio_with, shared_minio, shared_versitygw, versitygw, versitygw_with};
pub use server::Server;
pub use small_disk::SmallDisk;
