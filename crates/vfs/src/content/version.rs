//! The version of a file's bytes that an open handle reads.
//!
//! The kernel's page cache belongs to the inode, not to the open file. Handles that read through it share one [`Version`], because
//! each of them finds the pages that the others read. A handle that is opened after the bytes were replaced, while a handle of older
//! bytes is still open, gets a version of its own and reads past the page cache.
//!
//! Invariants: reads of two lineages are never in flight for one version; a version that was read never changes its lineage; at most
//! one version of a file is cached, and when it came into being no handle of another lineage was open.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// One version of a file's bytes, shared by the handles that read it.
#[derive(Debug)]
pub(crate) struct Version {
    /// Whether pages of this version may be in the page cache above.
    pub(crate) is_cached: bool,
    state: Mutex<State>,
    /// Notified when the last read in flight has ended.
    idle: Notify,
}

#[derive(Debug)]
struct State {
    /// The lineage of the bytes: the number of replacements by foreign bytes before them.
    lineage: u64,
    reads_in_flight: u32,
    /// Whether a read of these bytes has succeeded.
    is_read: bool,
}

/// Answer to a read that wants to begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// The read may begin; [`Version::end`] must follow.
    Now,
    /// Reads of the previous bytes are in flight: ask again when they have ended.
    Later,
    /// The version was read already, and its bytes were replaced.
    Stale,
}

impl Version {
    /// Creates a version of this lineage. `is_read` says that the page cache above already holds pages of it.
    pub(crate) fn new(lineage: u64, is_cached: bool, is_read: bool) -> Self {
        let state = Mutex::new(State { lineage, reads_in_flight: 0, is_read });
        Self { is_cached, state, idle: Notify::new() }
    }

    /// Returns the lineage of the bytes: the number of replacements by foreign bytes before them.
    pub(crate) fn lineage(&self) -> u64 {
        self.state().lineage
    }

    /// Returns whether bytes of this version were read, so that the page cache above may hold pages of it.
    pub(crate) fn is_read(&self) -> bool {
        self.state().is_read
    }

    /// Begins a read of bytes of `lineage`. A version that was never read switches to that lineage if `may_follow`.
    pub(crate) fn begin(&self, lineage: u64, may_follow: bool) -> Begin {
        let mut state = self.state();
        if state.lineage != lineage {
            if state.is_read || !may_follow {
                return Begin::Stale;
            }
            if state.reads_in_flight > 0 {
                return Begin::Later;
            }
            state.lineage = lineage;
        }
        state.reads_in_flight += 1;
        Begin::Now
    }

    /// Ends a read. Returns whether it was the first that succeeded.
    fn end(&self, has_succeeded: bool) -> bool {
        let mut state = self.state();
        state.reads_in_flight -= 1;
        let is_first = has_succeeded && !state.is_read;
        state.is_read |= has_succeeded;
        if state.reads_in_flight == 0 || is_first {
            self.idle.notify_waiters();
        }
        is_first
    }

    /// Calls `ask` until it returns something else than [`Begin::Later`], waiting for reads in flight in between.
    pub(crate) async fn wait<T>(&self, mut ask: impl FnMut() -> (Begin, T)) -> (Begin, T) {
        loop {
            let mut ended = std::pin::pin!(self.idle.notified());
            ended.as_mut().enable();
            match ask() {
                (Begin::Later, _) => ended.await,
                answer => return answer,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a read in flight. If it is dropped without success, its version can still switch to other bytes.
#[derive(Debug)]
pub(crate) struct Reading<'v>(Option<&'v Version>);

impl<'v> Reading<'v> {
    /// Guards a read that [`Version::begin`] allowed.
    pub(crate) fn of(version: &'v Version) -> Self {
        Self(Some(version))
    }

    /// Notes that bytes of the version are returned to the reader. Returns whether they are the first.
    pub(crate) fn succeed(mut self) -> bool {
        self.0.take().is_some_and(|version| version.end(true))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Some(version) = self.0.take() {
            version.end(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two reads of one handle were in flight when its object was replaced: one had the old bytes from memory, the other asked the store,
    /// found the new object and took its bytes, since no read had succeeded yet. The program got pages of both.
    #[tokio::test]
    async fn s40_reads_in_flight_are_of_one_version() {
        let version = Version::new(0, true, false);
        assert_eq!(version.begin(0, true), Begin::Now);
        let first = Reading::of(&version);
        assert_eq!(version.begin(0, true), Begin::Now);
        drop(Reading::of(&version));
        assert_eq!(version.begin(1, true), Begin::Later, "the first read may still succeed");
        let ask = || (version.begin(1, true), ());
        let waits = version.wait(ask);
        let succeeds = async { first.succeed() };
        let ((begin, ()), is_first) = tokio::join!(waits, succeeds);
        assert_eq!((begin, is_first), (Begin::Stale, true));
    }

    #[tokio::test]
    async fn s51_an_unread_version_switches_to_the_new_bytes() {
        let version = Version::new(0, true, false);
        assert_eq!(version.begin(0, true), Begin::Now);
        let failing = Reading::of(&version);
        let ask = || (version.begin(1, true), ());
        let ((begin, ()), ()) = tokio::join!(version.wait(ask), async { drop(failing) });
        assert_eq!((begin, version.lineage()), (Begin::Now, 1));
        assert_eq!(version.begin(2, false), Begin::Stale, "the page cache may hold another handle's pages");
    }
}
