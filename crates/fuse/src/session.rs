//! The session of a mount, from mounting to the end of its last request.

use crate::adapter::Adapter;
use crate::connection;
use crate::invalidation;
use crate::mount_options::{MountError, MountOptions, UnmountError};
use crate::mount_table;
use crate::operations::RequestCounts;
use crate::request_handler::RequestHandler;
use crate::shared_mount::SharedMount;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfs::Filesystem;

/// Read-ahead of the kernel for a sequential reader, where it can be set: several of the largest requests, so that the store is
/// already busy before the reader has to wait.
const READ_AHEAD_KIB: u32 = 4096;

/// A mount that is being served. Dropping it detaches the mount.
#[derive(Debug)]
pub struct Session {
    mount_point: PathBuf,
    counts: Arc<RequestCounts>,
    ended: watch::Receiver<bool>,
}

/// Mounts `fs` at `mount_point` (see [`crate::check_mount_point`]) and serves it until it is unmounted.
///
/// Requests that must wait run on `runtime`.
pub fn mount(
    fs: Arc<Filesystem>,
    mount_point: &Path,
    options: &MountOptions,
    runtime: &Handle,
) -> Result<Session, MountError> {
    let counts = Arc::new(RequestCounts::default());
    let invalidations = fs.kernel_caches().invalidations();
    let shared = options.is_shared.then(|| Arc::new(SharedMount::new()));
    let handler =
        RequestHandler::new(fs.clone(), options.locks, shared, Arc::clone(&counts), runtime.clone());
    let session = start_session(Adapter::new(handler), mount_point, options)?;
    raise_read_ahead(mount_point);
    let (ending, ended) = watch::channel(false);
    let start = |error| MountError::Start(mount_point.to_owned(), error);
    invalidation::start(&fs, invalidations, session.notifier(), ended.clone(), runtime.clone())
        .map_err(start)?;
    spawn_session(session, ending).map_err(start)?;
    Ok(Session { mount_point: mount_point.to_owned(), counts, ended })
}

/// Unmounts what is at `mount_point` unless programs use it. Must not be called from a thread of `mount`'s runtime that requests
/// need.
pub fn unmount(mount_point: &Path) -> Result<(), UnmountError> {
    connection::unmount(mount_point, false)
}

/// Detaches the mount even if programs use it. Their open files work until they are closed.
pub fn detach(mount_point: &Path) -> Result<(), UnmountError> {
    connection::unmount(mount_point, true)
}

impl Session {
    /// Returns the mount point.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Returns the numbers of the kernel's requests so far.
    pub fn requests(&self) -> &RequestCounts {
        &self.counts
    }

    /// Returns whether the mount is gone and no file is open in it.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the mount is gone, no matter who unmounted it.
    pub async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        if let Err(error) = detach(&self.mount_point) {
            tracing::warn!("{error}");
        }
    }
}

fn start_session(
    adapter: Adapter,
    mount_point: &Path,
    options: &MountOptions,
) -> Result<fuser::Session<Adapter>, MountError> {
    let Some(device) = connection::mount_as_root(mount_point, options)? else {
        return fuser::Session::new(adapter, mount_point, &connection::helper_config(options))
            .map_err(|error| MountError::Helper(mount_point.to_owned(), error));
    };
    let config = connection::session_config(options);
    fuser::Session::from_fd(adapter, device, config.acl, config).map_err(|error| {
        let _ = detach(mount_point);
        MountError::Start(mount_point.to_owned(), error)
    })
}

/// Starts the session's main thread. It ends by itself when the kernel closes the connection.
fn spawn_session(session: fuser::Session<Adapter>, ending: watch::Sender<bool>) -> io::Result<()> {
    let served = std::thread::Builder::new().name("fuse-session".to_owned()).spawn(move || {
        if let Err(error) = session.run() {
            tracing::error!("the mount ended because of an error of its FUSE session: {error}");
        }
        ending.send_replace(true);
    });
    served.map(drop)
}

/// Raises the kernel's read-ahead for the mount. INIT cannot ask for more than the default of the backing device; only root can
/// raise that default. Otherwise reads arrive in requests of 128 KiB, and only the file system's own read-ahead reaches further.
fn raise_read_ahead(mount_point: &Path) {
    let Ok(Some(mounted)) = mount_table::mounted_at(mount_point) else { return };
    let path = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::debug!("cannot set the kernel's read-ahead in {path}; the default remains: {error}");
    }
}
