//! Tests of the namespace as its users see it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod acl;
mod codec;
mod concurrent;
mod content;
mod engines;
mod fixture;
mod ops;
mod properties;
mod quotas;
mod reference;
mod rules;
