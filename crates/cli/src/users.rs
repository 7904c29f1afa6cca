//! The file of an endpoint's users: read when the endpoint starts, and anew whenever it changes.
//!
//! Invariant: who may come in is always one whole list that was right: of a wrong file the users before stay.

use crate::bucket::World;
use crate::state::{self, State};
use anyhow::{Context, Result, anyhow};
use s3::{User, Users};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Where the user that nobody named is kept, in the state directory.
const OWN_FILE: &str = "s3-users.toml";
/// How soon a change is seen: one look at the file's attributes costs a microsecond.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The users of a file, or the volume's own one; those of its later versions come by themselves.
pub(crate) fn of(file: Option<&Path>, state: &State, world: &World) -> Result<Users> {
    let path = match file {
        // The process may leave its directory.
        Some(path) => std::path::absolute(path)?,
        None => own(state, world)?,
    };
    let stamp = Stamp::of(&path);
    let users = Users::new(read(&path)?).with_context(|| path.display().to_string())?;
    let hangup = signal(SignalKind::hangup()).context("cannot watch signals")?;
    tokio::spawn(follow(Followed { path, stamp, users: users.clone() }, hangup));
    Ok(users)
}

/// Until the process ends. SIGHUP reads the file at once, whether it seems changed or not.
async fn follow(mut followed: Followed, mut hangup: Signal) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = hangup.recv() => followed.stamp = None,
        }
        let looked = tokio::task::spawn_blocking(move || {
            followed.look();
            followed
        });
        match looked.await {
            Ok(back) => followed = back,
            Err(_) => return,
        }
    }
}

struct Followed {
    path: PathBuf,
    /// Of the file that was read last, rightly or not.
    stamp: Option<Stamp>,
    users: Users,
}

impl Followed {
    fn look(&mut self) {
        let stamp = Stamp::of(&self.path);
        if self.stamp == stamp {
            return;
        }
        self.stamp = stamp;
        let shown = self.path.display();
        let replaced = read(&self.path)
            .and_then(|read| self.users.replace(read).with_context(|| self.path.display().to_string()));
        match replaced {
            Ok(()) => tracing::info!("{shown} was read anew: {} users", self.users.count()),
            Err(error) => tracing::error!("the users stay as they were: {error:#}"),
        }
    }
}

/// What distinguishes a file from what it was before, and from another one in its place. A changed mode counts: it may
/// be what was wrong.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size_bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// `None` where there is none.
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
struct File {
    user: Vec<User>,
}

/// Refuses a file of users that cannot be used.
pub(crate) fn check(path: &Path) -> Result<()> {
    Users::new(read(path)?).map(drop).with_context(|| path.display().to_string())
}

fn read(path: &Path) -> Result<Vec<User>> {
    let text = state::read_secret(path)?;
    let file: File =
        toml::from_str(&text).map_err(|error| anyhow!("{}{}", path.display(), said(&error, &text)))?;
    Ok(file.user)
}

/// What is wrong, and in which line; of a value of the wrong kind not the value, which may be a secret.
fn said(error: &toml::de::Error, text: &str) -> String {
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

/// The user of a volume for whom nobody named one: made once, and kept in its state directory.
#[derive(Debug, Serialize)]
struct OwnFile {
    user: [OwnUser; 1],
}

#[derive(Debug, Serialize)]
struct OwnUser {
    access_key: String,
    secret_key: String,
}

/// The key and the secret of the user that nobody named, of whom a state directory knows.
pub(crate) fn own_keys(state_root: &Path) -> Result<(String, String)> {
    let path = state_root.join(OWN_FILE);
    let own = read(&path)?.into_iter().next();
    let own = own.with_context(|| format!("{} has no user", path.display()))?;
    Ok((own.access_key, own.secret_key))
}

fn own(state: &State, world: &World) -> Result<PathBuf> {
    let path = state.root().join(OWN_FILE);
    if !path.exists() {
        let access_key = format!("tenon-{:08x}", world.entropy.next_u64() >> 32);
        let own = OwnFile { user: [OwnUser { access_key, secret_key: secret()? }] };
        state::write_secret(&path, &toml::to_string(&own)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    tracing::info!("the access key and its secret are in {}", path.display());
    Ok(path)
}

/// 256 bits of the system's randomness, in hexadecimal.
fn secret() -> Result<String> {
    let words = [(); 4].map(|()| crate::command::format::random_id());
    words.into_iter().map(|word| Ok(format!("{:016x}", word?))).collect()
}
