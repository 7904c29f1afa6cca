//! The state that requests need, and how their work is run and answered.

use crate::convert;
use crate::locks::Locks;
use crate::meter::{InProgress, Meter};
use crate::mount_options::MountOptions;
use crate::operations::Operation;
use crate::reply::{Answer, AttrWithTtl};
use crate::shared_mount::{self, SharedMount};
use crate::stale_opens::StaleOpens;
use crate::traced_operation::SubjectRef;
use crate::virtual_files::VirtualTree;
use bytes::Bytes;
use fuser::{INodeNo, Request};
use futures_util::FutureExt as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::runtime::Handle;
use vfs::{Attr, Cause, Error, Filesystem, Ino};

/// The request handler of one mount.
#[derive(Debug)]
pub(crate) struct RequestHandler {
    pub(crate) fs: Arc<Filesystem>,
    pub(crate) stale_opens: Arc<StaleOpens>,
    /// Treatment of lock requests.
    pub(crate) locks: Locks,
    /// The number that distinguishes this front end's lock owners from those of other ones; `None` if the kernel keeps the locks.
    pub(crate) lock_session: Option<u64>,
    /// State of a shared mount; `None` if this is the file system's only mount.
    pub(crate) shared: Option<Arc<SharedMount>>,
    /// Files that the volume does not have; `None` if there are none.
    pub(crate) virtual_files: Option<Arc<VirtualTree>>,
    /// The directory that is the root of the mount.
    root: Ino,
    meter: Arc<Meter>,
    runtime: Handle,
}

impl RequestHandler {
    pub(crate) fn new(
        fs: Arc<Filesystem>,
        options: &MountOptions,
        shared: Option<Arc<SharedMount>>,
        meter: Arc<Meter>,
        runtime: Handle,
    ) -> Self {
        let MountOptions { locks, root, .. } = *options;
        let virtual_files = options.virtual_files.clone().map(|files| Arc::new(VirtualTree::new(files)));
        let lock_session = match (&shared, locks) {
            (Some(shared), _) => Some(shared.session()),
            (None, Locks::FileSystem) => Some(shared_mount::new_session()),
            (None, _) => None,
        };
        let stale_opens = Arc::default();
        Self { fs, stale_opens, locks, lock_session, shared, virtual_files, root, meter, runtime }
    }

    /// Returns the inode of a request. The kernel has a fixed number for the root of every mount.
    pub(crate) fn node(&self, ino: INodeNo) -> INodeNo {
        if ino.0 == Ino::ROOT.0 { INodeNo(self.root.0) } else { ino }
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
        let mut request = self.start(operation);
        // Later moves copy a pointer instead of the whole operation.
        let work = Box::pin(work);
        self.run(request.cause(), async move {
            let outcome = work.await;
            match &outcome {
                Ok(value) => request.note_reply(|| R::summarize(value)),
                Err(error) => request.fail(error.errno()),
            }
            reply.answer(outcome);
        });
    }

    /// Runs `work` on this thread if it completes without waiting, otherwise on the runtime. All store calls of `work` share one
    /// retry budget, and belong to `cause`. If `work` panics, the reply is dropped, which sends EIO.
    pub(crate) fn run(&self, cause: Option<Arc<Cause>>, work: impl Future<Output = ()> + Send + 'static) {
        let work = vfs::work_for(cause, vfs::share_budget(work));
        let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind().map(log_panic));
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.runtime.spawn(work));
        }
    }

    /// Counts a request, which is in progress until the returned value is dropped.
    pub(crate) fn start(&self, operation: Operation) -> InProgress {
        self.meter.start(operation)
    }

    /// Returns the figures of the requests.
    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Runs the handler of a request about `subject` on the thread of `fuser` that read it, inside the runtime's context so that the handler
    /// may spawn tasks. A panic affects this request only: its reply is dropped, which sends EIO, and the thread
    /// continues.
    pub(crate) fn dispatch(&self, request: &Request, subject: SubjectRef<'_>, handler: impl FnOnce()) {
        self.meter.note_arrival(request.pid(), subject);
        self.enter(handler);
    }

    /// Like [`RequestHandler::dispatch`], for work that no program requested.
    pub(crate) fn enter(&self, handler: impl FnOnce()) {
        let _entered = self.runtime.enter();
        log_panic(catch_unwind(AssertUnwindSafe(handler)));
    }

    /// Returns a function that adds to attributes the time for which the kernel may cache them; zero for a shared
    /// mount, and while they would mislead readers of an older version.
    pub(crate) fn with_ttl(&self) -> impl Fn(Attr) -> AttrWithTtl + Send + 'static {
        let (fs, keeps) = (Arc::clone(&self.fs), self.may_cache());
        move |attr: Attr| {
            let is_kept = keeps && !fs.kernel_caches().misleads_readers(&attr);
            let ttl = if is_kept { fs.views().lifetime_of(attr.ino) } else { Duration::ZERO };
            AttrWithTtl { attr, ttl }
        }
    }

    /// Like [`RequestHandler::with_ttl`], for an inode that was looked up or created by name: the kernel gets a
    /// reference to it, which a shared mount records.
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

    /// Returns whether the kernel may cache attributes, names and bytes: not if the mount is shared.
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
}

/// Logs the panic of a request, if there was one.
fn log_panic(outcome: std::thread::Result<()>) {
    if let Err(panic) = outcome {
        let message = panic.downcast_ref::<&str>().copied();
        let message =
            message.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        tracing::error!(
            message,
            "the handler of a request panicked; a program that waited for the reply gets an I/O error"
        );
    }
}
