//! The state that requests need, and how their work is run and answered.

use crate::convert;
use crate::locks::Locks;
use crate::operations::{Operation, RequestCounts};
use crate::reply::{Answer, AttrWithTtl};
use crate::shared_mount::SharedMount;
use crate::stale_opens::StaleOpens;
use bytes::Bytes;
use fuser::INodeNo;
use futures_util::FutureExt as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use vfs::{Attr, Error, Filesystem};

/// The request handler of one mount.
#[derive(Debug)]
pub(crate) struct RequestHandler {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) stale_opens: Arc<StaleOpens>,
    pub(crate) locks: Locks,
    /// State of a shared mount; `None` if this is the file system's only mount.
    pub(crate) shared: Option<Arc<SharedMount>>,
    counts: Arc<RequestCounts>,
    runtime: Handle,
}

impl RequestHandler {
    pub(crate) fn new(
        fs: Arc<Filesystem>,
        locks: Locks,
        shared: Option<Arc<SharedMount>>,
        counts: Arc<RequestCounts>,
        runtime: Handle,
    ) -> Self {
        Self { fs, stale_opens: Arc::default(), locks, shared, counts, runtime }
    }

    /// Counts the request and sends the result of `work` as its reply.
    pub(crate) fn answer<T, R: Answer<T>>(
        &self,
        operation: Operation,
        reply: R,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) where
        T: 'static,
    {
        self.counts.count(operation);
        self.run(async move { reply.answer(work.await) });
    }

    /// Runs `work` on this thread if it completes without waiting, otherwise on the runtime. All store calls of `work` share one
    /// retry budget. If `work` panics, the reply is dropped, which sends EIO.
    pub(crate) fn run(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(AssertUnwindSafe(vfs::share_budget(work)).catch_unwind().map(log_panic));
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.runtime.spawn(work));
        }
    }

    /// Runs a request's handler on a thread of the transport, inside the runtime's context so that the handler may spawn tasks. A
    /// panic affects this request only: its reply is dropped, which sends EIO, and the thread continues.
    pub(crate) fn dispatch(&self, handler: impl FnOnce()) {
        let _entered = self.runtime.enter();
        log_panic(catch_unwind(AssertUnwindSafe(handler)));
    }

    /// Returns a function that adds to attributes the time for which the kernel may cache them.
    pub(crate) fn with_ttl(&self) -> impl Fn(Attr) -> AttrWithTtl + Send + 'static {
        let (fs, keeps) = (Arc::clone(&self.fs), self.may_cache());
        move |attr: Attr| {
            let is_kept = keeps && !fs.kernel_caches().misleads_readers(&attr);
            let ttl = if is_kept { fs.views().lifetime_of(attr.ino) } else { Duration::ZERO };
            AttrWithTtl { attr, ttl }
        }
    }

    /// Like [`RequestHandler::with_ttl`], for an inode that was looked up by name: the kernel gains a reference to it.
    pub(crate) fn with_entry_ttl(
        &self,
        parent: INodeNo,
        name: &Bytes,
    ) -> impl Fn(Attr) -> AttrWithTtl + Send + 'static {
        let (fs, shared, name) = (Arc::clone(&self.fs), self.shared.clone(), name.clone());
        let (parent, asked) = (convert::ino(parent), fs.views().asked());
        move |attr| {
            let ttl = match &shared {
                Some(shared) => {
                    shared.add_reference(attr.ino);
                    Duration::ZERO
                }
                None if fs.kernel_caches().misleads_readers(&attr) => Duration::ZERO,
                None => fs.views().lifetime(parent, &name, asked),
            };
            AttrWithTtl { attr, ttl }
        }
    }

    /// Returns whether the kernel may cache anything.
    pub(crate) fn may_cache(&self) -> bool {
        self.shared.is_none()
    }

    /// Releases all that the kernel of a shared mount held (references, open files and directories, locks), because
    /// the mount has ended. Does nothing for the only mount of a file system.
    pub(crate) fn release_references(&self) {
        if let Some(shared) = &self.shared {
            shared.release_all(&self.fs, &self.runtime);
        }
    }

    pub(crate) fn count(&self, operation: Operation) {
        self.counts.count(operation);
    }
}

/// Logs the panic of a request, if there was one.
fn log_panic(outcome: std::thread::Result<()>) {
    if let Err(panic) = outcome {
        let message = panic.downcast_ref::<&str>().copied();
        let message =
            message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::error!(message, "a request panicked and was answered with an I/O error");
    }
}
