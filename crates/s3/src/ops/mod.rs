//! The S3 operations, one file per family. Each takes a request's input and returns the response's output.

pub(crate) mod acl;
pub(crate) mod buckets;
mod checksum_kind;
pub(crate) mod contents_xml;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod multipart;
mod part_etags;
pub(crate) mod put;
pub(crate) mod rename;
pub(crate) mod settings;
pub(crate) mod sts;
pub(crate) mod tagging;
pub(crate) mod versions;
pub(crate) mod website;
