//! Commits of other sessions of a shared engine, for example of other machines: applied to open files, quotas and locks of this mount.
//!
//! An open file without unpublished writes reads the newest content. Its handles stay valid, as on a file that this mount changes.

use meta::{News, Op};
use std::sync::Arc;
use tokio::runtime::Handle;

use crate::base::Base;
use crate::content::Content;
use crate::followers::op_log::{Foreign, follow_everything, follow_others};
use crate::names::Names;
use crate::names::locks::shared_locks::SharedLocks;
use crate::{Error, Result};

/// Starts to follow other sessions, if the engine is shared. Must be called on a runtime.
pub(crate) fn follow(base: &Base) -> Result<()> {
    let engine = base.names.tables().engine();
    if !engine.is_shared() {
        return Ok(());
    }
    let runtime = Handle::try_current()
        .map_err(|_| Error::new(libc::EINVAL, "a shared volume must be mounted within a tokio runtime"))?;
    let (names, content) = (Arc::downgrade(&base.names), Arc::downgrade(&base.content));
    base.names.follower().serve_other_sessions(move |changed| {
        if let (Some(names), Some(content)) = (names.upgrade(), content.upgrade()) {
            take_in(&names, &content, changed);
        }
    });
    let names = base.names.weak();
    engine.watch(Box::new(move |news| {
        let Some(names) = names.upgrade() else { return };
        match news {
            News::Coming => names.follower().expect_news(),
            News::Commits { after, to } => follow_others(&names, (after, to), &runtime),
            News::Everything { to } => follow_everything(&names, to, &runtime),
            News::Unlocked(ino) => names.locks().shared.iter().for_each(|locks| locks.wake(ino)),
            News::LocksLost => names.locks().shared.iter().for_each(SharedLocks::lose),
        }
    }));
    Ok(())
}

/// Returns whether reads may show changes that front ends do not know yet.
pub(crate) fn is_ahead_of_front_ends(names: &Names) -> bool {
    names.follower().is_behind() || names.front_ends().has_unprocessed()
}

/// Applies a change of other sessions: open files read their newest content, and quotas are read again.
fn take_in(names: &Names, content: &Content, changed: Foreign<'_>) {
    let Foreign::Op(logged) = changed else {
        content.files().all().iter().for_each(|file| note(content.read_newest(file.ino)));
        return note(names.tables().refresh_quotas().map_err(Error::from));
    };
    note(match &logged.op {
        Op::Publish { ino, .. } | Op::Splice { ino, .. } => content.read_newest(*ino),
        Op::SetAttr { ino, changes } if changes.size_bytes.is_some() => content.read_newest(*ino),
        Op::SetQuota { .. } => names.tables().refresh_quotas().map_err(Error::from),
        _ => Ok(()),
    });
}

/// Logs a failure to apply a change.
fn note(taken_in: Result<()>) {
    if let Err(error) = taken_in {
        tracing::debug!(%error, "a change of another machine cannot be applied now: its file is read again at the next open, read or lock, and quotas after their next change");
    }
}
