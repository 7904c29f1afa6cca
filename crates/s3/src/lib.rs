//! An S3 endpoint over any [`store::Buckets`].
//!
//! Owns HTTP, XML, signatures, users, and bucket settings (policy, CORS, tags and so on, kept as [`store::Settings`]).
//! The crate `s3s` parses requests and serializes responses.
//!
//! Refuses: to know whether a volume, a directory or a drive holds the objects; to guess: a request whose query or
//! header asks for something not implemented gets `NotImplemented`.
//!
//! Invariants: an upload becomes visible only when it has arrived completely and matches its checksums; the memory that
//! a request holds is bounded, whatever its length; every error is an S3 error, and its text holds no secret.

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
mod context;
mod copy_source;
mod cors;
mod encryption;
mod endpoint;
mod error;
mod error_document;
mod file_mode;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod headers;
mod iam_actions;
mod identity;
mod in_process;
mod lifecycle;
mod metadata_names;
mod notify;
mod operations;
mod ops;
mod owners;
mod pagination;
mod part_metadata;
mod policy;
mod policy_condition;
mod policy_variable;
mod query;
mod request;
mod request_handler;
mod request_record;
mod response;
mod routes;
mod scope;
mod server;
mod service;
mod sessions;
mod traced_request;
mod users;
mod version_lookup;
mod wire;

pub use access_log::{AccessLog, AccessRecord};
pub use endpoint::{Endpoint, EndpointOptions};
pub use identity::Identity;
pub use in_process::Body;
pub use lifecycle::Expired;
pub use server::{Limits, Server};
pub use traced_request::TracedRequest;
pub use users::{Role, User, Users, UsersError};
