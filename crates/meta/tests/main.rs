//! Tests of the namespace through its public interface.

#![expect(clippy::unwrap_used, reason = "tests")]

mod acl;
mod codec;
mod concurrent;
mod engines;
mod extents;
mod fixture;
mod invariants;
mod properties;
mod quotas;
mod reference;
mod rules;
mod strategies;
