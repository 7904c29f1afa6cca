//! The metadata engine over a PostgreSQL database: [`meta_remote::Database`] for volumes that outlive a machine.
//!
//! Owns a schema of the database with the records, the op log, the head and the sessions of a volume (`tables`), the statements that read and
//! change them, and the connections. Everything that other databases need too is in `meta-remote`.
//!
//! Uses only what databases that speak PostgreSQL's protocol have in common: tables, prepared statements and row locks under `READ COMMITTED`.
//! There are no extensions, stored functions, advisory locks or rights beyond the schema.
//!
//! **Order.** A commit locks the head's row, and its statement then sees all commits before it. So commits have one order, a number is visible
//! only after all lower ones, and a reader of the log skips nothing. `docs/decisions/0098-commits-lock-the-head.md` has the reasons.
//!
//! Invariants: an acknowledged commit is durable as far as the database is (`synchronous_commit` is raised to `on`); a transaction's statements are
//! sent together, so that it takes one round trip; the head decreases only if the database has lost commits.

mod address;
mod columns;
mod connection;
mod database;
mod failure;
mod lease;
mod log;
mod parameters;
mod reads;
mod session;
mod snapshot;
mod statements;
mod tables;
mod tls;
mod transaction;

pub use address::{Address, AddressError};
pub use database::Postgres;

/// The engine over a PostgreSQL database.
pub type PostgresEngine = meta_remote::RemoteEngine<Postgres>;
