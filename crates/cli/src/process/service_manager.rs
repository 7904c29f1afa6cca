//! Messages to the service manager that started this process (sd_notify(3)): ready, stopping, and a line of status.
//! Without a service manager they are dropped.

use crate::process::environment;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the service can be used, with a line for `systemctl status`.
pub(crate) fn notify_ready(status: &str) {
    send(&format!("READY=1\nSTATUS={}\n", status.replace('\n', " ")));
}

/// Reports that the service has begun to end.
pub(crate) fn notify_stopping() {
    send("STOPPING=1\nSTATUS=storing what is pending\n");
}

/// Sends a message to systemd, if it started this process (sd_notify(3)).
fn send(message: &str) {
    let Some(path) = environment::variable("NOTIFY_SOCKET") else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("cannot notify the service manager at {path}: {error}");
    }
}
