//! An S3 endpoint over any [`store::Buckets`].
//!
//! Owns HTTP, XML, signatures, users, and what S3 says of a bucket beyond its objects (policy, CORS, tags and so on, kept
//! as [`store::Settings`]). The wire forms are `s3s`'s.
//!
//! Refuses: to know what holds the objects, a volume, a directory or a drive; to guess: a query or a header that stands
//! for an operation which is not implemented is answered with `NotImplemented`.
//!
//! Invariants: nothing is visible of an upload that did not arrive whole and as its checksums say; a request holds a
//! bounded share of memory, whatever its length; an error is S3's, and its text holds no secret.

mod access_log;
mod addressing;
mod admission;
mod authentication;
mod authorizer;
mod body;
mod bucket;
mod checksum_elements;
mod checksums;
mod conditions;
mod cors;
mod encryption;
mod endpoint;
mod error;
mod error_document;
mod file_mode;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod headers;
mod lifecycle;
mod notify;
mod operation_table;
mod ops;
mod owners;
mod pagination;
mod part_metadata;
mod policy;
mod policy_condition;
mod policy_variable;
mod preauthorizer;
mod response_fixups;
mod routes;
mod server;
mod service;
mod sessions;
mod users;
mod version_lookup;
mod wire;

pub use access_log::{AccessLog, AccessRecord};
pub use endpoint::{Endpoint, EndpointOptions};
pub use lifecycle::Expired;
pub use server::{Limits, Server};
pub use users::{Role, User, Users, UsersError};
