//! Reads environment variables, which no other module of Tenon does.

use std::env;
use std::path::PathBuf;

/// Returns the value of a variable; an empty variable counts as unset.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.is_empty())
}

/// Returns the names of all variables that are text.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// Returns the path of a program in `PATH`.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Returns the directories of `PATH`.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn search_path() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns the directory of the user's configuration (XDG Base Directory Specification); `/etc/tenon` if the user has no home.
pub(crate) fn config_dir() -> PathBuf {
    let xdg = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    xdg.or(home).unwrap_or_else(|| PathBuf::from("/etc")).join("tenon")
}

/// Returns the directory that contains the state directory of each volume (XDG Base Directory Specification).
pub(crate) fn states_dir() -> PathBuf {
    let xdg = variable("XDG_STATE_HOME").map(PathBuf::from);
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    xdg.or(home).unwrap_or_else(|| PathBuf::from("/var/lib")).join("tenon")
}
