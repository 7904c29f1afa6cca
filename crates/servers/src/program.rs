//! Where the servers' and clients' programs are.

use std::path::PathBuf;

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

#[expect(clippy::disallowed_methods, reason = "a test tool is set up by the environment")]
fn places() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("TENON_SERVERS_DIR") {
        return vec![dir.into()];
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/tenon/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    home.into_iter().chain(std::env::split_paths(&path)).collect()
}
