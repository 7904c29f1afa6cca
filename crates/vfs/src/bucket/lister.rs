//! The background lister: goes round what is known of a volume named by path, and looks whether the bucket still has it.
//!
//! Level-triggered as everything that ends in `reconcile`: what events, lookups and open files missed is found in the
//! next round. It lists only where names are known, and of a page only those count: the bucket is not imported. What has
//! changed the kernel hears of, so that a program that asks its caches alone sees it too.
//!
//! Invariants: no more requests than the budget allows; none while nobody asks and nothing is open, as nobody could see the
//! difference; where it is in its round survives the end of the process.

use bytes::Bytes;
use meta::{Dentry, FsError, Ino, Kind, Moment, Name, Op, XattrHow};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::names::{self, KeyPrefix};
use store::{ETag, ListEntry, ListPage, ListRequest, Timestamp};

use crate::bucket::discovery::{PAGE_ENTRIES, start_after};
use crate::bucket::reconcile::etag;
use crate::bucket::sort_keys;
use crate::layout::is_reserved;
use crate::objects::from_hex;
use crate::{Filesystem, Result};

/// The extended attribute of the root that says where a round is.
const POSITION: &[u8] = b"tenon.lister";
/// The version of the position that this Tenon writes and reads.
const VERSION: u32 = 1;
/// It is written after so many requests, and after each round.
const REQUESTS_PER_WRITE: u32 = 10;
/// A mount in which nobody has asked anything for so long, and for as long as the kernel may answer, is idle.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// How long a round that found nothing to ask waits, and a lister that nobody needs.
const IDLE_WAIT: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failure, in which the store's client has tried for a while already.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(300));
/// Directories passed over, in which nothing is known, before others have their turn.
const SKIPS_PER_YIELD: usize = 64;
/// Entries asked of the namespace at once.
const BATCH: usize = 256;

/// What the background lister does, and has done since the mount began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListerStatus {
    /// Time for each request; `None`: it is off.
    pub every: Option<Duration>,
    /// Whether it waits because nobody could see a difference.
    pub is_idle: bool,
    /// The directory where it is, from the volume's root.
    pub dir: Vec<u8>,
    /// When the last full round ended.
    pub finished_at: Option<Timestamp>,
    /// Requests.
    pub requests: u64,
    /// Names that were found changed or gone.
    pub changes: u64,
}

/// Where a round is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Position {
    dir: Vec<Name>,
    /// What of the directory's listing was looked at.
    after: Vec<u8>,
    finished_at: Option<Timestamp>,
}

/// The lister as others see it.
#[derive(Debug, Default)]
pub(crate) struct Lister {
    status: Mutex<ListerStatus>,
    /// When somebody last asked what a name or an inode is, in nanoseconds since the mount began.
    last_request_at: AtomicU64,
}

impl Lister {
    pub(crate) fn status(&self) -> ListerStatus {
        self.lock().clone()
    }

    /// Somebody asks what a name or an inode is.
    pub(crate) fn note_request(&self, now: Moment) {
        self.last_request_at.store(now.nanos, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, ListerStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one step did.
enum Step {
    /// So many requests.
    Listed(u32),
    /// Nothing is known where it looked.
    Skipped,
    /// The round is over.
    Ended,
}

impl Filesystem {
    /// Lists in the background from now on, for as long as the file system is there; each request has so much time. Not
    /// for a volume named by inode, whose objects nobody else changes.
    pub fn list_in_background(&self, every: Duration) {
        if self.layout.follows_paths() && !every.is_zero() {
            self.lister.lock().every = Some(every);
            let me = self.me.clone();
            tokio::spawn(store::supervise("background listing", move || list(me.clone(), every)));
        }
    }

    /// Whether any program could see what the lister finds. Whoever asks for the first time after the kernel's caches have
    /// expired is answered by the bucket anyway.
    fn is_needed(&self) -> bool {
        let now = self.moment();
        let last_request_at = Moment { nanos: self.lister.last_request_at.load(Ordering::Relaxed), ..now };
        self.handles.len() > 0 || now.since(last_request_at) < self.config.metadata_ttl + IDLE_AFTER
    }

    /// Looks at the next page of what is known.
    async fn check_next_page(&self, at: &mut Position) -> Result<Step> {
        let Some(dir) = self.directory_at(&at.dir)? else { return self.advance(at) };
        let known = sort_keys::entries_between(&self.names, dir, &at.after, None, 1)?;
        let prefix = self.layout.directory(&self.names, dir)?;
        let Some(next) = known.first().filter(|_| self.layout.lists(&prefix)) else {
            return self.advance(at);
        };
        let after = match at.after.is_empty() {
            // Most directories are one page.
            true => Vec::new(),
            false => bound_before(&next.sort_key).max(&at.after).to_vec(),
        };
        let looked = (self.moment(), self.directories.get(dir).changes());
        let request = ListRequest {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            delimiter: Some(b'/'),
            start_after: (!after.is_empty()).then(|| start_after(&prefix, &after)),
            token: None,
            limit: PAGE_ENTRIES,
        };
        let mut page = self.store.list(request).await?;
        let last = page.entries.last().map(|entry| entry.text()[prefix.as_bytes().len()..].to_vec());
        let end = if page.next.is_some() { last } else { None };
        let beyond = self.directories_beyond(&page).await?;
        let requests = 1 + u32::try_from(beyond.len()).unwrap_or(u32::MAX);
        page.entries.extend(beyond);
        self.compare((dir, &prefix), (&after, end.as_deref()), page, looked).await?;
        match end {
            Some(end) => at.after = end,
            None => {
                self.advance(at)?;
            }
        }
        self.lister.lock().requests += u64::from(requests);
        Ok(Step::Listed(requests))
    }

    /// Brings known names to agree with a page, and counts those that did not.
    async fn compare(
        &self,
        (dir, prefix): (Ino, &KeyPrefix),
        (after, end): (&[u8], Option<&[u8]>),
        mut page: ListPage,
        (looked_at, changes): (Moment, u64),
    ) -> Result<()> {
        let before = self.known_etags(dir, after, end)?;
        let listed = page.entries.len();
        let mut failed = Ok(());
        page.entries.retain(|entry| {
            self.is_known(dir, prefix, entry).unwrap_or_else(|error| {
                failed = Err(error);
                true
            })
        });
        failed?;
        if !self.reconcile_page((dir, prefix), (after, end), &page.entries, looked_at).await? {
            // It is being changed here: the next round looks again.
            return Ok(());
        }
        if after.is_empty() && end.is_none() && page.entries.len() == listed {
            // All there is, and all of it known: who looks next need not ask.
            self.directories.get(dir).note_page(after, end, looked_at, changes);
        }
        let changed = |(name, tag): &&(Name, Option<ETag>)| {
            let now = self.names.lookup(dir, name).ok().flatten();
            now.is_none_or(|now| etag(&now) != tag.as_ref())
        };
        self.lister.lock().changes += before.iter().filter(changed).count() as u64;
        Ok(())
    }

    /// The names known in a stretch of a listing, and the tags of their objects.
    fn known_etags(&self, dir: Ino, after: &[u8], end: Option<&[u8]>) -> Result<Vec<(Name, Option<ETag>)>> {
        let mut tags = Vec::new();
        for entry in sort_keys::entries_between(&self.names, dir, after, end, usize::MAX)? {
            if let Some(inode) = self.names.lookup(dir, &entry.name)? {
                tags.push((entry.name, inode.object().map(|object| object.etag.clone())));
            }
        }
        Ok(tags)
    }

    /// Whether an entry of a listing is of a name that the tables have.
    fn is_known(&self, dir: Ino, prefix: &KeyPrefix, entry: &ListEntry) -> Result<bool> {
        let name = match prefix.entry(entry.text()) {
            Some(names::Entry::Directory(name) | names::Entry::Object(name)) => name,
            Some(names::Entry::Marker) => return Ok(true),
            None => return Ok(false),
        };
        Ok(self.names.entry(dir, &Name::new(&name)?)?.is_some()
            || self.names.entry(dir, &Name::new(&names::beside(&name))?)?.is_some())
    }

    /// To the next directory.
    fn advance(&self, at: &mut Position) -> Result<Step> {
        at.after.clear();
        match self.next_directory(&at.dir)? {
            Some(next) => {
                at.dir = next;
                Ok(Step::Skipped)
            }
            None => {
                at.dir.clear();
                at.finished_at = Some(self.now());
                Ok(Step::Ended)
            }
        }
    }

    fn directory_at(&self, path: &[Name]) -> Result<Option<Ino>> {
        let mut dir = Ino::ROOT;
        for name in path {
            match self.names.entry(dir, name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => dir = ino,
                _ => return Ok(None),
            }
        }
        Ok(Some(dir))
    }

    /// The known directory after this one, which may be gone: what is inside comes after it, by name.
    fn next_directory(&self, path: &[Name]) -> Result<Option<Vec<Name>>> {
        let (mut at, mut above, mut after) = (Vec::new(), vec![Ino::ROOT], None);
        for name in path {
            match self.names.entry(above[above.len() - 1], name)? {
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

    fn first_directory(&self, dir: Ino, mut after: Option<Name>) -> Result<Option<Name>> {
        loop {
            let batch = self.names.entries(dir, after.as_ref(), BATCH)?;
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

    fn position(&self) -> Position {
        let read = match self.names.xattr(Ino::ROOT, POSITION) {
            Ok(text) => Position::decode(&text),
            Err(FsError::NoData) => Some(Position::default()),
            Err(_) => None,
        };
        read.unwrap_or_else(|| {
            tracing::warn!("where the background lister was cannot be read: it begins anew");
            Position::default()
        })
    }

    fn write_position(&self, at: &Position) -> Result<()> {
        let (name, value) = (POSITION.into(), at.encode().into());
        self.names.commit(&self.ctx(), &Op::SetXattr { ino: Ino::ROOT, name, value, how: XattrHow::Set })?;
        Ok(())
    }

    fn show_position(&self, at: &Position) {
        let mut status = self.lister.lock();
        status.dir = at.dir.iter().map(Name::as_bytes).collect::<Vec<_>>().join(&b'/');
        status.finished_at = at.finished_at;
    }
}

async fn list(me: Weak<Filesystem>, every: Duration) {
    let Some(mut at) = me.upgrade().map(|fs| fs.position()) else { return };
    let (mut wait, mut skipped, mut unwritten) = (BACKOFF.0, 0, 0);
    loop {
        let Some(fs) = me.upgrade() else { return };
        let is_idle = !fs.is_needed();
        fs.lister.lock().is_idle = is_idle;
        let finished_at = at.finished_at;
        let step = if is_idle { Ok(Step::Skipped) } else { fs.check_next_page(&mut at).await };
        fs.show_position(&at);
        let has_ended = at.finished_at != finished_at;
        if let Ok(Step::Listed(requests)) = step {
            unwritten += requests;
        }
        if !fs.config.read_only && (has_ended && unwritten > 0 || unwritten >= REQUESTS_PER_WRITE) {
            unwritten = 0;
            if let Err(error) = fs.write_position(&at) {
                tracing::warn!(%error, "where the background lister is cannot be written down");
            }
        }
        drop(fs);
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
                tracing::debug!(%error, "the background lister cannot look; it tries again");
                tokio::time::sleep(wait.max(every)).await;
                wait = (wait * 2).min(BACKOFF.1);
            }
        }
    }
}

/// A text a little before another: its beginning, which sorts before it.
fn bound_before(text: &[u8]) -> &[u8] {
    let stem = &text[..text.len().saturating_sub(1)];
    // Whole characters, as a server wants them.
    match std::str::from_utf8(stem) {
        Ok(_) => stem,
        Err(error) => &stem[..error.valid_up_to()],
    }
}

/// The position as JSON; names in hexadecimal, as they need not be text.
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
            Err(error) => unreachable!("numbers and texts are JSON: {error}"),
        }
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let written: PositionRecord =
            serde_json::from_slice(text).ok().filter(|found: &PositionRecord| found.v == VERSION)?;
        let name = |text: &String| Name::new(&from_hex(text)?).ok();
        Some(Self {
            dir: written.dir.iter().map(name).collect::<Option<_>>()?,
            after: from_hex(&written.after)?,
            finished_at: written.finished.map(Timestamp),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_written_and_other_ones_not() {
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
    fn what_sorts_before_a_text_is_whole_characters() {
        assert_eq!(bound_before(b"abc"), b"ab");
        assert_eq!(bound_before("aä".as_bytes()), b"a");
        assert_eq!(bound_before(b""), b"");
    }
}
