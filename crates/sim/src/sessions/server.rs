//! The database server of the world: its state, what each call does to it, and its history.
//!
//! Records, conditions and merges are those of the engine in memory. The server adds what a database adds: sessions, groups, leases, locks and
//! the keys that each commit changed.

use meta::codec::{append_to_log_page, decode_inode, decode_quota};
use meta::{
    Commit, CommitError, Engine as _, EngineError, Ino, LockChange, Locker, LogCap, MemoryEngine, OpRecord,
    Reader as _, Seqno, StoredLocks, schema,
};
use meta_remote::{
    Applied, Changes, Failure, Group, LEASE_S, Lease, LogPage, LogSize, LogState, Merged, MergedRow,
    OpenError, Outcome, Position, SILENCE_S_MAX, SessionId, SessionState, changed_keys, ended,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The state of the database. Clones share records.
#[derive(Clone)]
pub(super) struct ServerState {
    /// The records and the head. Replaced by each group.
    engine: Arc<MemoryEngine>,
    log: Vec<Arc<Entry>>,
    sessions: BTreeMap<i64, Session>,
    /// The session with exclusive access.
    owner: Option<i64>,
    newest_session: i64,
    leases: BTreeMap<i64, Lease>,
    locks: BTreeMap<u64, Vec<u8>>,
    consumers: BTreeMap<String, Seqno>,
}

/// A commit in the log.
struct Entry {
    seqno: Seqno,
    /// The encoded ops.
    ops: Vec<u8>,
    /// The keys of the changed records.
    keys: Vec<u8>,
    /// Session, generation and group of the writer.
    writer: [i64; 3],
}

#[derive(Debug, Clone)]
struct Session {
    holder: String,
    generation: i64,
    last_group: i64,
    outcome: Outcome,
    used_at: Instant,
}

/// The part of an answer of [`ServerState::begin_session`] that its caller cannot know.
pub(super) type Begun = Result<SessionId, OpenError>;

impl ServerState {
    pub(super) fn new() -> Self {
        Self {
            engine: Arc::new(MemoryEngine::new(LogCap { tail_ops: 0, ..LogCap::default() })),
            log: Vec::new(),
            sessions: BTreeMap::new(),
            owner: None,
            newest_session: 0,
            leases: BTreeMap::new(),
            locks: BTreeMap::new(),
            consumers: BTreeMap::new(),
        }
    }

    /// Returns the records. Later commits do not change them.
    pub(super) fn engine(&self) -> Arc<MemoryEngine> {
        self.engine.clone()
    }

    pub(super) fn head(&self) -> Seqno {
        self.engine.head()
    }

    /// Returns two values that differ after each mount: the number of the newest session, and the record of the next inode number.
    pub(super) fn mounts_made(&self) -> (i64, Option<Seqno>) {
        let next_ino = self.engine.get(&schema::next_ino()).ok().flatten();
        (self.newest_session, next_ino.map(|record| record.version))
    }

    pub(super) fn begin_session(&mut self, holder: &str, is_exclusive: bool, now: Instant) -> Begun {
        let owner = self.owner;
        let excludes = |id: i64| is_exclusive || owner == Some(id);
        let rivals = self.sessions.iter().filter(|(id, other)| excludes(**id) && other.holder != holder);
        if let Some((_, rival)) = rivals.max_by_key(|(_, other)| other.used_at) {
            let seconds = (now - rival.used_at).as_secs().cast_signed();
            if seconds < LEASE_S {
                let holder = rival.holder.clone();
                return Err(OpenError::InUse { holder, seconds, timeout_s: LEASE_S });
            }
        }
        let silence = Duration::from_secs(SILENCE_S_MAX.unsigned_abs());
        self.sessions.retain(|id, other| {
            !is_exclusive && other.holder != holder && now - other.used_at <= silence && owner != Some(*id)
        });
        self.newest_session += 1;
        let id = self.newest_session;
        let (holder, outcome) = (holder.to_owned(), Outcome::default());
        self.sessions.insert(id, Session { holder, generation: 0, last_group: 0, outcome, used_at: now });
        self.owner = is_exclusive.then_some(id);
        let sessions = &self.sessions;
        self.leases.retain(|id, _| sessions.contains_key(id));
        if self.sessions.len() == 1 {
            self.locks.clear();
        }
        Ok(SessionId(id))
    }

    pub(super) fn resume(&mut self, id: SessionId, known_generation: i64) -> Result<SessionState, Failure> {
        let head = self.head();
        let session = self.sessions.get_mut(&id.0).ok_or_else(|| Failure::Refused(ended()))?;
        session.generation = session.generation.max(known_generation) + 1;
        let (generation, last_group) = (session.generation, session.last_group);
        Ok(SessionState { generation, last_group, outcome: session.outcome.clone(), head })
    }

    pub(super) fn show_alive(&mut self, id: SessionId, now: Instant) {
        if let Some(session) = self.sessions.get_mut(&id.0) {
            session.used_at = now;
        }
    }

    pub(super) fn end_session(&mut self, id: SessionId) {
        self.sessions.remove(&id.0);
        self.leases.remove(&id.0);
        self.owner = self.owner.filter(|owner| *owner != id.0);
    }

    pub(super) fn is_alone(&self, id: SessionId, now: Instant) -> bool {
        let silence = Duration::from_secs(SILENCE_S_MAX.unsigned_abs());
        !self.sessions.iter().any(|(other, session)| *other != id.0 && now - session.used_at < silence)
    }

    /// Applies a group of commits. Changes nothing if it fails.
    pub(super) fn apply(
        &mut self,
        group: &Group,
        id: SessionId,
        (generation, number): (i64, i64),
        now: Instant,
    ) -> Result<Applied, Failure> {
        let may_commit = self.owner.is_none_or(|owner| owner == id.0)
            && self
                .sessions
                .get(&id.0)
                .is_some_and(|known| known.generation == generation && known.last_group == number - 1);
        if !may_commit {
            return Err(Failure::Refused(ended()));
        }
        let (next, base) = (self.engine.fork(), self.head());
        let (mut failed, mut entries, mut merged_keys) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (nr, commit) in group.numbered() {
            let at = Seqno(base.0 + u64::from(nr.unsigned_abs()));
            match commit_at(&next, commit, at)? {
                true if commit.is_check() => {}
                true => {
                    merged_keys.extend(commit.merges.iter().map(|(key, _)| key.clone()));
                    entries.push(Arc::new(Entry::new(commit, at, [id.0, generation, number])));
                }
                false => failed.push(nr),
            }
        }
        let merged = merged_keys.iter().map(|key| self.merged_row(&next, key)).collect::<Result<_, _>>()?;
        self.engine = Arc::new(next);
        self.log.extend(entries);
        let outcome = Outcome { base, failed };
        if let Some(session) = self.sessions.get_mut(&id.0) {
            (session.last_group, session.outcome, session.used_at) = (number, outcome.clone(), now);
        }
        let strict = self.leases.values().filter(|lease| lease.is_strict).copied().collect();
        Ok(Applied { outcome, now: Some((self.head(), LogSize::default())), merged, strict })
    }

    /// Returns the numbers of a record after merges.
    fn merged_row(&self, next: &MemoryEngine, key: &[u8]) -> Result<MergedRow, Failure> {
        let missing = || Failure::Refused(EngineError::Corrupt("a merged record is missing".into()));
        let found = next.get(key).ok().flatten().ok_or_else(missing)?;
        let before = self.engine.get(key).ok().flatten().map_or(found.version, |before| before.version);
        let columns = match schema::inodes().contains(key) {
            true => {
                let inode = decode_inode(Ino(0), &found.value).map_err(|_| missing())?.inode;
                Merged { sum1: inode.nlink.into(), sum2: 0, max1: inode.mtime.0, max2: inode.ctime.0 }
            }
            false => {
                let used = decode_quota(&found.value).map_err(|_| missing())?.used;
                Merged { sum1: used.bytes, sum2: used.files, max1: 0, max2: 0 }
            }
        };
        Ok(MergedRow { key: key.to_vec(), before, version: found.version, columns })
    }

    pub(super) fn begin_lease(&mut self, lease: Lease) -> Result<Seqno, Failure> {
        if !self.sessions.contains_key(&lease.locker.session) {
            return Err(Failure::Refused(ended()));
        }
        self.leases.insert(lease.locker.session, lease);
        Ok(self.head())
    }

    pub(super) fn renew_lease(&mut self, lease: Lease, answered: i64) -> Option<Vec<Lease>> {
        let stored = self.leases.get_mut(&lease.locker.session)?;
        let has_lost = stored.locker.epoch != lease.locker.epoch || stored.beat < answered;
        if has_lost || stored.fence > lease.fence {
            return None;
        }
        let beat = stored.beat.max(lease.beat);
        (stored.fence, stored.beat, stored.read_to) = (lease.fence, beat, lease.read_to);
        Some(self.leases.values().copied().collect())
    }

    /// Removes a lease, unless it has been renewed since. Returns whether it was removed.
    pub(super) fn expire_lease(&mut self, lease: Lease) -> bool {
        let is_same = |stored: &Lease| (stored.locker, stored.beat) == (lease.locker, lease.beat);
        let id = lease.locker.session;
        self.leases.get(&id).is_some_and(is_same) && self.leases.remove(&id).is_some()
    }

    pub(super) fn locks_of(&self, ino: u64) -> StoredLocks {
        let lockers: Vec<Locker> = self.leases.values().map(|lease| lease.locker).collect();
        StoredLocks { held: self.locks.get(&ino).cloned(), lockers, head: self.head() }
    }

    pub(super) fn replace_locks(
        &mut self,
        lease: Lease,
        change: LockChange<'_>,
    ) -> Option<(bool, StoredLocks)> {
        let is_own = |stored: &Lease| stored.locker == lease.locker && stored.fence == lease.fence;
        let stored = self.leases.get_mut(&lease.locker.session).filter(|stored| is_own(stored))?;
        stored.beat = stored.beat.max(lease.beat);
        let is_replaced = self.locks.get(&change.ino).map(Vec::as_slice) == change.seen;
        if is_replaced {
            match change.new {
                Some(new) => drop(self.locks.insert(change.ino, new.to_vec())),
                None => drop(self.locks.remove(&change.ino)),
            }
        }
        Some((is_replaced, self.locks_of(change.ino)))
    }

    pub(super) fn changes_after(&self, after: Position, id: SessionId, limit: usize) -> Changes {
        let writer_at = |at: Seqno| {
            let end = self.log.partition_point(|entry| entry.seqno <= at);
            end.checked_sub(1).map(|last| self.log[last].writer)
        };
        let (head, cut) = (self.head(), Seqno(0));
        let is_other_history = after.writer.is_some() && writer_at(after.seqno) != after.writer;
        let begin = self.log.partition_point(|entry| entry.seqno <= after.seqno);
        let others = self.log[begin.min(self.log.len())..].iter().filter(|entry| entry.writer[0] != id.0);
        let commits: Vec<_> =
            others.take(limit).map(|entry| (entry.seqno, Some(entry.keys.clone()))).collect();
        let seqno = match commits.last() {
            Some((last, _)) if commits.len() >= limit => *last,
            _ => head,
        };
        let to = Position { seqno, writer: writer_at(seqno) };
        Changes { head, cut, commits, to, is_other_history }
    }

    pub(super) fn log_state(&self) -> LogState {
        let (head, size) = (self.head(), LogSize::default());
        LogState { head, cut: Seqno(0), size, first: None, needed_after: None }
    }

    pub(super) fn read_log(&self, cursor: Seqno, limit: usize) -> Result<(LogState, LogPage), Failure> {
        let mut page = LogPage::new(limit);
        let begin = self.log.partition_point(|entry| entry.seqno <= cursor);
        for entry in &self.log[begin..] {
            if page.is_full() {
                break;
            }
            page.add(entry.seqno, &entry.ops)?;
        }
        Ok((self.log_state(), page))
    }

    pub(super) fn register(&mut self, consumer: String, at: Seqno) {
        let at = at.min(self.head());
        self.consumers.insert(consumer, at);
    }

    pub(super) fn cursor(&self, consumer: &str) -> Option<Seqno> {
        self.consumers.get(consumer).copied()
    }

    pub(super) fn advance(&mut self, consumer: &str, to: Seqno) -> bool {
        let head = self.head();
        let Some(cursor) = self.consumers.get_mut(consumer) else { return false };
        *cursor = (*cursor).max(to.min(head));
        true
    }

    pub(super) fn forget_consumer(&mut self, consumer: &str) {
        self.consumers.remove(consumer);
    }
}

impl Entry {
    fn new(commit: &Commit, seqno: Seqno, writer: [i64; 3]) -> Self {
        let mut ops = Vec::new();
        commit.ops.iter().for_each(|op: &OpRecord| append_to_log_page(&mut ops, op));
        Self { seqno, ops, keys: changed_keys::encode(changed_keys::of(commit)), writer }
    }
}

/// Applies a commit with this number. Returns whether its conditions hold.
fn commit_at(engine: &MemoryEngine, commit: &Commit, at: Seqno) -> Result<bool, Failure> {
    // A run that is not added takes a number, like a commit of the group that has failed.
    while !commit.is_check() && engine.head().0 + 1 < at.0 {
        drop(engine.begin_run());
    }
    match engine.commit(commit.clone()) {
        Ok(_) => Ok(true),
        Err(CommitError::Conflict) => Ok(false),
        Err(CommitError::Engine(error)) => Err(Failure::Merge(error.to_string())),
    }
}
