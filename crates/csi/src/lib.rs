//! A driver of the Container Storage Interface 1.x: an orchestrator such as Kubernetes creates, mounts and deletes volumes by it.
//!
//! Owns the messages and their gRPC server on a unix socket, the ids of volumes, their records in the bucket, the mounts of a node and their
//! records. A volume is a bucket or a prefix of one, and is mounted by the program `tenon`.
//!
//! Refuses to read flags and the environment, and to know how a server is reached: [`OpenBuckets`] does. Secrets are in no argument, no log and
//! no record, only in files that the driver's user alone may read.
//!
//! Invariants: a mount has a record before it exists. Only volumes that the driver made are deleted. A volume has one operation at a time.

mod access;
mod bucket_volume;
mod controller;
mod disk_cache;
mod driver;
mod grpc;
mod in_flight;
mod message;
mod mount_arguments;
mod mount_flags;
mod mounts;
mod node;
mod staged_volume;
mod usage;
mod volume_place;

pub use access::{Access, AccessKey};
pub use controller::OpenBuckets;
pub use disk_cache::CacheRoom;
pub use driver::{Driver, Settings, Socket};
pub use mount_arguments::MountArguments;
pub use mount_flags::accepted_names;
