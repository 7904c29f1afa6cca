//! The control socket. It is bound and connected through a descriptor of its directory: the path of a socket has at
//! most 107 bytes (unix(7)), and that of a state directory may be longer.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket's name in the state directory.
pub(crate) const SOCKET_FILE: &str = "control.sock";

/// Binds the socket, and replaces the socket of a daemon that died. The caller must hold the state directory's lock.
pub(crate) fn bind(state: &Path) -> io::Result<UnixListener> {
    remove(state);
    let (_directory, path) = short_path(state)?;
    UnixListener::bind(path)
}

/// Removes the socket.
pub(crate) fn remove(state: &Path) {
    let _ = std::fs::remove_file(state.join(SOCKET_FILE));
}

/// Connects to the daemon that holds the state directory.
pub(crate) fn connect(state: &Path) -> io::Result<UnixStream> {
    let (_directory, path) = short_path(state)?;
    UnixStream::connect(path)
}

/// Returns a short path of the socket, which is valid while the descriptor is open.
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
    fn a_long_path_works() {
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
