//! The suite that every [`Database`](crate::Database) passes on a real server, in addition to the suite of engines: sessions, lost answers and
//! commits, and crashes of the server. [`database_tests`](crate::database_tests) makes its tests.

#![expect(clippy::unwrap_used, reason = "tests")]

mod crash;
mod leases;
mod relay;
mod sessions;

use crate::{Database, OpenError, RemoteEngine, RemoteOptions};
use meta::{Commit, Engine, LogCap, Moment, OpContext, Origin, Reader, Rows, Seqno};
use std::net::SocketAddr;
use std::ops::Bound;
use std::time::Duration;
use store::Timestamp;

pub use crash::a_killed_server_loses_no_acknowledged_commit_and_makes_none_twice;
pub use leases::{
    a_commit_waits_for_strict_sessions, a_replacement_of_locks_that_arrives_late_is_fenced,
    locks_belong_to_a_lease, locks_end_when_the_database_has_lost_changes_of_them,
    locks_of_a_session_that_died_are_void,
};
pub use sessions::{
    a_commit_whose_answer_is_lost_is_made_once, a_database_that_has_lost_commits_is_used_on,
    a_merge_does_not_hide_a_change_of_another_session, a_namespace_without_its_inode_numbers_changes_nothing,
    a_session_that_is_silent_loses_its_access, a_transaction_that_arrives_late_is_fenced,
    an_idle_session_stays_alive_after_a_restart,
    cached_records_are_dropped_when_another_session_changes_them,
    calls_fail_after_their_budget_and_succeed_again, exclusive_access_waits_for_sessions_that_are_alive,
    metadata_is_made_once, one_session_has_exclusive_access, sessions_share_a_volume,
};

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// The consumer for which the whole log is kept.
const ALL: &str = "all";

/// A new volume on a real server.
pub trait Volume: Sync {
    /// The database that is tested.
    type Database: Database;

    /// Describes the volume's database.
    fn database(&self) -> Self::Database;

    /// Describes the volume's database, as reached at another address.
    fn database_at(&self, address: SocketAddr) -> Self::Database;

    /// Returns the server's address.
    fn server(&self) -> SocketAddr;

    /// Makes the last sign of life of all sessions this much older.
    fn silence_sessions(&self, seconds: i64);
}

/// A volume with a server of its own.
pub trait OwnServer: Volume {
    /// Kills the server.
    fn stop(&self);

    /// Starts the server again.
    fn restart(&self);

    /// Copies what the server has on disk.
    fn remember(&self);

    /// Kills the server, and starts it again with what it had on disk at the last [`Self::remember`].
    fn go_back(&self);
}

/// Makes a test of each case: `new` is a new [`Volume`], `own` one with a server of its own.
#[macro_export]
macro_rules! database_tests {
    ($new:expr, $own:expr) => {
        $crate::database_tests! {
            @cases $new;
            a_commit_whose_answer_is_lost_is_made_once a_transaction_that_arrives_late_is_fenced one_session_has_exclusive_access
            a_session_that_is_silent_loses_its_access sessions_share_a_volume cached_records_are_dropped_when_another_session_changes_them
            a_commit_waits_for_strict_sessions a_replacement_of_locks_that_arrives_late_is_fenced
            locks_belong_to_a_lease locks_of_a_session_that_died_are_void
            a_merge_does_not_hide_a_change_of_another_session exclusive_access_waits_for_sessions_that_are_alive metadata_is_made_once
        }
        $crate::database_tests! {
            @cases $own;
            a_namespace_without_its_inode_numbers_changes_nothing
            calls_fail_after_their_budget_and_succeed_again an_idle_session_stays_alive_after_a_restart a_database_that_has_lost_commits_is_used_on
            a_killed_server_loses_no_acknowledged_commit_and_makes_none_twice locks_end_when_the_database_has_lost_changes_of_them
        }
    };
    (@cases $volume:expr; $($case:ident)*) => {
        $(#[test]
        fn $case() {
            $crate::conformance::$case(&$volume);
        })*
    };
}

fn try_open<V: Volume>(volume: &V, options: RemoteOptions) -> Result<RemoteEngine<V::Database>, OpenError> {
    RemoteEngine::open(volume.database(), options)
}

fn open<V: Volume>(volume: &V, options: RemoteOptions) -> RemoteEngine<V::Database> {
    try_open(volume, options).unwrap()
}

/// Opens the engine, with a log that is kept for the consumer [`ALL`].
fn open_with_log<V: Volume>(volume: &V, options: RemoteOptions) -> RemoteEngine<V::Database> {
    let engine = open(volume, RemoteOptions { log_cap: LogCap::UNLIMITED, ..options });
    if engine.cursor(ALL).is_err() {
        engine.register(ALL, Seqno(0)).unwrap();
    }
    engine
}

/// Returns options with which an unreachable database fails a call soon.
fn impatient() -> RemoteOptions {
    RemoteOptions { budget: Duration::from_secs(1), ..RemoteOptions::default() }
}

/// Returns options of a session that shares the volume.
fn shared(holder: &str) -> RemoteOptions {
    RemoteOptions { is_exclusive: false, holder: holder.into(), ..RemoteOptions::default() }
}

fn table(engine: &dyn Reader) -> Rows {
    engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

fn put(key: &str, value: &str) -> Commit {
    Commit { puts: vec![(key.into(), value.as_bytes().into())], ..Commit::default() }
}
