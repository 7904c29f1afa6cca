//! The scripts that the server runs. Each connection loads them, so that later calls name them by their hashes.
//!
//! A script that writes is refused as a whole if the server is a replica, its files cannot be written, or the memory is full and the script may
//! not write then. So it is never applied in part.

/// Text in front of a script: it may write, unless the memory is full.
const WRITES: &str = "#!lua\n";
/// Text in front of a script that may write also when the memory is full.
const FREES: &str = "#!lua flags=allow-oom\n";
/// Text in front of a script that writes nothing.
const READS: &str = "#!lua flags=no-writes\n";

/// Parts of scripts.
const NAMES: &str = include_str!("scripts/names.lua");
const CHANGES: &str = include_str!("scripts/changes.lua");
const LEASES: &str = include_str!("scripts/leases.lua");
const LOCKS: &str = include_str!("scripts/stored_locks.lua");
const LOG_STATE: &str = include_str!("scripts/log_state.lua");
const IN_SNAPSHOT: &str = include_str!("scripts/in_snapshot.lua");

macro_rules! scripts {
    ($($script:ident: $kind:ident, [$($part:ident),*], $file:literal;)*) => {
        /// A script.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Script {
            $($script,)*
        }

        impl Script {
            /// All scripts, in the order of their values.
            pub(crate) const ALL: &[Self] = &[$(Self::$script,)*];

            /// Returns the text of the script.
            pub(crate) fn text(self) -> String {
                match self {
                    $(Self::$script => [$kind, NAMES, $($part,)* include_str!($file)].concat(),)*
                }
            }
        }
    };
}

scripts! {
    Commit: WRITES, [LEASES, CHANGES], "scripts/commit.lua";
    CommitFreeing: FREES, [LEASES, CHANGES], "scripts/commit.lua";
    AddRun: WRITES, [LEASES, CHANGES], "scripts/add_run.lua";
    Create: WRITES, [], "scripts/create.lua";
    BeginSession: FREES, [], "scripts/begin_session.lua";
    Resume: FREES, [], "scripts/resume.lua";
    ShowAlive: FREES, [], "scripts/show_alive.lua";
    EndSession: FREES, [], "scripts/end_session.lua";
    IsAlone: READS, [], "scripts/is_alone.lua";
    BeginLease: FREES, [LEASES], "scripts/begin_lease.lua";
    RenewLease: FREES, [LEASES], "scripts/renew_lease.lua";
    ExpireLease: FREES, [LEASES], "scripts/expire_lease.lua";
    LocksOf: READS, [LEASES, LOCKS], "scripts/locks_of.lua";
    ReplaceLocks: FREES, [LEASES, LOCKS], "scripts/replace_locks.lua";
    GetDentry: READS, [], "scripts/get_dentry.lua";
    Scan: READS, [], "scripts/scan.lua";
    Last: READS, [], "scripts/last.lua";
    BeginSnapshot: WRITES, [], "scripts/begin_snapshot.lua";
    EndSnapshot: FREES, [LEASES, CHANGES], "scripts/end_snapshot.lua";
    SnapshotGet: READS, [IN_SNAPSHOT], "scripts/snapshot_get.lua";
    SnapshotScan: READS, [IN_SNAPSHOT], "scripts/snapshot_scan.lua";
    ReadLog: READS, [LOG_STATE], "scripts/read_log.lua";
    Cursor: READS, [LOG_STATE], "scripts/cursor.lua";
    Register: FREES, [], "scripts/register.lua";
    Advance: FREES, [], "scripts/advance.lua";
    Trim: FREES, [LOG_STATE], "scripts/trim.lua";
    ChangesAfter: READS, [], "scripts/changes_after.lua";
}
