//! The session of a mount, from mounting to the end of its last request.

use crate::adapter::Adapter;
use crate::connection;
use crate::invalidation;
use crate::meter::Meter;
use crate::mount_options::{MountError, MountOptions, UnmountError};
use crate::mount_table;
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

/// A mount that is being served. Dropping it detaches the mount, unless another mount covers it or has taken its place.
#[derive(Debug)]
pub struct Session {
    mount_point: PathBuf,
    /// The device number of the mount; `None` if the mount table could not be read.
    device: Option<String>,
    meter: Arc<Meter>,
    /// Becomes true when the session has ended.
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
    let meter = Arc::new(Meter::new());
    let invalidations = fs.kernel_caches().invalidations();
    let shared = options.is_shared.then(|| Arc::new(SharedMount::new()));
    let handler = RequestHandler::new(fs.clone(), options, shared, Arc::clone(&meter), runtime.clone());
    let session = start_session(Adapter::new(handler), mount_point, options)?;
    let device = mount_table::device_at(mount_point).ok().flatten();
    device.iter().for_each(|device| raise_read_ahead(device));
    let (ending, ended) = watch::channel(false);
    let start = |error| MountError::Start(mount_point.to_owned(), error);
    let notified = (session.notifier(), options.root);
    invalidation::start(&fs, invalidations, notified, ended.clone(), runtime.clone()).map_err(start)?;
    spawn_session(session, ending).map_err(start)?;
    Ok(Session { mount_point: mount_point.to_owned(), device, meter, ended })
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

    /// Returns the figures of the kernel's requests so far.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns whether the mount is the topmost one at its mount point. An unreadable mount table counts as yes.
    fn is_topmost(&self) -> bool {
        let Some(device) = &self.device else { return true };
        mount_table::device_at(&self.mount_point).map_or(true, |topmost| topmost.as_ref() == Some(device))
    }

    /// Returns whether the session has ended: the mount is gone and no file is open in it, or the connection to the
    /// kernel failed.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until the session has ended (see [`Session::has_ended`]), no matter who unmounted.
    pub async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.has_ended() || !self.is_topmost() {
            return;
        }
        if let Err(error) = detach(&self.mount_point) {
            tracing::warn!("{error}");
        }
    }
}

/// Mounts, as root or by the helper, and exchanges the first messages with the kernel.
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

/// Starts the session's main thread, which ends when the kernel closes the connection, and then sets `ending` to true.
fn spawn_session(session: fuser::Session<Adapter>, ending: watch::Sender<bool>) -> io::Result<()> {
    let served = std::thread::Builder::new().name("fuse-session".to_owned()).spawn(move || {
        if let Err(error) = session.run() {
            tracing::error!("the mount ended because of an error of its FUSE session: {error}");
        }
        ending.send_replace(true);
    });
    served.map(drop)
}

/// Raises the kernel's read-ahead for the mount to [`READ_AHEAD_KIB`]. INIT cannot ask for more than the default of the
/// backing device, which only root can raise. With the default, reads arrive in requests of 128 KiB, and only the file
/// system's own read-ahead reaches further.
fn raise_read_ahead(device: &str) {
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, READ_AHEAD_KIB.to_string()) {
        tracing::debug!("cannot set the kernel's read-ahead in {path}; the default remains: {error}");
    }
}
