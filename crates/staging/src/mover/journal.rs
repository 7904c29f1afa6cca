//! The journal of moves on disk: steps appended to one file, in frames of steps that take effect together.
//!
//! A frame is: length of the steps (4 bytes), CRC-32C of the steps (4), steps; numbers are little-endian.
//! `docs/format.md` describes the fields. Invariants: a frame counts as a whole or not at all; the file holds no more
//! than about twice the unfinished moves; a damaged file is never truncated but kept under another name.
//!
//! Frames after a damaged one are replayed. A lost rename leaves its object under the old name. A lost `Done` step
//! makes its move run once more. Later steps of a move whose `Begin` step is lost are ignored, and a move that finds
//! another object at its target is a conflict. So no object is overwritten because of lost steps.

use super::moves::{Move, Moves, Step, Target};
use crate::log_encoding::{Crc, Decoder, Encoder};
use crate::medium;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use store::{ETag, hold};

const FRAME_BYTES: usize = 8;
/// Smallest file that is rewritten, in bytes.
const COMPACTED_BYTES_MIN: u64 = 1 << 20;

/// The journal file.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    /// Bytes appended by this process, and how many of them survive the loss of power.
    appended: u64,
    synced: u64,
    /// Length of the file after it was last rewritten.
    compacted: u64,
}

impl Journal {
    /// Opens the file, or creates it, and returns its unfinished moves. An incomplete frame at the end is dropped,
    /// because it was never acknowledged.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Moves)> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        hold(&file)?;
        let (bytes, is_unreadable) = medium::read_file(&file)?;
        let mut moves = Moves::default();
        let found = replay(&bytes, &mut moves)?;
        let end = found.end as u64;
        let mut journal = Self { path: path.to_owned(), file, end, appended: 0, synced: 0, compacted: 0 };
        if is_unreadable || !found.damaged.is_empty() {
            let kept = medium::unused(path, "damaged");
            let (path, damaged) = (path.display(), &found.damaged);
            tracing::error!(%path, ?damaged, kept = %kept.display(),
                "the journal of moves is damaged: renames in these ranges are lost, their objects have their old names, and the damaged file is kept");
            fs::hard_link(&journal.path, &kept)?;
            journal.rewrite(&moves)?;
        } else if end < bytes.len() as u64 {
            tracing::warn!(path = %path.display(), end, "the journal of moves ends in an incomplete frame, which is removed");
            journal.file.set_len(end)?;
        }
        // An earlier process may have ended without a sync.
        journal.file.sync_all()?;
        Ok((journal, moves))
    }

    /// Appends steps as one frame.
    pub(super) fn append(&mut self, steps: &[Step]) -> io::Result<()> {
        let frame = encode(steps);
        if let Err(error) = self.file.write_all_at(&frame, self.end) {
            // An incomplete frame would hide the frames after it.
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += frame.len() as u64;
        self.appended += frame.len() as u64;
        Ok(())
    }

    /// Removes what was appended after `end` and never acknowledged.
    pub(super) fn truncate_to(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        self.appended -= self.end - end;
        self.synced = self.synced.min(self.appended);
        self.end = end;
        Ok(())
    }

    /// Returns the offset of the next frame.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many bytes of the file survive the loss of power, as far as this process knows.
    pub(super) fn synced_bytes(&self) -> u64 {
        self.end.saturating_sub(self.appended - self.synced)
    }

    /// Returns the number of bytes appended by this process.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns a handle to sync the file with, if anything appended is not synced.
    pub(super) fn file_to_sync(&self) -> io::Result<Option<File>> {
        if self.synced < self.appended { self.file.try_clone().map(Some) } else { Ok(None) }
    }

    /// Marks the first `appended` bytes that this process appended as synced.
    pub(super) fn mark_synced(&mut self, appended: u64) {
        self.synced = self.synced.max(appended);
    }

    /// Rewrites the file with the unfinished moves if they are the smaller part of it. It is not rewritten while any
    /// move may find a duplicate: only earlier steps, which a rewrite drops, say which moves these are.
    pub(super) fn compact(&mut self, moves: &Moves) -> io::Result<()> {
        if self.end < COMPACTED_BYTES_MIN.max(2 * self.compacted) || moves.has_possible_duplicates() {
            return Ok(());
        }
        self.rewrite(moves)
    }

    fn rewrite(&mut self, moves: &Moves) -> io::Result<()> {
        let begin = |(number, mv): (u64, &Move)| Step::Begin { number, mv: mv.clone() };
        let frame = encode(&moves.all().map(begin).collect::<Vec<_>>());
        let new = self.path.with_extension("new");
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&new)?;
        hold(&file)?;
        file.write_all_at(&frame, 0)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        let end = frame.len() as u64;
        (self.file, self.end, self.synced, self.compacted) = (file, end, self.appended, end);
        Ok(())
    }
}

/// Findings of a replay besides the frames.
struct ReplayedFrames {
    /// End of the last whole frame.
    end: usize,
    /// Damaged ranges. An incomplete frame at the end is not counted.
    damaged: Vec<Range<usize>>,
}

/// Applies every whole frame to `moves`.
fn replay(bytes: &[u8], moves: &mut Moves) -> io::Result<ReplayedFrames> {
    let (mut at, mut damaged) = (0, Vec::new());
    while at < bytes.len() {
        if let Some(payload) = frame_at(&bytes[at..]) {
            let newer = || {
                io::Error::new(
                    ErrorKind::InvalidData,
                    "the journal of moves was written by a newer version of Tenon",
                )
            };
            decode(payload).ok_or_else(newer)?.into_iter().for_each(|step| moves.apply(step));
            at += FRAME_BYTES + payload.len();
            continue;
        }
        match next_frame(bytes, at) {
            Some(next) => {
                damaged.push(at..next);
                at = next;
            }
            None if is_torn(&bytes[at..]) => break,
            None => {
                damaged.push(at..bytes.len());
                break;
            }
        }
    }
    Ok(ReplayedFrames { end: at, damaged })
}

/// Returns where the next whole frame begins after a damaged one: at the end that the damaged frame claims, or at the
/// first frame found behind it.
fn next_frame(bytes: &[u8], at: usize) -> Option<usize> {
    let is_frame =
        |next: &usize| bytes.get(*next..).and_then(frame_at).is_some_and(|payload| decode(payload).is_some());
    let claimed = claimed_len(&bytes[at..]).map(|len| at.saturating_add(FRAME_BYTES).saturating_add(len));
    claimed.filter(is_frame).or_else(|| (at + 1..bytes.len()).find(is_frame))
}

/// Returns whether the bytes at the end of a file are an incomplete frame.
fn is_torn(bytes: &[u8]) -> bool {
    let is_cut = claimed_len(bytes).is_none_or(|len| bytes.len() < FRAME_BYTES + len);
    is_cut || bytes.iter().all(|byte| *byte == 0)
}

/// Returns the length of steps that a frame claims.
fn claimed_len(bytes: &[u8]) -> Option<usize> {
    let len = bytes.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*len) as usize)
}

/// Returns the steps of the frame that begins here, if it is whole.
fn frame_at(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_BYTES>()?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let payload = rest.get(..len).filter(|_| len > 0)?;
    let mut crc = Crc::default();
    crc.add(payload);
    (crc.sum().to_le_bytes() == head[4..]).then_some(payload)
}

fn encode(steps: &[Step]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    encoder.number(steps.len() as u64);
    steps.iter().for_each(|step| encoder.step(step));
    let mut crc = Crc::default();
    crc.add(&encoder.0);
    [&(encoder.0.len() as u32).to_le_bytes()[..], &crc.sum().to_le_bytes(), &encoder.0].concat()
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
        let found = replay(bytes, &mut moves).ok()?;
        assert!(found.end <= bytes.len() && found.damaged.iter().all(|range| range.end <= bytes.len()));
        Some(moves)
    };
    let begins = |moves: &Moves| -> Vec<Step> {
        moves.all().map(|(number, mv)| Step::Begin { number, mv: mv.clone() }).collect()
    };
    let mut crc = Crc::default();
    crc.add(bytes);
    let framed = [&(bytes.len() as u32).to_le_bytes()[..], &crc.sum().to_le_bytes(), bytes].concat();
    let torn = [&framed, bytes, &framed].concat();
    for file in [bytes, framed.as_slice(), torn.as_slice()] {
        if let Some(moves) = moves_of(file) {
            let kept = begins(&moves);
            let again = moves_of(&encode(&kept)).map(|again| begins(&again));
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
            _ => None,
        }
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
    use store::{ObjectKey, Precondition};

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
        let (mut journal, mut moves) = Journal::open(&path).unwrap();
        for (from, to) in [("a", "b"), ("b", "c"), ("x", "y")] {
            let steps = renamed(&moves, from, to);
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
        }
        let tree = moves.plan_rename_tree(b"d/", b"e/");
        journal.append(&tree).unwrap();
        tree.into_iter().for_each(|step| moves.apply(step));
        drop(journal);
        let all: Vec<_> = moves.all().map(|(number, mv)| (number, mv.clone())).collect();
        let found = |moves: &Moves| moves.all().map(|(number, mv)| (number, mv.clone())).collect::<Vec<_>>();
        assert_eq!(found(&Journal::open(&path).unwrap().1), all);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let (mut journal, moves) = Journal::open(&path).unwrap();
        assert_eq!(found(&moves), all[..all.len() - 1]);
        journal.append(&[Step::Done { number: 0 }]).unwrap();
        drop(journal);
        assert_eq!(found(&Journal::open(&path).unwrap().1), all[1..all.len() - 1]);
    }

    /// After a failed rename the journal counted synced bytes as unsynced.
    #[test]
    fn truncated_frames_need_no_sync() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, moves) = Journal::open(&dir.path().join("moves")).unwrap();
        let steps = renamed(&moves, "a", "b");
        journal.append(&steps).unwrap();
        journal.mark_synced(journal.appended());
        let end = journal.end();
        for is_synced in [false, true] {
            journal.append(&steps).unwrap();
            if is_synced {
                journal.mark_synced(journal.appended());
            }
            journal.truncate_to(end).unwrap();
            assert_eq!(journal.synced_bytes(), end);
            assert!(journal.file_to_sync().unwrap().is_none());
        }
        journal.append(&steps).unwrap();
        assert_eq!(journal.synced_bytes(), end);
    }

    /// A flipped byte in the middle of the journal cut off every later rename, and their objects had their old names
    /// again.
    #[test]
    fn s446_one_flipped_byte_costs_one_rename_and_the_damaged_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves) = Journal::open(&path).unwrap();
        for round in 0..5 {
            let steps = renamed(&moves, &format!("from{round}"), &format!("to{round}"));
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
        }
        drop(journal);
        let whole = fs::read(&path).unwrap();
        let all: Vec<_> = moves.all().map(|(number, mv)| (number, mv.clone())).collect();
        let last_frame = whole.len() / 5 * 4;
        for at in 0..whole.len() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("moves");
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let (journal, moves) = Journal::open(&path).unwrap();
            let found: Vec<_> = moves.all().map(|(number, mv)| (number, mv.clone())).collect();
            assert!(found.len() == 4 && found.iter().all(|one| all.contains(one)), "byte {at}: {found:?}");
            let kept = fs::read(path.with_extension("damaged"));
            // A damaged length in the last frame looks like an incomplete frame.
            assert!(
                kept.is_ok_and(|kept| kept == bytes) || (last_frame..last_frame + 4).contains(&at),
                "{at}"
            );
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1.len(), 4);
        }
    }

    /// A copy of unknown outcome was taken for another client's object after the journal had been rewritten.
    #[test]
    fn possible_duplicates_survive_a_rewrite_of_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves) = Journal::open(&path).unwrap();
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
        let (_, reopened) = Journal::open(&path).unwrap();
        assert!(reopened.may_be_duplicate(duplicate));
    }

    #[test]
    fn a_journal_of_completed_moves_is_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves) = Journal::open(&path).unwrap();
        for round in 0..20_000 {
            let steps = renamed(&moves, &format!("from{round}"), &format!("to{round}"));
            let done = Step::Done { number: round };
            for step in [steps, vec![done]] {
                journal.append(&step).unwrap();
                step.into_iter().for_each(|step| moves.apply(step));
            }
            journal.compact(&moves).unwrap();
        }
        assert!(journal.end() < 2 * COMPACTED_BYTES_MIN);
        drop(journal);
        let (_, reopened) = Journal::open(&path).unwrap();
        assert_eq!(reopened.len(), 0);
        let numbers = |steps: Vec<Step>| matches!(steps[0], Step::Begin { number: 20_000.., .. });
        assert!(numbers(renamed(&moves, "a", "b")));
    }
}
