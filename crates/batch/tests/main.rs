//! Tests of private namespaces, verification and merge.

#![expect(clippy::unwrap_used, reason = "tests")]

mod fixture;
mod hostile;
mod merging;
mod private;
