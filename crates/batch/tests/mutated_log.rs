//! Batches with logs and read sets whose bytes are mutated, with right checksums.
//!
//! A mutant that is accepted is another batch of the same user: what it changes is the effect of the logged ops, each of which the user may
//! carry out. `TENON_MUTANTS` is the number of mutants of each class.

use crate::fixture::{assert_permitted, commit_op, context, create, name, values};
use crate::forged_rows::mutants;
use crate::hostile::{Original, read_rows, write_page, write_rows};
use batch::{MergeError, Merged, Proof};
use meta::codec::append_to_log_page;
use meta::{Effect, Kind, MemoryEngine, OpRecord, Reader, Refreshed};
use store::Entropy;

/// Mutants of each original.
const MUTANTS_EACH: usize = 50;

/// Outcomes of the mutants of a class.
#[derive(Debug, Default)]
struct Outcomes {
    rejected: usize,
    refused: usize,
    accepted: usize,
}

impl Outcomes {
    /// Judges the merge of a mutant.
    fn judge(
        &mut self,
        before: &MemoryEngine,
        (engine, merged): &(MemoryEngine, Result<Merged, MergeError>),
        what: &str,
    ) {
        match merged {
            Err(MergeError::Rejected(_)) => {
                assert_eq!(values(engine), values(before), "{what}");
                self.rejected += 1;
                return;
            }
            Err(error) => panic!("{what}: {error}"),
            Ok(merged) if merged.refused.is_empty() => self.accepted += 1,
            Ok(_) => self.refused += 1,
        }
        assert_permitted(before, engine, what);
    }
}

/// Changes some bytes, or removes, repeats or exchanges ranges of bytes.
fn mutate(entropy: &Entropy, page: &mut Vec<u8>) {
    let place = |page: &[u8]| entropy.below(page.len() as u64) as usize;
    match entropy.below(8) {
        0 => page.truncate(place(page)),
        1 => {
            let (from, len) = (place(page), entropy.below(40) as usize);
            page.drain(from..(from + len).min(page.len()));
        }
        2 => {
            let (from, to, len) = (place(page), place(page), entropy.below(40) as usize);
            let copied = page[from..(from + len).min(page.len())].to_vec();
            page.splice(to..to, copied);
        }
        // A number of 8 bytes, with the values at which lengths and counts overflow.
        3 => {
            let numbers = [0, 1, u64::from(u32::MAX), 1 << 32, i64::MAX as u64, u64::MAX];
            let number = numbers[entropy.below(6) as usize].to_le_bytes();
            let from = place(page);
            let len = number.len().min(page.len() - from);
            page[from..from + len].copy_from_slice(&number[..len]);
        }
        _ => {
            for _ in 0..=entropy.below(3) {
                let at = place(page);
                page[at] = page[at].wrapping_add(1 + entropy.below(255) as u8);
            }
        }
    }
}

fn page_of(original: &Original) -> Vec<u8> {
    let mut page = Vec::new();
    for (context, op) in &original.ops {
        let effect = Effect { refreshed: Refreshed::Content, ..Effect::default() };
        append_to_log_page(&mut page, &OpRecord { context: *context, op: op.clone(), effect });
    }
    page
}

/// Any bytes of the ops, under a right checksum, with both proofs.
#[test]
fn mutated_ops_are_the_users_or_rejected() {
    let mut outcomes = Outcomes::default();
    for seed in 0..mutants().div_ceil(MUTANTS_EACH) as u64 {
        let original = Original::new(1000 + seed);
        let (_, merged) = original.merge(&original.ops, &original.rows, Proof::Replay);
        assert_eq!(merged.unwrap().accepted as usize, original.ops.len(), "the original is accepted");
        let (entropy, page) = (Entropy::new(seed), page_of(&original));
        for _ in 0..MUTANTS_EACH {
            let mut mutant = page.clone();
            mutate(&entropy, &mut mutant);
            for proof in [Proof::Replay, Proof::Reduced] {
                let merged = original.merge_files(&original.volume.engine, proof, |dir| {
                    write_page(&dir.join("ops"), &mutant);
                });
                outcomes.judge(&original.volume.engine, &merged, "mutated ops");
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.rejected > 0 && outcomes.refused > 0 && outcomes.accepted > 0, "{outcomes:?}");
}

/// A read set that claims what the job has not seen: others have changed the directories meanwhile.
#[test]
fn forged_reads_prove_nothing() {
    let mut outcomes = Outcomes::default();
    for seed in 0..mutants().div_ceil(MUTANTS_EACH) as u64 {
        let original = Original::new(2000 + seed);
        let changed = original.volume.engine.fork();
        let inos = original.volume.namespace.allocate(original.volume.home, 4);
        for (text, ino) in ["taken", "a", "b", "c"].into_iter().zip(inos) {
            let theirs = create(0, original.volume.home, text, ino, Kind::File, 0o600);
            commit_op(&changed, &context(0, 90), &theirs).unwrap();
        }
        let reads = read_rows(&original.batch.join("reads.sst"));
        let entropy = Entropy::new(seed);
        for _ in 0..MUTANTS_EACH {
            let mut mutant = reads.clone();
            for (key, version) in &mut mutant {
                // The version that the record has by now, that it had, or any other.
                match entropy.below(4) {
                    0 => *version = vec![entropy.below(256) as u8; 8],
                    1 => version.clear(),
                    2 => {}
                    _ => {
                        let now = changed.get(key).unwrap();
                        *version = now.map(|now| now.version.0.to_be_bytes().to_vec()).unwrap_or_default();
                    }
                }
            }
            mutant.retain(|_| entropy.below(8) > 0);
            for proof in [Proof::Replay, Proof::Reduced] {
                let merged =
                    original.merge_files(&changed, proof, |dir| write_rows(&dir.join("reads.sst"), &mutant));
                outcomes.judge(&changed, &merged, "a forged read set");
                let entry = |engine: &MemoryEngine| {
                    engine.get(&meta::schema::dentry(original.volume.home, &name("taken"))).unwrap()
                };
                assert_eq!(entry(&merged.0).unwrap().value, entry(&changed).unwrap().value);
            }
        }
    }
    println!("{outcomes:?}");
    assert!(outcomes.rejected + outcomes.refused > 0, "{outcomes:?}");
}
