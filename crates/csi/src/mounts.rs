//! Mounts of a node: runs `tenon mount` and `tenon umount`, and makes bind mounts. All calls block.
//!
//! Each volume is served by a process of its own in the background, which continues when the driver ends.

use rustix::mount::{MountFlags, mount_bind, mount_remount};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// Maximum wait for an answer of a mount. One that exceeds it hangs, but is not dead.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two checks of whether a process has ended.
const END_PAUSE: Duration = Duration::from_millis(50);

/// The mounts of this node, and the program that makes them.
#[derive(Debug)]
pub(crate) struct Mounts {
    program: PathBuf,
    /// Mounts with a liveness check in progress. A mount that hangs is checked by one thread, not by ever more of them.
    checking: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// An error of a mount, as one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MountFailed(String);

type Result<T> = std::result::Result<T, MountFailed>;

impl Mounts {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, checking: Arc::default() }
    }

    /// Returns the device number of the mount at a path, unless its process has ended. A mount that does not answer in time counts as alive.
    pub(crate) fn living_device_at(&self, path: &Path) -> Result<Option<String>> {
        let Some(device) = device_at(path)? else { return Ok(None) };
        Ok((!self.is_dead(path)).then_some(device))
    }

    fn is_dead(&self, path: &Path) -> bool {
        if !lock(&self.checking).insert(path.to_owned()) {
            return false;
        }
        let (answer, answers) = mpsc::channel();
        let (path, checking) = (path.to_owned(), Arc::clone(&self.checking));
        std::thread::spawn(move || {
            let is_dead = fuse::is_dead(&path);
            lock(&checking).remove(&path);
            // The receiver is gone once the mount has taken too long.
            let _ = answer.send(is_dead);
        });
        answers.recv_timeout(ANSWER_TIMEOUT).unwrap_or(false)
    }

    /// Removes a bind mount, and the directory. What is not there is no error.
    pub(crate) fn unbind(&self, at: &Path) -> Result<()> {
        while device_at(at)?.is_some() {
            let unmounted = if self.is_dead(at) { fuse::detach(at) } else { fuse::unmount(at) };
            match unmounted {
                Ok(()) | Err(fuse::UnmountError::NotMounted(_)) => {}
                Err(error) => return Err(MountFailed(error.to_string())),
            }
        }
        remove_directory(at)
    }

    /// Mounts a volume. Returns when its files can be used. A dead mount at this place is replaced.
    pub(crate) fn mount(&self, url: &str, at: &Path, arguments: &[String]) -> Result<()> {
        let fixed = [OsStr::new("mount"), OsStr::new(url), at.as_os_str()];
        self.run(fixed.into_iter().chain(arguments.iter().map(OsStr::new))).map(drop)
    }

    /// Unmounts a volume, after everything that is pending has been stored.
    pub(crate) fn unmount(&self, at: &Path) -> Result<()> {
        self.run([OsStr::new("umount"), at.as_os_str()]).map(drop)
    }

    /// Sends SIGTERM to the process of a mount, which stores what is pending and ends, even if programs use the mount. Returns its process id.
    pub(crate) fn terminate(&self, at: &Path) -> Result<Pid> {
        let status = self.run([OsStr::new("status"), at.as_os_str(), OsStr::new("--json")])?;
        let status: serde_json::Value =
            serde_json::from_str(&status).map_err(|error| MountFailed(format!("`tenon status`: {error}")))?;
        let pid = status["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.ok_or_else(|| MountFailed(format!("{} has no process", at.display())))?;
        kill_process(pid, Signal::TERM).map_err(|error| failed("end the process of", at, error.into()))?;
        Ok(pid)
    }

    /// Runs the program. Returns its output.
    fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<String> {
        let mut command = Command::new(&self.program);
        // Otherwise the service manager would take readiness messages of a mount for those of the driver.
        command.args(arguments).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
        let output = command
            .output()
            .map_err(|error| MountFailed(format!("cannot run {}: {error}", self.program.display())))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let errors = String::from_utf8_lossy(&output.stderr);
                let line = errors
                    .lines()
                    .rev()
                    .find(|line| !line.trim().is_empty())
                    .unwrap_or("no reason was given");
                Err(MountFailed(line.trim_start_matches("tenon: ").to_owned()))
            }
        }
    }
}

/// Waits until a process has ended.
pub(crate) fn wait_for_end(pid: Pid) {
    while test_kill_process(pid).is_ok() && !is_zombie(pid) {
        std::thread::sleep(END_PAUSE);
    }
}

fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    // The state comes after the name, which may contain any character.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Returns the device number of Tenon's mount at a path, which distinguishes mounts.
pub(crate) fn device_at(path: &Path) -> Result<Option<String>> {
    let mounted = fuse::mounted_at(path).map_err(|error| failed("read the mount table for", path, error))?;
    Ok(mounted.map(|mounted| mounted.device))
}

/// Shows a mount at another directory too, which is made if it is missing.
pub(crate) fn bind(from: &Path, to: &Path, read_only: bool) -> Result<()> {
    fs::create_dir_all(to).map_err(|error| failed("make", to, error))?;
    mount_bind(from, to).map_err(|error| failed("mount on", to, error.into()))?;
    if read_only && let Err(error) = mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, "") {
        // Never leave it writable.
        detach_all(to)?;
        return Err(failed("mount read-only on", to, error.into()));
    }
    Ok(())
}

/// Removes an empty directory. What is not there is no error.
pub(crate) fn remove_directory(at: &Path) -> Result<()> {
    match fs::remove_dir(at) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", at, error)),
        _ => Ok(()),
    }
}

/// Detaches all mounts of Tenon at a path, even if programs use them.
pub(crate) fn detach_all(at: &Path) -> Result<()> {
    while device_at(at)?.is_some() {
        match fuse::detach(at) {
            Ok(()) | Err(fuse::UnmountError::NotMounted(_)) => {}
            Err(error) => return Err(MountFailed(error.to_string())),
        }
    }
    Ok(())
}

fn lock(checking: &Mutex<BTreeSet<PathBuf>>) -> MutexGuard<'_, BTreeSet<PathBuf>> {
    checking.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(what: &str, path: &Path, error: io::Error) -> MountFailed {
    MountFailed(format!("cannot {what} {}: {error}", path.display()))
}
