//! The metadata engine over a Redis server: [`meta_remote::Database`] for volumes that outlive a machine.
//!
//! Owns the keys of a volume in the server, the scripts that read and change them (`scripts/`), the connections, and the check of the server's
//! settings. Everything that other databases need too is in `meta-remote`.
//!
//! | key below `tenon:{ID}:` | type | content |
//! |---|---|---|
//! | `head` | hash | the newest commit, the size and the start of the log, the session with exclusive access, the version of this layout |
//! | `records` | hash | a record under its key, with its version and the numbers that merges change |
//! | `order` | sorted set | the keys of the records, in their order |
//! | `log` | stream | the ops of a commit, its writer and the keys of the records that it changed, under the commit's number |
//! | `sessions` | hash | an engine that is open, and the number and outcome of its last group of commits |
//! | `leases` | hash | the lease of a session that shares the volume |
//! | `locks` | hash | the locks of a file |
//! | `consumers` | hash | the cursor of a log consumer |
//! | `runs`, `run-records:V`, `run-pages:V` | set, hashes | a run that is not added yet; the pages of a run's ops |
//! | `snapshots`, `snapshot:S`, `snapshot-order:S` | hash, hash, sorted set | the session of a snapshot; the records that it keeps |
//!
//! **Order.** A group of commits is one script. The server runs one script at a time and completely, so commits have one order, and a reader of
//! the log skips nothing. A script checks everything before its first write, because the server does not undo writes.
//!
//! **Snapshots.** The server has none. While there is one, a commit first keeps the record that it replaces, once for each snapshot.
//!
//! Invariants: the server is not a cluster, evicts nothing and has an append-only file; the head decreases only if the server has lost commits.

mod address;
mod connection;
mod database;
mod failure;
mod lease;
mod log;
mod reads;
mod record;
mod request;
mod scripts;
mod sentinels;
mod server;
mod session;
mod snapshot;
mod stream;
mod values;

pub use address::{Address, AddressError};
pub use database::Redis;

/// The engine over a Redis server.
pub type RedisEngine = meta_remote::RemoteEngine<Redis>;
