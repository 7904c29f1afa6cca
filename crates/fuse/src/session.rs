//! A mounted file system, from its first request to its last.

use crate::adapter::Adapter;
use crate::connection;
use crate::invalidation;
use crate::mount_table;
use crate::operations::RequestCounts;
use crate::shared_mount::Sharing;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::watch;
use vfs::Filesystem;

/// How far the kernel reads ahead of a sequential reader, where it lets us say: several of the largest
/// requests, so that the store is asked before the reader waits.
const READ_AHEAD_KIB: u32 = 4096;

/// Who keeps `flock` and `fcntl` locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locks {
    /// The kernel, for this mount alone.
    #[default]
    Kernel,
    /// Nobody: asking for one gives ENOLCK.
    Refused,
}

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// What the mount table shows as the source. It is public: no secrets.
    pub source: String,
    /// Refuse every change in the kernel already.
    pub read_only: bool,
    /// Let every user in; permissions are checked all the same.
    pub allow_other: bool,
    /// Refuse to run programs.
    pub no_exec: bool,
    /// Obey set-user-id and set-group-id bits of programs. Only root may.
    pub suid: bool,
    /// Open device files as devices. Only root may.
    pub dev: bool,
    /// Who keeps locks.
    pub locks: Locks,
    /// Threads that read requests, at least 1.
    pub threads: usize,
    /// The same file system is mounted elsewhere too, or will be: the kernel keeps nothing, so that all mounts show the
    /// same at any time, and locks hold across them.
    pub is_shared: bool,
}

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel offers no FUSE here.
    #[error("cannot open /dev/fuse ({0}); load the fuse module, or allow the device in this container")]
    Device(#[source] io::Error),
    /// The kernel or the helper refused.
    #[error("cannot mount at {path}: {error}", path = .0.display(), error = .1)]
    Mount(PathBuf, #[source] io::Error),
    /// This user may not, and there is no helper.
    #[error("cannot mount at {path} as this user: {error}; install fuse3 (fusermount3), or mount as root", path = .0.display(), error = .1)]
    Helper(PathBuf, #[source] io::Error),
    /// The first exchange with the kernel, or a thread, failed.
    #[error("cannot start serving {path}: {error}", path = .0.display(), error = .1)]
    Start(PathBuf, #[source] io::Error),
}

/// Why unmounting failed; the mount goes on.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Programs have files open or their working directory in it.
    #[error("{} is busy: programs have files open in it", .0.display())]
    Busy(PathBuf),
    /// Nothing is mounted there.
    #[error("nothing is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    /// The system refused.
    #[error("cannot unmount {path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}

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
    let invalidations = fs.invalidations();
    let sharing = options.is_shared.then(|| Arc::new(Sharing::new()));
    let adapter = Adapter::new(fs.clone(), options.locks, sharing, Arc::clone(&counts), runtime.clone());
    let session = open(adapter, mount_point, options)?;
    raise_read_ahead(mount_point);
    let (ending, ended) = watch::channel(false);
    let start = |error| MountError::Start(mount_point.to_owned(), error);
    invalidation::start(&fs, invalidations, session.notifier(), ended.clone(), runtime.clone())
        .map_err(start)?;
    serve(session, ending).map_err(start)?;
    Ok(Session { mount_point: mount_point.to_owned(), counts, ended })
}

/// Unmounts what is at `mount_point` unless programs use it. Not to be called from a thread of `mount`'s runtime
/// that requests need.
pub fn unmount(mount_point: &Path) -> Result<(), UnmountError> {
    connection::close(mount_point, false)
}

/// Takes the mount away even if programs use it; their open files work until they close them.
pub fn detach(mount_point: &Path) -> Result<(), UnmountError> {
    connection::close(mount_point, true)
}

impl Session {
    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// The kernel's requests so far.
    pub fn requests(&self) -> &RequestCounts {
        &self.counts
    }

    /// Whether the mount is gone, and no file is open in it.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Returns when the mount is gone, whoever unmounted it.
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

fn open(
    adapter: Adapter,
    mount_point: &Path,
    options: &MountOptions,
) -> Result<fuser::Session<Adapter>, MountError> {
    let Some(device) = connection::open(mount_point, options)? else {
        return fuser::Session::new(adapter, mount_point, &connection::helper_config(options))
            .map_err(|error| MountError::Helper(mount_point.to_owned(), error));
    };
    let config = connection::session_config(options);
    fuser::Session::from_fd(adapter, device, config.acl, config).map_err(|error| {
        let _ = detach(mount_point);
        MountError::Start(mount_point.to_owned(), error)
    })
}

/// The session's threads end by themselves when the kernel closes the connection.
fn serve(session: fuser::Session<Adapter>, ending: watch::Sender<bool>) -> io::Result<()> {
    let served = std::thread::Builder::new().name("fuse-session".to_owned()).spawn(move || {
        if let Err(error) = session.run() {
            tracing::error!("the FUSE session ended: {error}");
        }
        ending.send_replace(true);
    });
    served.map(drop)
}

/// The kernel caps what INIT may ask at the device's default; only root can raise that. Without it reads come
/// in 128 KiB and the file system reads ahead on its own.
fn raise_read_ahead(mount_point: &Path) {
    let Ok(Some(mounted)) = mount_table::mounted_at(mount_point) else { return };
    let knob = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
    if let Err(error) = std::fs::write(&knob, READ_AHEAD_KIB.to_string()) {
        tracing::debug!("{knob} stays as it is: {error}");
    }
}
