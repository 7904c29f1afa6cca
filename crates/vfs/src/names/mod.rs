//! The names of a volume: the namespace tables and the paths, keys and content of inodes in them; and what front ends
//! hold of them: kernel references, handles, locks and access times.

mod access_time_commits;
pub(crate) mod access_times;
pub(crate) mod directory_handle;
pub(crate) mod handles;
pub(crate) mod inodes;
pub(crate) mod key_run;
pub(crate) mod locks;
pub(crate) mod pending_merges;
pub(crate) mod positions;
pub(crate) mod quotas;
pub(crate) mod references;

use meta::{Name, Namespace, OpContext, Origin};
use std::sync::{Arc, Weak};

use crate::Result;
use crate::followers::front_ends::FrontEnds;
use crate::followers::op_log::OpLogFollower;
use crate::mount::Mount;
use crate::names::access_times::AccessTimes;
use crate::names::handles::Handles;
use crate::names::locks::LockTables;
use crate::names::pending_merges::PendingMerges;
use crate::names::references::References;

/// The names of a volume, and what the kernel and programs hold of them.
#[derive(Debug)]
pub(crate) struct Names {
    me: Weak<Self>,
    mount: Arc<Mount>,
    tables: Namespace,
    references: References,
    handles: Handles,
    access_times: AccessTimes,
    locks: LockTables,
    front_ends: FrontEnds,
    follower: OpLogFollower,
    pending_merges: Arc<PendingMerges>,
}

impl Names {
    /// Creates the names of a mount over the tables of a namespace.
    pub(crate) fn new(mount: Arc<Mount>, tables: Namespace) -> Arc<Self> {
        let locks = LockTables::new(tables.engine());
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount,
            tables,
            references: References::default(),
            handles: Handles::default(),
            access_times: AccessTimes::default(),
            locks,
            front_ends: FrontEnds::default(),
            follower: OpLogFollower::default(),
            pending_merges: Arc::default(),
        })
    }

    /// Returns access times that wait for their commit.
    pub(crate) fn access_times(&self) -> &AccessTimes {
        &self.access_times
    }

    /// Returns the handles of programs.
    pub(crate) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Returns the queues of invalidations.
    pub(crate) fn front_ends(&self) -> &FrontEnds {
        &self.front_ends
    }

    /// Returns the follower of the op log.
    pub(crate) fn follower(&self) -> &OpLogFollower {
        &self.follower
    }

    /// Returns a weak reference for tasks, which must not keep the mount alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        self.me.clone()
    }

    /// Returns the context of a change that is made now.
    pub(crate) fn context(&self, origin: Origin) -> OpContext {
        self.mount.context(origin)
    }

    /// Returns the locks that programs hold.
    pub(crate) fn locks(&self) -> &LockTables {
        &self.locks
    }

    /// Returns the directories whose merges accesses wait for.
    pub(crate) fn pending_merges(&self) -> &Arc<PendingMerges> {
        &self.pending_merges
    }

    /// Returns what the kernel references.
    pub(crate) fn references(&self) -> &References {
        &self.references
    }

    /// Returns the tables of the namespace.
    pub(crate) fn tables(&self) -> &Namespace {
        &self.tables
    }
}

/// Returns a name given by a program, if it is valid.
pub(crate) fn name(bytes: &[u8]) -> Result<Name> {
    Ok(Name::new(bytes)?)
}
