//! What moves, on disk: steps appended to one file, in frames that belong together.
//!
//! A frame is: length of the steps (4 bytes), CRC-32C of them (4), steps; numbers little-endian. `docs/format.md` has the
//! fields. Invariants: a frame counts whole or not at all; the file holds no more than twice what is on its way, and
//! some; a damaged file is never truncated but kept under another name.
//!
//! Frames after a damaged one count. A lost rename leaves its object under the old name, and a lost end of a move is found out
//! again; later steps of a move whose beginning is lost are ignored, and a move that finds another object at its target is a
//! conflict. So nothing is stored over what the lost steps were about.

use super::moves::{Move, Moves, Step, Target};
use crate::wire::{Crc, Sink, Source};
use crate::{ETag, hold, medium};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const FRAME_BYTES: usize = 8;
/// A shorter file is not written anew.
const COMPACTED_BYTES_MIN: u64 = 1 << 20;

/// The file, open at its end.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    /// Bytes ever appended here, and how many of them survive the loss of power.
    appended: u64,
    synced: u64,
    /// Its length when it was written anew.
    compacted: u64,
}

impl Journal {
    /// Opens the file, made if it is missing; what it says is on its way. Half a frame at the end was promised to nobody.
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
                "the journal of moves is damaged: renames in these ranges are lost, and their objects have their old names");
            fs::hard_link(&journal.path, &kept)?;
            journal.rewrite(&moves)?;
        } else if end < bytes.len() as u64 {
            tracing::warn!(path = %path.display(), end, "the journal of moves ends in half a step");
            journal.file.set_len(end)?;
        }
        // A process that ended need not have synced what it appended.
        journal.file.sync_all()?;
        Ok((journal, moves))
    }

    /// Appends steps that belong together.
    pub(super) fn append(&mut self, steps: &[Step]) -> io::Result<()> {
        let frame = encode(steps);
        if let Err(error) = self.file.write_all_at(&frame, self.end) {
            // Half a frame would hide what comes after it.
            self.file.set_len(self.end)?;
            return Err(error);
        }
        self.end += frame.len() as u64;
        self.appended += frame.len() as u64;
        Ok(())
    }

    /// Takes back what was appended after `end`, which nobody was told of.
    pub(super) fn cut(&mut self, end: u64) -> io::Result<()> {
        self.file.set_len(end)?;
        self.appended -= self.end - end;
        self.synced = self.synced.min(self.appended);
        self.end = end;
        Ok(())
    }

    /// Where the next frame goes.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes of the file survive the loss of power, as far as this process knows.
    pub(super) fn synced_bytes(&self) -> u64 {
        self.end.saturating_sub(self.appended - self.synced)
    }

    /// Bytes ever appended here.
    pub(super) fn appended(&self) -> u64 {
        self.appended
    }

    /// A handle to sync with, where something was appended since.
    pub(super) fn unsynced(&self) -> io::Result<Option<File>> {
        if self.synced < self.appended { self.file.try_clone().map(Some) } else { Ok(None) }
    }

    /// What was appended up to there survives the loss of power.
    pub(super) fn has_synced(&mut self, appended: u64) {
        self.synced = self.synced.max(appended);
    }

    /// Writes what is on its way anew where most of the file is not any more. Which moves take what may be a copy only the
    /// moves before them tell: those are kept until that is settled.
    pub(super) fn compact(&mut self, moves: &Moves) -> io::Result<()> {
        if self.end < COMPACTED_BYTES_MIN.max(2 * self.compacted) || moves.has_doubles() {
            return Ok(());
        }
        self.rewrite(moves)
    }

    fn rewrite(&mut self, moves: &Moves) -> io::Result<()> {
        let begin = |(number, one): (u64, &Move)| Step::Begin { number, one: one.clone() };
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

/// What a file holds besides whole frames.
struct Replayed {
    /// Where the last whole frame ends.
    end: usize,
    /// Ranges that are not as they were written. Half a frame at the end is none.
    damaged: Vec<Range<usize>>,
}

/// Applies every whole frame.
fn replay(bytes: &[u8], moves: &mut Moves) -> io::Result<Replayed> {
    let (mut at, mut damaged) = (0, Vec::new());
    while at < bytes.len() {
        if let Some(payload) = frame_at(&bytes[at..]) {
            let newer = || {
                io::Error::new(ErrorKind::InvalidData, "the journal of moves was written by a newer Tenon")
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
    Ok(Replayed { end: at, damaged })
}

/// Where the next whole frame begins after a damaged one: where the damaged one says that it ends, or behind.
fn next_frame(bytes: &[u8], at: usize) -> Option<usize> {
    let is_frame =
        |next: &usize| bytes.get(*next..).and_then(frame_at).is_some_and(|payload| decode(payload).is_some());
    let claimed = length(&bytes[at..]).map(|len| at.saturating_add(FRAME_BYTES).saturating_add(len));
    claimed.filter(is_frame).or_else(|| (at + 1..bytes.len()).find(is_frame))
}

/// Whether bytes at the end of a file are a frame that was not written to its end.
fn is_torn(bytes: &[u8]) -> bool {
    let is_cut = length(bytes).is_none_or(|len| bytes.len() < FRAME_BYTES + len);
    is_cut || bytes.iter().all(|byte| *byte == 0)
}

/// The length of steps that a frame claims.
fn length(bytes: &[u8]) -> Option<usize> {
    let len = bytes.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*len) as usize)
}

/// The steps of the frame that begins here, if it is whole.
fn frame_at(bytes: &[u8]) -> Option<&[u8]> {
    let (head, rest) = bytes.split_first_chunk::<FRAME_BYTES>()?;
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let payload = rest.get(..len).filter(|_| len > 0)?;
    let mut crc = Crc::default();
    crc.add(payload);
    (crc.sum().to_le_bytes() == head[4..]).then_some(payload)
}

fn encode(steps: &[Step]) -> Vec<u8> {
    let mut sink = Sink::default();
    sink.number(steps.len() as u64);
    steps.iter().for_each(|step| sink.step(step));
    let mut crc = Crc::default();
    crc.add(&sink.0);
    [&(sink.0.len() as u32).to_le_bytes()[..], &crc.sum().to_le_bytes(), &sink.0].concat()
}

fn decode(payload: &[u8]) -> Option<Vec<Step>> {
    let mut source = Source(payload);
    let count = source.number()?;
    let steps = (0..count).map(|_| source.step()).collect::<Option<_>>()?;
    source.0.is_empty().then_some(steps)
}

/// Reads a journal with any damage: what is replayed is written as a journal that replays to the same. The first bytes are read
/// as a file, the rest also as steps whose frame is whole.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz(bytes: &[u8]) {
    let moves_of = |bytes: &[u8]| {
        let mut moves = Moves::default();
        let found = replay(bytes, &mut moves).ok()?;
        assert!(found.end <= bytes.len() && found.damaged.iter().all(|range| range.end <= bytes.len()));
        Some(moves)
    };
    let begins = |moves: &Moves| -> Vec<Step> {
        moves.all().map(|(number, one)| Step::Begin { number, one: one.clone() }).collect()
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

impl Sink {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Begin { number, one } => {
                self.0.push(0);
                self.number(*number);
                self.0.push(u8::from(one.is_tree));
                self.bytes(&one.from);
                self.optional(one.etag.as_ref().map(ETag::as_str));
                self.target(&one.to);
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
            Target::Nowhere => self.0.push(0),
            Target::Place(to, precondition) => {
                self.0.push(1);
                self.bytes(to);
                self.precondition(precondition);
            }
            Target::GivenUp(place) => {
                self.0.push(2);
                self.bytes(place);
            }
        }
    }
}

impl Source<'_> {
    fn step(&mut self) -> Option<Step> {
        match self.byte()? {
            0 => {
                let (number, is_tree) = (self.number()?, self.byte()? == 1);
                let from = self.bytes()?.to_vec();
                let etag = self.optional()?.map(|text| ETag::new(&text));
                Some(Step::Begin { number, one: Move { from, is_tree, etag, to: self.target()? } })
            }
            1 => Some(Step::Retarget { number: self.number()?, to: self.target()? }),
            2 => Some(Step::Done { number: self.number()? }),
            _ => None,
        }
    }

    fn target(&mut self) -> Option<Target> {
        match self.byte()? {
            0 => Some(Target::Nowhere),
            1 => Some(Target::Place(self.bytes()?.to_vec(), self.precondition()?)),
            2 => Some(Target::GivenUp(self.bytes()?.to_vec())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ObjectKey, Precondition};

    fn renamed(moves: &Moves, from: &str, to: &str) -> Vec<Step> {
        let key = |text| ObjectKey::try_from(text).unwrap();
        let from: Vec<_> =
            moves.candidates(&key(from)).into_iter().map(|there| (ETag::new("e"), there)).collect();
        moves.rename(&from, &key(to), &Precondition::Matches(ETag::new("t")))
    }

    #[test]
    fn what_was_appended_comes_back_and_half_a_frame_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("moves");
        let (mut journal, mut moves) = Journal::open(&path).unwrap();
        for (from, to) in [("a", "b"), ("b", "c"), ("x", "y")] {
            let steps = renamed(&moves, from, to);
            journal.append(&steps).unwrap();
            steps.into_iter().for_each(|step| moves.apply(step));
        }
        let tree = moves.rename_tree(b"d/", b"e/");
        journal.append(&tree).unwrap();
        tree.into_iter().for_each(|step| moves.apply(step));
        drop(journal);
        let all: Vec<_> = moves.all().map(|(number, one)| (number, one.clone())).collect();
        let found =
            |moves: &Moves| moves.all().map(|(number, one)| (number, one.clone())).collect::<Vec<_>>();
        assert_eq!(found(&Journal::open(&path).unwrap().1), all);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let (mut journal, moves) = Journal::open(&path).unwrap();
        assert_eq!(found(&moves), all[..all.len() - 1]);
        journal.append(&[Step::Done { number: 0 }]).unwrap();
        drop(journal);
        assert_eq!(found(&Journal::open(&path).unwrap().1), all[1..all.len() - 1]);
    }

    /// After a rename that failed the journal counted synced bytes as unsynced.
    #[test]
    fn what_is_taken_back_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, moves) = Journal::open(&dir.path().join("moves")).unwrap();
        let steps = renamed(&moves, "a", "b");
        journal.append(&steps).unwrap();
        journal.has_synced(journal.appended());
        let end = journal.end();
        for is_synced in [false, true] {
            journal.append(&steps).unwrap();
            if is_synced {
                journal.has_synced(journal.appended());
            }
            journal.cut(end).unwrap();
            assert_eq!(journal.synced_bytes(), end);
            assert!(journal.unsynced().unwrap().is_none());
        }
        journal.append(&steps).unwrap();
        assert_eq!(journal.synced_bytes(), end);
    }

    /// A flipped byte in the middle of the journal cut off every later rename: their objects had their old names again.
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
        let all: Vec<_> = moves.all().map(|(number, one)| (number, one.clone())).collect();
        let last_frame = whole.len() / 5 * 4;
        for at in 0..whole.len() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("moves");
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let (journal, moves) = Journal::open(&path).unwrap();
            let found: Vec<_> = moves.all().map(|(number, one)| (number, one.clone())).collect();
            assert!(found.len() == 4 && found.iter().all(|one| all.contains(one)), "byte {at}: {found:?}");
            let kept = fs::read(path.with_extension("damaged"));
            // A length at the very end that is too large looks like half a frame.
            assert!(
                kept.is_ok_and(|kept| kept == bytes) || (last_frame..last_frame + 4).contains(&at),
                "{at}"
            );
            drop(journal);
            assert_eq!(Journal::open(&path).unwrap().1.len(), 4);
        }
    }

    /// A copy of unknown outcome was taken for somebody else's object after the journal had been written anew.
    #[test]
    fn what_may_be_a_copy_is_known_as_one_as_long_as_it_is_on_its_way() {
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
        let double = moves.all().map(|(number, _)| number).find(|number| moves.is_double(*number)).unwrap();
        take(vec![Step::Done { number: 0 }], &mut journal, &mut moves);
        for round in 0..20_000 {
            let number = moves.next();
            take(renamed(&moves, &format!("from{round}"), &format!("to{round}")), &mut journal, &mut moves);
            take(vec![Step::Done { number }], &mut journal, &mut moves);
        }
        drop(journal);
        let (_, reopened) = Journal::open(&path).unwrap();
        assert!(reopened.is_double(double));
    }

    #[test]
    fn a_file_of_what_is_done_is_written_anew() {
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
