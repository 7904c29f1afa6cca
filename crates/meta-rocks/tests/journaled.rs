//! An engine behind a journal: what is in neither the journal nor a checkpoint is in no table.

use crate::fixture::{image, options, put, table};
use meta::{Engine, Rows};
use meta_rocks::{Journal, Records, RocksEngine};
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::Entropy;

/// Records in memory, and how many of them were synced.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<(Records, usize)>);

impl Kept {
    /// What a crash leaves: at least what was synced.
    fn after_a_crash(&self, entropy: &Entropy) -> (Records, u64) {
        let (records, synced) = &*self.0.lock().unwrap();
        let more = entropy.below((records.len() - synced) as u64 + 1) as usize;
        let records = records[..synced + more].to_vec();
        let last = records.last().map_or(0, |(number, _)| *number);
        (records, last)
    }
}

impl Journal for Kept {
    fn append(&self, number: u64, record: Vec<u8>) -> std::io::Result<()> {
        self.0.lock().unwrap().0.push((number, record));
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        let mut kept = self.0.lock().unwrap();
        kept.1 = kept.0.len();
        Ok(())
    }

    fn forget(&self, up_to: u64) -> std::io::Result<()> {
        let mut kept = self.0.lock().unwrap();
        let before = kept.0.len();
        kept.0.retain(|(number, _)| *number > up_to);
        kept.1 -= before - kept.0.len();
        Ok(())
    }
}

fn open(path: &Path, journal: &Arc<Kept>, records: Records) -> RocksEngine {
    RocksEngine::open_journaled(path, options(), journal.clone(), records).unwrap()
}

/// The power goes at any moment: the tables are what a prefix of the journal made, and no further.
#[test]
fn s157_after_a_loss_of_power_the_tables_follow_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let entropy = Entropy::new(5);
    let live = folder.path().join("live");
    let journal = Arc::new(Kept::default());
    let engine = open(&live, &journal, Vec::new());
    // What the tables were after each record.
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
            image(&live, &after);
            let (records, last) = journal.after_a_crash(&entropy);
            let restored = open(&after, &Arc::default(), records);
            let (found, head) = (table(&restored), restored.head().0 as usize);
            assert_eq!(found, states[head], "round {round}");
            // The first record made the engine.
            assert!(head as u64 + 1 == last || last == 0, "round {round}: {head} is not {last}");
        }
    }
}

#[test]
fn what_a_killed_process_appended_is_there_with_and_without_a_journal_again() {
    let folder = tempfile::tempdir().unwrap();
    let (live, after) = (folder.path().join("live"), folder.path().join("after"));
    let journal = Arc::new(Kept::default());
    let engine = open(&live, &journal, Vec::new());
    for number in 0..50 {
        engine.commit(put(&format!("key {number}"), "x")).unwrap();
    }
    image(&live, &after);
    let records = journal.0.lock().unwrap().0.clone();
    let restored = open(&after, &journal, records);
    assert_eq!(table(&restored), table(&engine));
    assert_eq!(journal.0.lock().unwrap().0, [], "opening has brought them to the disk");
    drop(restored);
    let plain = RocksEngine::open(&after, options()).unwrap();
    assert_eq!(table(&plain), table(&engine));
    plain.commit(put("more", "x")).unwrap();
    drop(plain);
    let again = open(&after, &journal, Vec::new());
    assert_eq!(again.head().0, 51);
}
