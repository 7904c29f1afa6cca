//! The journal of moves on disk: steps appended to one file, in frames of steps that take effect together.
//!
//! A frame holds the number of its steps, then the steps; `docs/format.md` describes their fields. Invariant: a file of
//! more than 1 MiB is at most about twice as long as when it was last rewritten with the unfinished moves only, except
//! while one of them may find a duplicate.
//!
//! Records after a damaged one are replayed. A lost rename leaves its object under the old name. A lost `Done` step
//! makes its move run once more. Later steps of a move whose `Begin` step is lost are ignored, and a move that finds
//! another object at its target is a conflict. So no object is overwritten because of lost steps.

use super::moves::{Move, Moves, Step, Target};
use crate::etag_aliases::EtagAliases;
use crate::log_encoding::{Decoder, Encoder};
use log::{FileLog, FileLogFormat, FrameReader, NextFrame, OpenedFileLog};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use store::{ETag, ObjectKey};

const FORMAT: FileLogFormat = FileLogFormat { name: "journal of moves", header: b"", is_locked: true };

/// The journal of moves, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) log: FileLog,
}

impl Journal {
    /// Opens the file, or creates it, and returns its unfinished moves and the etags of copied objects. An incomplete frame at the end is dropped,
    /// because it was never acknowledged. A damaged file is kept aside and replaced by one with the moves that could
    /// be read. Renames out of their order are an error.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Moves, EtagAliases)> {
        let OpenedFileLog { log, records, damage } = FileLog::open(path, FORMAT, decode)?;
        let (mut moves, mut aliases) = (Moves::default(), EtagAliases::default());
        for step in records.into_iter().flatten() {
            if !moves.is_in_order(&step) {
                let text = "the journal of moves has renames out of their order";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            match step {
                Step::Copied { to, issued, bucket } => aliases.remember(&to, issued, bucket),
                Step::Done { number } => {
                    let reached = moves.reached(number).map(<[u8]>::to_vec);
                    moves.apply(step);
                    if let Some(to) = reached {
                        // The etags of the move's objects were reported before it was done, except for objects that were renamed again.
                        aliases.report_changes(&to, |key, _, _| moves.owner(key.as_bytes()).is_none());
                    }
                }
                step => {
                    let begun = if let Step::Begin { number, .. } = &step { Some(*number) } else { None };
                    moves.replay(step);
                    if let Some(mv) = begun.and_then(|number| with_fresh_source(&moves, number)) {
                        // If the move has the etag of a copy, the copy was reported, even if damage has hidden that.
                        aliases.report_changes(&mv.from, |_, _, bucket| mv.etag.as_ref() == Some(bucket));
                    }
                }
            }
        }
        let mut journal = Self { log };
        if let Some(damage) = damage {
            tracing::error!(path = %path.display(), damaged = ?damage.ranges, kept = %damage.kept.display(),
                "the journal of moves is damaged: renames in these ranges are lost, their objects have their old names, and the damaged file is kept");
            journal.rewrite(&moves)?;
        }
        Ok((journal, moves, aliases))
    }

    /// Appends steps as one frame.
    pub(super) fn append(&mut self, steps: &[Step]) -> io::Result<()> {
        self.log.append(&encode(steps))
    }

    /// Rewrites the file with the unfinished moves if they are the smaller part of it. It is not rewritten while any
    /// move may find a duplicate: only earlier steps, which a rewrite drops, say which moves these are.
    pub(super) fn compact(&mut self, moves: &Moves) -> io::Result<()> {
        if !self.log.is_worth_rewriting() || moves.has_possible_duplicates() {
            return Ok(());
        }
        self.rewrite(moves)
    }

    fn rewrite(&mut self, moves: &Moves) -> io::Result<()> {
        self.log.rewrite([encode(&begins(moves)).as_slice()])
    }
}

/// Damages a frame of a journal that no unfinished move needs, for simulators: one whose moves have all ended later. Only the first
/// `synced_bytes` of the file are damaged, as damage behind them would count as a torn end. `pick` returns a number below its argument.
/// Returns a description of the damage; `None` if there is no such frame.
pub fn rot(path: &Path, synced_bytes: u64, mut pick: impl FnMut(u64) -> u64) -> io::Result<Option<String>> {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return Ok(None) };
    let mut reader = FrameReader::new(file.try_clone()?, FORMAT.header.len() as u64)?;
    let (mut moves, mut frames, mut at) = (Moves::default(), Vec::new(), reader.position());
    while let NextFrame::Frame(body) = reader.next()? {
        let steps = decode(body).unwrap_or_default();
        steps.iter().for_each(|step| moves.apply(step.clone()));
        frames.push((at, reader.position(), steps));
        at = reader.position();
    }
    let is_over = |step: &Step| match step {
        Step::Begin { number, .. } | Step::Retarget { number, .. } => moves.get(*number).is_none(),
        // The move would run once more, or its object would count as another client's.
        Step::Done { .. } | Step::Copied { .. } => false,
    };
    frames.retain(|(_, end, steps)| *end <= synced_bytes && steps.iter().all(is_over));
    if frames.is_empty() || moves.has_possible_duplicates() {
        return Ok(None);
    }
    let (begin, end, _) = frames.swap_remove(pick(frames.len() as u64) as usize);
    let at = begin + pick(end - begin);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ (1 << pick(8))], at)?;
    Ok(Some(format!("byte {at} of the journal of moves")))
}

/// Returns a move of an object that no other move is bringing to its source; `None` for a tree.
fn with_fresh_source(moves: &Moves, number: u64) -> Option<&Move> {
    let mv = moves.get(number).filter(|mv| !mv.is_tree && !moves.may_be_duplicate(number))?;
    moves.targeting(&mv.from).next().is_none().then_some(mv)
}

/// Returns the steps that begin all unfinished moves.
fn begins(moves: &Moves) -> Vec<Step> {
    moves.all().map(|(number, mv)| Step::Begin { number, mv: mv.clone() }).collect()
}

fn encode(steps: &[Step]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.number(steps.len() as u64);
    steps.iter().for_each(|step| encoder.step(step));
    encoder.0
}

fn decode(payload: &[u8]) -> Option<Vec<Step>> {
    let mut decoder = Decoder(payload);
    let count = decoder.number()?;
    let steps = (0..count).map(|_| decoder.step()).collect::<Option<_>>()?;
    decoder.0.is_empty().then_some(steps)
}

/// Replays a journal with any damage and checks that the replayed moves, written as a journal, replay to the same.
/// The bytes are read as a file, and as the steps of a frame with a valid checksum.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz(bytes: &[u8]) {
    let moves_of = |bytes: &[u8]| {
        let mut moves = Moves::default();
        let records = log::fuzz::file(bytes, FORMAT, decode)?;
        records.into_iter().flatten().for_each(|step| moves.apply(step));
        Some(moves)
    };
    let frame = |body: &[u8]| log::encode_frame(body).unwrap_or_default();
    let framed = if bytes.is_empty() { Vec::new() } else { frame(bytes) };
    let torn = [&framed, bytes, &framed].concat();
    for file in [bytes, framed.as_slice(), torn.as_slice()] {
        if let Some(moves) = moves_of(file) {
            let kept = begins(&moves);
            let again = moves_of(&frame(&encode(&kept))).map(|again| begins(&again));
            assert_eq!(again.as_ref(), Some(&kept));
        }
    }
}

impl Encoder {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Begin { number, mv } => {
                self.0.push(0);
                self.number(*number);
                self.0.push(u8::from(mv.is_tree));
                self.bytes(&mv.from);
                self.optional(mv.etag.as_ref().map(ETag::as_str));
                self.target(&mv.to);
            }
            Step::Retarget { number, to } => {
                self.0.push(1);
                self.number(*number);
                self.target(to);
            }
            Step::Done { number } => {
                self.0.push(2);
                self.number(*number);
            }
            Step::Copied { to, issued, bucket } => {
                self.0.push(3);
                self.bytes(to.as_bytes());
                self.bytes(issued.as_str().as_bytes());
                self.bytes(bucket.as_str().as_bytes());
            }
        }
    }

    fn target(&mut self, target: &Target) {
        match target {
            Target::Deleted => self.0.push(0),
            Target::Key(to, precondition) => {
                self.0.push(1);
                self.bytes(to);
                self.precondition(precondition);
            }
            Target::DeletedWithCopy(place) => {
                self.0.push(2);
                self.bytes(place);
            }
        }
    }
}

impl Decoder<'_> {
    fn step(&mut self) -> Option<Step> {
        match self.byte()? {
            0 => {
                let (number, is_tree) = (self.number()?, self.byte()? == 1);
                let from = self.bytes()?.to_vec();
                let etag = self.optional()?.map(|text| ETag::new(&text));
                Some(Step::Begin { number, mv: Move { from, is_tree, etag, to: self.target()? } })
            }
            1 => Some(Step::Retarget { number: self.number()?, to: self.target()? }),
            2 => Some(Step::Done { number: self.number()? }),
            3 => {
                let to = ObjectKey::new(self.bytes()?.to_vec()).ok()?;
                Some(Step::Copied { to, issued: self.etag()?, bucket: self.etag()? })
            }
            _ => None,
        }
    }

    fn etag(&mut self) -> Option<ETag> {
        std::str::from_utf8(self.bytes()?).ok().map(ETag::new)
    }

    fn target(&mut self) -> Option<Target> {
        match self.byte()? {
            0 => Some(Target::Deleted),
            1 => Some(Target::Key(self.bytes()?.to_vec(), self.precondition()?)),
            2 => Some(Target::DeletedWithCopy(self.bytes()?.to_vec())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use store::Precondition;

    fn renamed(moves: &Moves, from: &str, to: &str) -> Vec<Step> {
        let key = |text| ObjectKey::try_from(text).unwrap();
        let from: Vec<_> =
            moves.candidates(&key(from)).into_iter().map(|candidate| (ETag::new("e"), candidate)).collect();
        moves.plan_rename(&from, &key(to), &Precondition::Matches(ETag::new("t")))
    }

    #[test]
    fn appended_frames_are_replayed_and_an_incomplete_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves, _) = Journal::open(&path).unwrap();
        for (from, to) in [("a", "b"), ("b", "c"), ("x", "y")] {
            let steps = renamed(&moves, from, to);
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
        }
        let tree = moves.plan_rename_tree(b"d/", b"e/", &Precondition::Absent);
        journal.append(&tree).unwrap();
        tree.into_iter().for_each(|step| moves.apply(step));
        drop(journal);
        let all: Vec<_> = moves.all().map(|(number, mv)| (number, mv.clone())).collect();
        let found = |moves: &Moves| moves.all().map(|(number, mv)| (number, mv.clone())).collect::<Vec<_>>();
        assert_eq!(found(&Journal::open(&path).unwrap().1), all);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let (mut journal, moves, _) = Journal::open(&path).unwrap();
        assert_eq!(found(&moves), all[..all.len() - 1]);
        journal.append(&[Step::Done { number: 0 }]).unwrap();
        drop(journal);
        assert_eq!(found(&Journal::open(&path).unwrap().1), all[1..all.len() - 1]);
    }

    /// After a failed rename the journal counted synced bytes as unsynced.
    #[test]
    fn truncated_frames_need_no_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, moves, _) = Journal::open(&dir.path().join("moves")).unwrap();
        let steps = renamed(&moves, "a", "b");
        journal.append(&steps).unwrap();
        journal.log.mark_synced(journal.log.appended());
        let end = journal.log.end();
        for is_synced in [false, true] {
            journal.append(&steps).unwrap();
            if is_synced {
                journal.log.mark_synced(journal.log.appended());
            }
            journal.log.truncate_to(end).unwrap();
            assert_eq!(journal.log.synced_bytes(), end);
            assert!(journal.log.file_to_sync().unwrap().is_none());
        }
        journal.append(&steps).unwrap();
        assert_eq!(journal.log.synced_bytes(), end);
    }

    /// A flipped byte in the middle of the journal cut off every later rename, and their objects had their old names
    /// again. In the length of the last frame it did so without a copy, even after a sync.
    #[test]
    fn s446_one_flipped_byte_costs_one_rename_and_the_damaged_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves, _) = Journal::open(&path).unwrap();
        for round in 0..5 {
            let steps = renamed(&moves, &format!("from{round}"), &format!("to{round}"));
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
        }
        journal.log.mark_synced(journal.log.appended());
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let mark = fs::read(path.with_extension("synced")).unwrap();
        let all = begins(&moves);
        for at in 0..whole.len() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("moves");
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            fs::write(path.with_extension("synced"), &mark).unwrap();
            let (journal, moves, _) = Journal::open(&path).unwrap();
            let found = begins(&moves);
            assert!(found.len() == 4 && found.iter().all(|one| all.contains(one)), "byte {at}: {found:?}");
            assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), bytes, "byte {at}");
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1.len(), 4);
        }
    }

    /// A copy of unknown outcome was taken for another client's object after the journal had been rewritten.
    #[test]
    fn possible_duplicates_survive_a_rewrite_of_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves, _) = Journal::open(&path).unwrap();
        let take = |steps: Vec<Step>, journal: &mut Journal, moves: &mut Moves| {
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
            journal.compact(moves).unwrap();
        };
        take(renamed(&moves, "a", "b"), &mut journal, &mut moves);
        take(renamed(&moves, "b", "c"), &mut journal, &mut moves);
        let duplicate =
            moves.all().map(|(number, _)| number).find(|number| moves.may_be_duplicate(*number)).unwrap();
        take(vec![Step::Done { number: 0 }], &mut journal, &mut moves);
        for round in 0..20_000 {
            let number = moves.next_number();
            take(renamed(&moves, &format!("from{round}"), &format!("to{round}")), &mut journal, &mut moves);
            take(vec![Step::Done { number }], &mut journal, &mut moves);
        }
        drop(journal);
        let (_, reopened, _) = Journal::open(&path).unwrap();
        assert!(reopened.may_be_duplicate(duplicate));
    }

    #[test]
    fn a_journal_of_completed_moves_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves, _) = Journal::open(&path).unwrap();
        for round in 0..20_000 {
            let steps = renamed(&moves, &format!("from{round}"), &format!("to{round}"));
            let done = Step::Done { number: round };
            for step in [steps, vec![done]] {
                journal.append(&step).unwrap();
                step.into_iter().for_each(|step| moves.apply(step));
            }
            journal.compact(&moves).unwrap();
        }
        assert!(journal.log.end() < 2 << 20);
        drop(journal);
        let (_, reopened, _) = Journal::open(&path).unwrap();
        assert_eq!(reopened.len(), 0);
        let numbers = |steps: Vec<Step>| matches!(steps[0], Step::Begin { number: 20_000.., .. });
        assert!(numbers(renamed(&moves, "a", "b")));
    }
}
