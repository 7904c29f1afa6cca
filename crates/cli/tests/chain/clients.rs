//! Clients of event handlers: one that uses the Rust library, and mounts.

use super::rules::{self, RULES, StoredObject};
use crate::fixture::Home;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Runtime;
use views::part::{Part, Union};
use views::remote::{RemoteConfig, RemoteViews};
use views::{Cursor, ObjectName, PackedObject, Ruleset, ViewError, ViewId, Views};

/// Returns the value of `--handler`: the handler's URL, prefixed by the part of all objects that it serves.
pub(super) fn flag((part, url): &(&'static str, String)) -> String {
    if part.is_empty() { url.clone() } else { format!("{part}={url}") }
}

/// Follows the views of all rulesets.
#[derive(Debug)]
pub(super) struct Follower {
    views: Arc<dyn Views>,
    followed: Vec<Followed>,
}

#[derive(Debug)]
struct Followed {
    ruleset: Ruleset,
    view: Option<ViewId>,
    cursor: Option<Cursor>,
    known: BTreeMap<ObjectName, PackedObject>,
}

impl Follower {
    pub(super) fn of(handlers: &[(&'static str, String)]) -> Self {
        let mut parts: BTreeMap<Part, Vec<String>> = BTreeMap::new();
        for (part, url) in handlers {
            let part = if part.is_empty() { Part::ALL } else { part.parse().unwrap() };
            parts.entry(part).or_default().push(url.clone());
        }
        let remote = |(part, addresses)| {
            let config = RemoteConfig { addresses, part, token: None, ca_bundle: None };
            Arc::new(RemoteViews::new(&config).unwrap()) as Arc<dyn Views>
        };
        let mut parts: Vec<_> = parts.into_iter().map(remote).collect();
        let views = if parts.len() == 1 { parts.remove(0) } else { Arc::new(Union::new(parts)) };
        let followed = |ruleset| Followed { ruleset, view: None, cursor: None, known: BTreeMap::new() };
        let followed = views::read(&rules::file()).unwrap().into_iter().map(followed).collect();
        Self { views, followed }
    }

    /// Fetches changes, at most `limit` objects per request.
    pub(super) fn fetch_changes(&mut self, limit: usize, runtime: &Runtime) -> Result<(), ViewError> {
        let views = &*self.views;
        self.followed
            .iter_mut()
            .try_for_each(|followed| runtime.block_on(followed.fetch_changes(views, limit)))
    }

    /// Compares the followed views with the objects in the buckets. The error describes the first view that differs.
    pub(super) fn compare(&self, seen: &[StoredObject]) -> Result<(), String> {
        for (rules, followed) in RULES.iter().zip(&self.followed) {
            let shown = seen.iter().filter(|seen| (rules.shows)(seen));
            let shown = shown.map(|seen| (format!("{}/{}", seen.bucket, seen.key), seen.etag.clone()));
            let known = followed.known.values();
            let known = known.map(|object| {
                let shown = object.unpack();
                (format!("{}/{}", shown.name.container, shown.name.key), shown.etag.as_str().to_owned())
            });
            check_equal(rules.name, shown.collect(), known.collect())?;
        }
        Ok(())
    }
}

impl Followed {
    async fn fetch_changes(&mut self, views: &dyn Views, limit: usize) -> Result<(), ViewError> {
        loop {
            let view = match self.view {
                Some(view) => view,
                None => *self.view.insert(views.open(&self.ruleset).await?),
            };
            let changes = match views.changes(view, self.cursor.as_ref(), limit).await {
                Err(ViewError::Unknown) => {
                    self.view = None;
                    continue;
                }
                changes => changes?,
            };
            if changes.is_beginning {
                self.known.clear();
            }
            changes.gone.iter().for_each(|object| drop(self.known.remove(object)));
            self.known.extend(changes.shown.into_iter().map(|shown| (shown.name(), shown)));
            self.cursor = Some(changes.cursor);
            if !changes.has_more {
                return Ok(());
            }
        }
    }
}

/// A mount of views without a volume.
pub(super) struct ViewsMount {
    home: Home,
    words: Vec<String>,
}

impl ViewsMount {
    pub(super) fn start(home: Home, handlers: &[(&'static str, String)]) -> Self {
        fs::write(home.path("rules.yaml"), rules::file()).unwrap();
        let words = ["mount", "--views=rules.yaml", "mnt", "--metadata-ttl=0s", "--log-file=log"];
        let handlers = handlers.iter().map(|handler| format!("--handler={}", flag(handler)));
        let mounted = Self { home, words: words.map(str::to_owned).into_iter().chain(handlers).collect() };
        mounted.home.ok(&mounted.words);
        mounted
    }

    /// Kills the daemon, as a crash does, and mounts anew.
    pub(super) fn kill(&self) {
        self.home.signal(self.home.pid(), Signal::KILL);
        self.home.ok(["umount", "mnt"]);
        self.home.ok(&self.words);
    }

    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.home.mnt().join(inside)
    }

    pub(super) fn log(&self) -> PathBuf {
        self.home.path("log")
    }

    /// Compares the mounted views with the objects in the buckets. The error describes the first view that differs.
    pub(super) fn compare(&self, seen: &[StoredObject]) -> Result<(), String> {
        for rules in &RULES {
            let has_directories = !rules.yaml.contains("directories: off");
            let expected = seen.iter().filter(|seen| (rules.shows)(seen));
            let expected = expected.map(|seen| {
                let name = seen.key.rsplit('/').next().unwrap().to_owned();
                let path = if has_directories { seen.path() } else { name };
                (path, String::from_utf8_lossy(&seen.body).into_owned())
            });
            let mut found = BTreeMap::new();
            let view = self.path(rules.name);
            read_all(&view, &view, &mut found).map_err(|error| format!("{}: {error}", rules.name))?;
            check_equal(rules.name, expected.collect(), found)?;
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.home.ok(["umount", "mnt"]);
    }
}

fn read_all(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            read_all(root, &path, found)?;
        } else {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

fn check_equal(
    view: &str,
    expected: BTreeMap<String, String>,
    found: BTreeMap<String, String>,
) -> Result<(), String> {
    let differ = |(name, is): &(&String, &String)| expected.get(*name) != Some(*is);
    let more: Vec<_> = found.iter().filter(differ).collect();
    let less: Vec<_> = expected.iter().filter(|(name, is)| found.get(*name) != Some(*is)).collect();
    if more.is_empty() && less.is_empty() {
        return Ok(());
    }
    Err(format!("view {view} shows {more:?} and should show {less:?}"))
}
