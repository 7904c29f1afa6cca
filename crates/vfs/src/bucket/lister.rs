//! Background lister: compares the known names of a volume named by path with the bucket, round after round.
//!
//! Like everything that ends in `reconcile`, the lister is level-triggered: a change that events, lookups and open files missed
//! is found in the next round. It lists only directories with known names, and uses only known names of each page, so that it
//! does not import the bucket. The kernel is told of changes, so that programs that read only from its caches see them too.
//!
//! Invariants: the lister sends no more requests than its budget allows. It sends none while no file is open and no program
//! asks, as no program could see a difference. Its position survives the process.

use meta::{Dentry, FsError, Ino, Kind, Moment, Name, Op, Origin, XattrHow};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::names::{self, KeyPrefix};
use store::{ETag, ListEntry, Timestamp};

use crate::Result;
use crate::base::Base;
use crate::bucket::discovery::Discovery;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::reconcile::Reconciler;
use crate::bucket::sort_keys;
use crate::layout::{etag, is_reserved};
use crate::mount::Mount;
use crate::names::Names;

/// Compares known directories with the bucket, one page after the other.
#[derive(Debug)]
pub(crate) struct BackgroundLister {
    pub(in crate::bucket) me: Weak<Self>,
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) reconciler: Arc<Reconciler>,
    pub(in crate::bucket) discovery: Arc<Discovery>,
    pub(in crate::bucket) state: Lister,
}

impl BackgroundLister {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        reconciler: &Arc<Reconciler>,
        discovery: &Arc<Discovery>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            mount: base.mount.clone(),
            names: base.names.clone(),
            known: parts.known.clone(),
            reconciler: reconciler.clone(),
            discovery: discovery.clone(),
            state: Lister::default(),
        })
    }

    /// Returns the state that other tasks access.
    pub(crate) fn state(&self) -> &Lister {
        &self.state
    }
}

/// Extended attribute of the root that holds the position of the current round.
const POSITION: &[u8] = b"tenon.lister";
/// Version of the position format that this Tenon reads and writes.
const VERSION: u32 = 1;
/// Requests between two writes of the position. It is also written after each round.
const REQUESTS_PER_WRITE: u32 = 10;
/// A mount is idle if no file is open and there was no request for this long plus the time for which the kernel may
/// cache answers.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// Minimum wait of an idle lister, and after a round that ended without a request for its last directories.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// First and longest wait after a failed request, which the store's client has already retried.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Directories without known names to skip before the task yields.
const SKIPS_PER_YIELD: usize = 64;
/// Entries to read from the namespace at once.
const BATCH: usize = 256;

/// State of the background lister, and its counters since the mount began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListerStatus {
    /// The time that the lister takes for each request; `None` if it is off.
    pub every: Option<Duration>,
    /// Whether the lister pauses because no program could see a difference.
    pub is_idle: bool,
    /// Path of the current directory from the volume's root.
    pub dir: Vec<u8>,
    /// When the last full round ended.
    pub finished_at: Option<Timestamp>,
    /// Number of requests that the lister has sent.
    pub requests: u64,
    /// Number of names that were found changed or removed.
    pub changes: u64,
}

/// Position of a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Position {
    /// Path of the current directory from the volume's root.
    dir: Vec<Name>,
    /// Sort key up to which the directory was compared.
    after: Vec<u8>,
    /// When the last full round ended.
    finished_at: Option<Timestamp>,
}

/// State of the lister that other tasks access.
#[derive(Debug, Default)]
pub(crate) struct Lister {
    status: Mutex<ListerStatus>,
    /// When a program last asked for a name or an inode, in nanoseconds since the mount began.
    last_request_at: AtomicU64,
}

impl Lister {
    pub(crate) fn status(&self) -> ListerStatus {
        self.lock().clone()
    }

    /// Records that a program asks for a name or an inode.
    pub(crate) fn note_request(&self, now: Moment) {
        self.last_request_at.store(now.nanos, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ListerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of one step.
enum Step {
    /// A page was compared with the known names. Has the number of requests sent.
    Listed(u32),
    /// The directory has no known names left to compare.
    Skipped,
    /// The round has ended.
    Ended,
}

impl BackgroundLister {
    /// Starts the background lister, with the time `every` for each request, unless that is zero. It runs until the
    /// file system is dropped.
    pub(crate) fn start(&self, every: Duration) {
        if !every.is_zero() {
            self.state.lock().every = Some(every);
            let me = self.me.clone();
            tokio::spawn(store::supervise("background listing", move || list_rounds(me.clone(), every)));
        }
    }

    /// Returns whether any program could see what the lister finds. A request after the kernel's caches have expired is
    /// answered from the bucket anyway.
    fn is_needed(&self) -> bool {
        let now = self.mount.moment();
        let last_request_at = Moment { nanos: self.state.last_request_at.load(Ordering::Relaxed), ..now };
        self.names.handles().len() > 0
            || now.since(last_request_at) < self.mount.config.metadata_ttl + IDLE_AFTER
    }

    /// Compares the next page that contains known names.
    async fn check_next_page(&self, at: &mut Position) -> Result<Step> {
        let Some(dir) = self.directory_at(&at.dir)? else { return self.advance(at) };
        let known = sort_keys::entries_between(self.names.tables(), dir, &at.after, None, 1)?;
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let Some(next) = known.first().filter(|_| self.mount.layout.can_list(&prefix)) else {
            return self.advance(at);
        };
        let after = match at.after.is_empty() {
            // Start at the beginning: most directories are one page.
            true => Vec::new(),
            false => bound_before(&next.sort_key).max(&at.after).to_vec(),
        };
        let looked = (self.mount.moment(), self.known.directories().get(dir).changes());
        let page = self.discovery.request_page(&prefix, &after).await?;
        let (end, requests) = (page.end, u32::try_from(page.requests).unwrap_or(u32::MAX));
        self.compare((dir, &prefix), (&after, end.as_deref()), page.entries, looked).await?;
        match end {
            Some(end) => at.after = end,
            None => {
                self.advance(at)?;
            }
        }
        self.state.lock().requests += u64::from(requests);
        Ok(Step::Listed(requests))
    }

    /// Reconciles known names with a page of the listing between two sort keys, and counts those that had changed.
    async fn compare(
        &self,
        (dir, prefix): (Ino, &KeyPrefix),
        (after, end): (&[u8], Option<&[u8]>),
        mut entries: Vec<ListEntry>,
        (looked_at, changes): (Moment, u64),
    ) -> Result<()> {
        let before = self.known_etags(dir, after, end).await?;
        let listed = entries.len();
        let mut failed = Ok(());
        entries.retain(|entry| {
            self.is_known(dir, prefix, entry).unwrap_or_else(|error| {
                failed = Err(error);
                true
            })
        });
        failed?;
        if !self.reconciler.reconcile_page((dir, prefix), (after, end), &entries, looked_at).await? {
            // The directory is being changed here. The next round compares it.
            return Ok(());
        }
        if after.is_empty() && end.is_none() && entries.len() == listed {
            // The page is the whole directory and all its names are known, so lookups need not list it.
            self.known.directories().get(dir).note_page(after, end, looked_at, changes);
        }
        let changed = self.count_changed(dir, &before).await;
        self.state.lock().changes += changed;
        Ok(())
    }

    /// Returns the known names in a range of a listing, and the etags of their objects.
    async fn known_etags(
        &self,
        dir: Ino,
        after: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Vec<(Name, Option<ETag>)>> {
        let (mut tags, mut after) = (Vec::new(), after.to_vec());
        loop {
            let entries = sort_keys::entries_between(self.names.tables(), dir, &after, end, BATCH)?;
            let Some(last) = entries.last() else { return Ok(tags) };
            after.clone_from(&last.sort_key);
            let inos: Vec<Ino> = entries.iter().map(|entry| entry.dentry.ino).collect();
            for (entry, inode) in entries.into_iter().zip(self.names.tables().inodes(&inos)?) {
                tags.extend(inode.map(|inode| (entry.name, etag(&inode).cloned())));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Counts the names that have another object now, or none.
    async fn count_changed(&self, dir: Ino, before: &[(Name, Option<ETag>)]) -> u64 {
        let is_changed = |(name, tag): &&(Name, Option<ETag>)| {
            let now = self.names.tables().lookup(dir, name).ok().flatten();
            now.is_none_or(|now| etag(&now) != tag.as_ref())
        };
        let mut changed = 0;
        for batch in before.chunks(BATCH) {
            changed += batch.iter().filter(is_changed).count() as u64;
            tokio::task::yield_now().await;
        }
        changed
    }

    /// Returns whether the namespace has the name of a listing entry.
    fn is_known(&self, dir: Ino, prefix: &KeyPrefix, entry: &ListEntry) -> Result<bool> {
        let name = match prefix.entry(entry.text()) {
            Some(names::Entry::Directory(name) | names::Entry::Object(name)) => name,
            Some(names::Entry::Marker) => return Ok(true),
            None => return Ok(false),
        };
        Ok(self.names.tables().entry(dir, &Name::new(&name)?)?.is_some()
            || self.names.tables().entry(dir, &Name::new(&names::colliding(&name))?)?.is_some())
    }

    /// Moves to the next directory.
    fn advance(&self, at: &mut Position) -> Result<Step> {
        at.after.clear();
        match self.next_directory(&at.dir)? {
            Some(next) => {
                at.dir = next;
                Ok(Step::Skipped)
            }
            None => {
                at.dir.clear();
                at.finished_at = Some(self.mount.now());
                Ok(Step::Ended)
            }
        }
    }

    /// Returns the known directory at a path; `None` if there is none.
    fn directory_at(&self, path: &[Name]) -> Result<Option<Ino>> {
        let mut dir = Ino::ROOT;
        for name in path {
            match self.names.tables().entry(dir, name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => dir = ino,
                _ => return Ok(None),
            }
        }
        Ok(Some(dir))
    }

    /// Returns the known directory that follows this one, depth first by name. The directory itself may be gone.
    fn next_directory(&self, path: &[Name]) -> Result<Option<Vec<Name>>> {
        let (mut at, mut above, mut after) = (Vec::new(), vec![Ino::ROOT], None);
        for name in path {
            match self.names.tables().entry(above[above.len() - 1], name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => {
                    at.push(name.clone());
                    above.push(ino);
                }
                _ => {
                    after = Some(name.clone());
                    break;
                }
            }
        }
        while let Some(dir) = above.pop() {
            if let Some(next) = self.first_directory(dir, after)? {
                at.push(next);
                return Ok(Some(at));
            }
            after = at.pop();
        }
        Ok(None)
    }

    /// Returns the name of the first known directory in a directory after a name.
    fn first_directory(&self, dir: Ino, mut after: Option<Name>) -> Result<Option<Name>> {
        loop {
            let batch = self.names.tables().entries(dir, after.as_ref(), BATCH)?;
            let is_last = batch.len() < BATCH;
            after = batch.last().map(|(name, _)| name.clone());
            let is_one = |(name, entry): &(Name, Dentry)| {
                entry.kind == Kind::Directory && !is_reserved(dir, name.as_bytes())
            };
            match batch.into_iter().find(is_one) {
                Some((name, _)) => return Ok(Some(name)),
                None if is_last => return Ok(None),
                None => {}
            }
        }
    }

    /// Returns the stored position; the beginning of a round if there is none or it cannot be read.
    fn position(&self) -> Position {
        let read = match self.names.tables().xattr(Ino::ROOT, POSITION) {
            Ok(text) => Position::decode(&text),
            Err(FsError::NoData) => Some(Position::default()),
            Err(_) => None,
        };
        read.unwrap_or_else(|| {
            tracing::warn!("cannot read the position of the background lister; it starts a new round");
            Position::default()
        })
    }

    fn write_position(&self, at: &Position) -> Result<()> {
        let (name, value) = (POSITION.into(), at.encode().into());
        self.names
            .commit(Origin::Bookkeeping, &Op::SetXattr { ino: Ino::ROOT, name, value, how: XattrHow::Set })?;
        Ok(())
    }

    /// Shows a position in the status.
    fn show_position(&self, at: &Position) {
        let mut status = self.state.lock();
        status.dir = at.dir.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/');
        status.finished_at = at.finished_at;
    }
}

/// Compares pages, round after round, until the lister is dropped.
async fn list_rounds(me: Weak<BackgroundLister>, every: Duration) {
    let Some(mut at) = me.upgrade().map(|lister| lister.position()) else { return };
    let (mut wait, mut skipped, mut unwritten) = (BACKOFF.0, 0, 0);
    loop {
        let Some(lister) = me.upgrade() else { return };
        let is_idle = !lister.is_needed();
        lister.state.lock().is_idle = is_idle;
        let finished_at = at.finished_at;
        let step = if is_idle { Ok(Step::Skipped) } else { lister.check_next_page(&mut at).await };
        lister.show_position(&at);
        let has_ended = at.finished_at != finished_at;
        if let Ok(Step::Listed(requests)) = step {
            unwritten += requests;
        }
        if !lister.mount.config.read_only && (has_ended && unwritten > 0 || unwritten >= REQUESTS_PER_WRITE) {
            unwritten = 0;
            if let Err(error) = lister.write_position(&at) {
                tracing::warn!(%error, "cannot save the position of the background lister; after a restart it goes on from an earlier position");
            }
        }
        drop(lister);
        match step {
            Ok(Step::Listed(requests)) => {
                (wait, skipped) = (BACKOFF.0, 0);
                tokio::time::sleep(every * requests).await;
            }
            Ok(Step::Skipped) if !is_idle && skipped < SKIPS_PER_YIELD => skipped += 1,
            Ok(Step::Skipped) if !is_idle => {
                skipped = 0;
                tokio::task::yield_now().await;
            }
            Ok(Step::Skipped | Step::Ended) => tokio::time::sleep(every.max(IDLE_WAIT)).await,
            Err(error) => {
                tracing::debug!(%error, "the background lister could not check a page of the bucket; it retries");
                tokio::time::sleep(wait.max(every)).await;
                wait = (wait * 2).min(BACKOFF.1);
            }
        }
    }
}

/// Returns a prefix of a sort key, which sorts before that key.
fn bound_before(text: &[u8]) -> &[u8] {
    let stem = &text[..text.len().saturating_sub(1)];
    // Cut between characters, as servers require valid UTF-8.
    match std::str::from_utf8(stem) {
        Ok(_) => stem,
        Err(error) => &stem[..error.valid_up_to()],
    }
}

/// The position as JSON. Names are in hexadecimal, as they may not be valid UTF-8.
#[derive(Serialize, Deserialize)]
struct PositionRecord {
    v: u32,
    dir: Vec<String>,
    after: String,
    finished: Option<i64>,
}

impl Position {
    fn encode(&self) -> Vec<u8> {
        let dir = self.dir.iter().map(|name| store::hex(name.as_bytes())).collect();
        let finished = self.finished_at.map(|at| at.0);
        match serde_json::to_vec(&PositionRecord {
            v: VERSION,
            dir,
            after: store::hex(&self.after),
            finished,
        }) {
            Ok(text) => text,
            Err(error) => unreachable!("a position is valid JSON: {error}"),
        }
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let written: PositionRecord =
            serde_json::from_slice(text).ok().filter(|found: &PositionRecord| found.v == VERSION)?;
        let name = |text: &String| Name::new(&store::unhex(text)?).ok();
        Some(Self {
            dir: written.dir.iter().map(name).collect::<Option<_>>()?,
            after: store::unhex(&written.after)?,
            finished_at: written.finished.map(Timestamp),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_back_and_other_versions_refused() {
        let name = |text: &str| Name::new(text.as_bytes()).unwrap();
        let at = Position {
            dir: vec![name("a"), name("b")],
            after: b"c\xff".to_vec(),
            finished_at: Some(Timestamp(5)),
        };
        assert_eq!(Position::decode(&at.encode()), Some(at.clone()));
        let newer = String::from_utf8(at.encode()).unwrap().replace("\"v\":1", "\"v\":2");
        assert_eq!(Position::decode(newer.as_bytes()), None);
    }

    #[test]
    fn a_bound_before_a_key_ends_at_a_character() {
        assert_eq!(bound_before(b"abc"), b"ab");
        assert_eq!(bound_before("aä".as_bytes()), b"a");
        assert_eq!(bound_before(b""), b"");
    }
}
