//! Where the servers' and clients' programs are.

use std::path::{Path, PathBuf};

/// The program `name`: in `$TENON_SERVERS_DIR`, else in `~/.cache/tenon/bin`, else on the path.
///
/// # Panics
/// If it is in none of them; the text says what to do.
pub fn program(name: &str) -> PathBuf {
    let places = places();
    places.iter().map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "no program '{name}' for the tests: run scripts/servers (it needs Go), or set TENON_SERVERS_DIR"
        )
    })
}

/// The program `name` of the Debian package `package`.
///
/// # Panics
/// If it is not installed; the text says what to do.
pub(crate) fn debian_program(name: &str, package: &str) -> PathBuf {
    /// RabbitMQ's own, before `sbin`, where there is one that becomes another user.
    const PLACES: [&str; 3] = ["/usr/lib/rabbitmq/bin", "/usr/bin", "/usr/sbin"];
    let mut places = PLACES.iter().map(|dir| Path::new(dir).join(name));
    places
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("no program '{name}' for the tests: run scripts/packages {package}"))
}

#[expect(clippy::disallowed_methods, reason = "a test tool is set up by the environment")]
fn places() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("TENON_SERVERS_DIR") {
        return vec![dir.into()];
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/tenon/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    home.into_iter().chain(std::env::split_paths(&path)).collect()
}
