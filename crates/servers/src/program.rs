//! Locating the programs of servers and clients.

use std::path::{Path, PathBuf};

/// Finds the program `name` in `$TENON_SERVERS_DIR`; without that variable, in `~/.cache/tenon/bin` and then on the path.
///
/// # Panics
/// Panics if the program is in none of these directories; the message says what to do.
pub fn program(name: &str) -> PathBuf {
    let search_dirs = search_dirs();
    search_dirs.iter().map(|dir| dir.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "the tests need the program '{name}': run scripts/servers (it needs Go), or set TENON_SERVERS_DIR"
        )
    })
}

/// Finds the directory `name` in the directories that hold the programs.
///
/// # Panics
/// Panics if the directory does not exist in any of them; the message says what to do.
pub(crate) fn find_directory(name: &str) -> PathBuf {
    let found = search_dirs().into_iter().map(|dir| dir.join(name)).find(|dir| dir.is_dir());
    found.unwrap_or_else(|| {
        panic!("the tests need the directory '{name}': run scripts/servers (it needs Maven), or set TENON_SERVERS_DIR")
    })
}

/// Finds the program `name` of the Debian package `package`.
///
/// # Panics
/// Panics if the package is not installed; the message says what to do.
pub(crate) fn find_debian_program(name: &str, package: &str) -> PathBuf {
    /// RabbitMQ's own directory comes first: the wrapper of the same name in `sbin` changes to another user.
    const DIRS: [&str; 4] = ["/usr/lib/rabbitmq/bin", "/usr/lib/postgresql/15/bin", "/usr/bin", "/usr/sbin"];
    let mut candidates = DIRS.iter().map(|dir| Path::new(dir).join(name));
    candidates
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("the tests need the program '{name}': run scripts/packages {package}"))
}

#[expect(clippy::disallowed_methods, reason = "a test tool is set up by the environment")]
fn search_dirs() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("TENON_SERVERS_DIR") {
        return vec![dir.into()];
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/tenon/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    home.into_iter().chain(std::env::split_paths(&path)).collect()
}
