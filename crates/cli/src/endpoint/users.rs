//! The users file of an endpoint: read when the endpoint starts, and again whenever it changes.
//!
//! Invariant: the users in force are one complete and valid list. If a changed file is invalid, the earlier users
//! stay.

use crate::process::context::ProcessContext;
use crate::process::files;
use crate::state::default_user;
use anyhow::{Context, Result, anyhow};
use s3::{User, Users};
use serde::Deserialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Interval of checks for changes. One check of the file's attributes costs a microsecond.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Loads the users of a file, or the default user of the volume. Later changes of the file are followed.
pub(crate) fn load(file: Option<&Path>, state_root: &Path, context: &ProcessContext) -> Result<Users> {
    let path = match file {
        // The process may change its working directory.
        Some(path) => std::path::absolute(path)?,
        None => default_user::users_file(state_root, context)?,
    };
    let stamp = Stamp::of(&path);
    let users = Users::new(read(&path)?).with_context(|| path.display().to_string())?;
    let hangup = signal(SignalKind::hangup()).context("cannot watch signals")?;
    tokio::spawn(watch(WatchedFile { path, stamp, users: users.clone() }, hangup));
    Ok(users)
}

/// Reloads the file when it changes, until the process ends. SIGHUP reloads it at once, even if it seems unchanged.
async fn watch(mut file: WatchedFile, mut hangup: Signal) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = hangup.recv() => file.stamp = None,
        }
        let reloaded = tokio::task::spawn_blocking(move || {
            file.reload_if_changed();
            file
        });
        match reloaded.await {
            Ok(back) => file = back,
            Err(_) => return,
        }
    }
}

struct WatchedFile {
    path: PathBuf,
    /// Stamp of the file when it was last read, valid or not.
    stamp: Option<Stamp>,
    users: Users,
}

impl WatchedFile {
    fn reload_if_changed(&mut self) {
        let stamp = Stamp::of(&self.path);
        if self.stamp == stamp {
            return;
        }
        self.stamp = stamp;
        let shown = self.path.display();
        let replaced = read(&self.path)
            .and_then(|read| self.users.replace(read).with_context(|| self.path.display().to_string()));
        match replaced {
            Ok(()) => tracing::info!("reloaded {shown}: {} users", self.users.count()),
            Err(error) => tracing::error!("cannot reload the users, so the earlier ones stay: {error:#}"),
        }
    }
}

/// Attributes that distinguish a file from its earlier versions, and from another file at its path. A changed mode
/// counts: a wrong mode may be why the file was refused.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file, or `None` if there is no file.
    fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            ino: found.ino(),
            size_bytes: found.size(),
            changed: (found.ctime(), found.ctime_nsec()),
        })
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
