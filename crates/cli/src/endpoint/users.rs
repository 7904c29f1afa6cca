//! The users file of an endpoint: read when the endpoint starts, and again whenever it changes.
//!
//! Invariant: the users in force are one complete and valid list. If a changed file is invalid, the earlier users
//! stay.

use crate::endpoint::watched_files::WatchedFiles;
use crate::process::context::ProcessContext;
use crate::process::files;
use crate::state::default_user;
use anyhow::{Context, Result, anyhow};
use s3::{User, Users};
use serde::Deserialize;
use std::path::Path;

/// Loads the users of a file, or the default user of the volume. Later changes of the file are followed.
pub(crate) fn load(file: Option<&Path>, state_root: &Path, context: &ProcessContext) -> Result<Users> {
    let path = match file {
        // The process may change its working directory.
        Some(path) => std::path::absolute(path)?,
        None => default_user::users_file(state_root, context)?,
    };
    let watched = WatchedFiles::new(vec![path.clone()]);
    let users = Users::new(read(&path)?).with_context(|| path.display().to_string())?;
    let reloaded = users.clone();
    watched.on_change(move || reload(&path, &reloaded))?;
    Ok(users)
}

/// Takes over a changed file of users. If it is unusable, the users stay as they are.
fn reload(path: &Path, users: &Users) {
    let replaced =
        read(path).and_then(|read| users.replace(read).with_context(|| path.display().to_string()));
    match replaced {
        Ok(()) => tracing::info!("reloaded {}: {} users", path.display(), users.count()),
        Err(error) => tracing::error!("cannot reload the users, so the earlier ones stay: {error:#}"),
    }
}

/// A file of users.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    user: Vec<User>,
}

/// Refuses a file of users that cannot be used.
pub(crate) fn check(path: &Path) -> Result<()> {
    Users::new(read(path)?).map(drop).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<Vec<User>> {
    let text = files::read_secret(path)?;
    let file: UsersFile = toml::from_str(&text)
        .map_err(|error| anyhow!("{}{}", path.display(), describe_error(&error, &text)))?;
    Ok(file.user)
}

/// Describes an error and names its line. A value of the wrong type is not shown, as it may be a secret.
fn describe_error(error: &toml::de::Error, text: &str) -> String {
    let line =
        error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
    let line = line.map_or_else(String::new, |line| format!(", line {line}"));
    let message = error.message().lines().next().unwrap_or_default();
    match message.split_once(", expected ") {
        Some((what, expected)) if what.starts_with("invalid type") => {
            format!("{line}: a value must be {expected}")
        }
        _ => format!("{line}: {message}"),
    }
}
