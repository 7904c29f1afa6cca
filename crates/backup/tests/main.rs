//! Tests of backups and dumps. Random worlds with crashes are in the crate `sim`.

#![expect(clippy::unwrap_used, reason = "tests")]

mod dump;
mod exporter;
mod fixture;
