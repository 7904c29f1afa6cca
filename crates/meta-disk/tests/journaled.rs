//! Engines with a journal: the tables contain only what is in the journal or in a checkpoint.

use crate::fixture::{copy_files, options, put, table};
use meta::{Engine, Rows};
use meta_disk::{DiskEngine, EngineOptions, Journal, Records};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use store::Entropy;

on_each_layer! {
    s157_after_a_loss_of_power_the_tables_follow_the_journal
    records_of_a_killed_process_are_applied_when_the_engine_is_reopened
    s447_the_replay_ends_before_a_missing_record_and_only_with_ends_at_gap
    s520_after_a_failed_sync_commits_are_refused_until_the_engine_is_opened_again
}

/// A journal in memory: records, the number of synced records, and whether syncs fail.
#[derive(Debug, Default)]
pub(crate) struct MemoryJournal(Mutex<(Records, usize)>, AtomicBool);

impl MemoryJournal {
    fn fail_syncs(&self, fail: bool) {
        self.1.store(fail, Ordering::Release);
    }

    fn records(&self) -> Records {
        self.0.lock().unwrap().0.clone()
    }

    /// Returns the records that a crash leaves, at least the synced ones, and the number of the last record.
    fn after_a_crash(&self, entropy: &Entropy) -> (Records, u64) {
        let (records, synced) = &*self.0.lock().unwrap();
        let more = entropy.below((records.len() - synced) as u64 + 1) as usize;
        let records = records[..synced + more].to_vec();
        let last = records.last().map_or(0, |(number, _)| *number);
        (records, last)
    }
}

impl Journal for MemoryJournal {
    fn append(&self, number: u64, record: Vec<u8>) -> std::io::Result<()> {
        self.0.lock().unwrap().0.push((number, record));
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        if self.1.load(Ordering::Acquire) {
            return Err(std::io::Error::other("injected"));
        }
        let mut state = self.0.lock().unwrap();
        state.1 = state.0.len();
        Ok(())
    }

    fn forget(&self, up_to: u64) -> std::io::Result<()> {
        let mut state = self.0.lock().unwrap();
        let before = state.0.len();
        state.0.retain(|(number, _)| *number > up_to);
        state.1 -= before - state.0.len();
        Ok(())
    }
}

fn open(path: &Path, journal: &Arc<MemoryJournal>, records: Records) -> DiskEngine {
    DiskEngine::open_journaled(path, options(), journal.clone(), records).unwrap()
}

/// After a loss of power at any moment, the tables have the state after a prefix of the journal.
fn s157_after_a_loss_of_power_the_tables_follow_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let entropy = Entropy::new(5);
    let live = folder.path().join("live");
    let journal = Arc::new(MemoryJournal::default());
    let engine = open(&live, &journal, Vec::new());
    // The tables after each record.
    let mut states: Vec<Rows> = vec![table(&engine)];
    for round in 0..120 {
        engine.commit(put(&format!("key {}", entropy.below(20)), &format!("{round}"))).unwrap();
        states.push(table(&engine));
        match entropy.below(10) {
            0 => engine.checkpoint().unwrap(),
            1 | 2 => engine.sync().unwrap(),
            _ => {}
        }
        if round % 4 == 0 {
            let after = folder.path().join(round.to_string());
            copy_files(&live, &after);
            let (records, last) = journal.after_a_crash(&entropy);
            let restored = open(&after, &Arc::default(), records);
            let (found, head) = (table(&restored), restored.head().0 as usize);
            assert_eq!(found, states[head], "round {round}");
            // The first record initialised the engine.
            assert!(head as u64 + 1 == last || last == 0, "round {round}: {head} is not {last}");
        }
    }
}

fn records_of_a_killed_process_are_applied_when_the_engine_is_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let (live, after) = (folder.path().join("live"), folder.path().join("after"));
    let journal = Arc::new(MemoryJournal::default());
    let engine = open(&live, &journal, Vec::new());
    for number in 0..50 {
        engine.commit(put(&format!("key {number}"), "x")).unwrap();
    }
    copy_files(&live, &after);
    let records = journal.records();
    let restored = open(&after, &journal, records);
    assert_eq!(table(&restored), table(&engine));
    assert_eq!(journal.0.lock().unwrap().0, [], "opening makes the tables durable");
    drop(restored);
    let plain = DiskEngine::open(&after, options()).unwrap();
    assert_eq!(table(&plain), table(&engine));
    plain.commit(put("more", "x")).unwrap();
    drop(plain);
    let again = open(&after, &journal, Vec::new());
    assert_eq!(again.head().0, 51);
}

/// A missing record was skipped, and the records after it were applied to tables in a state for which they were not made.
fn s447_the_replay_ends_before_a_missing_record_and_only_with_ends_at_gap() {
    let folder = tempfile::tempdir().unwrap();
    let (live, after) = (folder.path().join("live"), folder.path().join("after"));
    let journal = Arc::new(MemoryJournal::default());
    let engine = open(&live, &journal, Vec::new());
    let mut states = vec![table(&engine)];
    for number in 0..9 {
        engine.commit(put(&format!("key {number}"), "x")).unwrap();
        states.push(table(&engine));
    }
    copy_files(&live, &after);
    let mut records = journal.0.lock().unwrap().0.clone();
    let (lost, _) = records.remove(5);
    let open_damaged = |ends_at_gap, records| {
        let options = EngineOptions { ends_at_gap, ..options() };
        DiskEngine::open_journaled(&after, options, journal.clone(), records)
    };
    let refused = open_damaged(false, records.clone()).unwrap_err().to_string();
    assert!(refused.contains(&format!("records {lost} to {lost}")), "{refused}");
    let accepted = open_damaged(true, records).unwrap();
    // The first record initialised the engine.
    let before = &states[lost as usize - 2];
    assert_eq!(table(&accepted), *before);
    assert_eq!(journal.0.lock().unwrap().0, [], "no record after the gap is kept");
    accepted.commit(put("more", "x")).unwrap();
    let (all, records) = (table(&accepted), journal.0.lock().unwrap().0.clone());
    drop(accepted);
    assert_eq!(table(&open_damaged(false, records).unwrap()), all);
}

/// After a failed fsync the kernel may have dropped the written bytes, so no later commit can become durable. The engine reported the
/// failure only to the next fsync, and continued to accept commits for days.
fn s520_after_a_failed_sync_commits_are_refused_until_the_engine_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let engine = open(folder.path(), &journal, Vec::new());
    engine.commit(put("before", "x")).unwrap();
    journal.fail_syncs(true);
    engine.sync().unwrap_err();
    let refused = engine.commit(put("after", "x")).unwrap_err();
    assert!(refused.to_string().contains("mount it again"), "{refused}");
    assert!(engine.failure().unwrap().to_string().contains("mount it again"));
    journal.fail_syncs(false);
    engine.sync().unwrap_err();
    assert_eq!(engine.head().0, 1);
    drop(engine);

    let records = journal.records();
    let again = open(folder.path(), &journal, records);
    assert_eq!(again.head().0, 1);
    again.commit(put("after", "x")).unwrap();
    again.sync().unwrap();
}
