//! The metadata engine over a PostgreSQL database: [`meta::Engine`] for volumes that outlive a machine.
//!
//! Owns a schema of the database with the records, the op log, the head and the sessions of a volume (`tables`), the statements that read and
//! change them, the connections, and the search for the outcome of a commit whose answer is lost. The meaning of ops stays in `meta`.
//!
//! Uses only what databases that speak PostgreSQL's protocol have in common: tables, prepared statements and row locks under `READ COMMITTED`.
//! There are no extensions, stored functions, advisory locks or rights beyond the schema.
//!
//! **Order.** A commit locks the head's row, and its statement then sees all commits before it. So commits have one order, a number is visible
//! only after all lower ones, and a reader of the log skips nothing. `docs/decisions/0098-commits-lock-the-head.md` has the reasons.
//!
//! **Group commit.** One task commits. It takes all waiting commits that do not depend on each other (`group`) into one transaction, whose
//! statements are sent together: one round trip for the group. The database decides for each commit by its conditions.
//!
//! **Merges.** The database merges without reading a record: the numbers that a merge changes are columns beside the record
//! (`mergeable`), which every put sets, and which readers put into the record.
//!
//! **Lost answers.** A session has a row with the number and the outcome of its last group. After a lost answer the engine raises the
//! session's generation, so that a transaction of the lost connection can no longer commit, and reads the outcome.
//!
//! Invariants: a group is applied at most once; an answered commit is durable as far as the database is
//! (`synchronous_commit` is raised to `on`); the head never decreases; with an exclusive session, no other session commits.

mod address;
mod commit_task;
mod committer;
mod connection;
mod engine;
mod error;
mod group;
mod link;
mod log;
mod mergeable;
mod reads;
mod run;
mod session;
mod snapshot;
mod statements;
mod tables;
mod tls;
mod transaction;

pub use address::{Address, AddressError};
pub use engine::{PostgresEngine, PostgresOptions};
pub use error::OpenError;
