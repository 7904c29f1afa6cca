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

mod access;
mod access_log;
mod admission;
mod authorization;
mod body;
mod buckets;
mod checksums;
mod conditions;
mod cors;
mod early_access;
mod elements;
mod encryption;
mod endpoint;
mod error;
mod error_document;
mod file_mode;
mod fold;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod headers;
mod lifecycle;
mod mending;
mod named;
mod notify;
mod ops;
mod owners;
mod parts;
mod policy;
mod policy_condition;
mod policy_variable;
mod query;
mod routes;
mod server;
mod service;
mod sessions;
mod users;
mod versioned;
mod wire;

pub use access_log::{AccessLog, AccessRecord};
pub use endpoint::{Endpoint, EndpointOptions};
pub use lifecycle::Expired;
pub use server::{Limits, Server};
pub use users::{Role, User, Users, UsersError};
