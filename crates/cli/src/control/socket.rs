//! The control socket's place, bound and reached through a descriptor of its directory: a socket's path has at
//! most 107 bytes (unix(7)), a state directory's may have more.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's name in the state directory.
pub(crate) const SOCKET_FILE: &str = "control.sock";

/// Takes the socket over from a daemon that died; the caller holds the state directory's lock.
pub(crate) fn bind(state: &Path) -> io::Result<UnixListener> {
    remove(state);
    let (_directory, path) = short_path(state)?;
    UnixListener::bind(path)
}

/// Leaves nothing behind.
pub(crate) fn remove(state: &Path) {
    let _ = std::fs::remove_file(state.join(SOCKET_FILE));
}

/// Reaches the daemon that holds the state directory.
pub(crate) fn connect(state: &Path) -> io::Result<UnixStream> {
    let (_directory, path) = short_path(state)?;
    UnixStream::connect(path)
}

/// A path that is valid while the descriptor lives.
fn short_path(state: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let directory =
        rustix::fs::open(state, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(SOCKET_FILE);
    Ok((directory, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("x".repeat(200));
        std::fs::create_dir(&state).unwrap();
        let listener = bind(&state).unwrap();
        drop(connect(&state).unwrap());
        drop(listener);
        assert!(connect(&state).is_err());
        bind(&state).unwrap();
    }
}
