//! The journal of moves: one file with the objects that are to be moved to another directory.
//!
//! A record is lines of JSON that count together: `{"container", "key", "from": [...], "to"}` when a move begins, and
//! `{"container", "key", "done": to}` when it has ended (`docs/format.md`). Of several lines that begin a move of one
//! object, the last counts. Older versions appended the lines to the file as they are, and acknowledged a rename only
//! after its whole line.

use super::moves::{Move, Moves, merge};
use crate::ObjectName;
use log::{FileLog, FileLogFormat, FrameWriter, OpenedFileLog};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use store::ObjectKey;

/// Name and header of the file, which no lock protects.
const FORMAT: FileLogFormat =
    FileLogFormat { name: "journal of directories", header: b"tndirs01", is_locked: false };
/// ASCII bytes of a key that are percent-encoded, as are all bytes that are not ASCII.
const KEY: AsciiSet = CONTROLS.add(b'%');
/// Length from which the file is emptied when no move is left.
const EMPTIED_BYTES_MIN: u64 = 1 << 20;

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    log: FileLog,
}

/// A line of a record: a step of the move of an object.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    container: String,
    key: String,
    #[serde(flatten)]
    step: Step,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Step {
    /// A move begins; the fields are those of [`Move`].
    Begin { from: Vec<Option<String>>, to: Option<String> },
    /// The move to the directory `done` has ended.
    Done { done: Option<String> },
}

impl Journal {
    /// Opens the journal in a directory, creating both if necessary. Returns it with the moves that have not ended.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, Moves)> {
        fs::create_dir_all(dir)?;
        let path = dir.join("directories");
        convert_lines(&path)?;
        let OpenedFileLog { mut log, records, damage } = FileLog::open(&path, FORMAT, decode)?;
        let mut moves = Moves::new();
        records.into_iter().flatten().for_each(|change| change.apply(&mut moves));
        if let Some(damage) = damage {
            tracing::error!(path = %path.display(), damaged = ?damage.ranges, kept = %damage.kept.display(),
                "the journal of directories is damaged: directories that were renamed may have their old names, and the damaged file is kept");
        }
        log.rewrite(encode_all(&moves).iter().map(Vec::as_slice))?;
        Ok((Self { log }, moves))
    }

    /// Records that moves begin; the record survives the loss of power. After an error the file is as it was, so that the
    /// next process does not make moves whose rename failed.
    pub(super) fn begin(&mut self, moves: &[Move]) -> io::Result<()> {
        self.begin_with(moves, File::sync_data)
    }

    fn begin_with(&mut self, moves: &[Move], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let text: Vec<u8> = moves.iter().flat_map(encode_begin).collect();
        if text.is_empty() {
            return Ok(());
        }
        let before = self.log.end();
        self.log.append(&text)?;
        let synced = self.log.file_to_sync().and_then(|file| file.as_ref().map_or(Ok(()), sync));
        synced.inspect_err(|_| {
            if let Err(error) = self.log.truncate_to(before) {
                tracing::error!(%error, "a rename of directories failed, but its record cannot be removed from the journal: the next mount may do the rename");
            }
        })?;
        self.log.mark_synced(self.log.appended());
        Ok(())
    }

    /// Records that a move has ended; `is_last` says that no other move is left, so that a long file may be emptied.
    /// Losing this record does no harm, because the next process only repeats the move. The record is not synced.
    pub(super) fn end(&mut self, object_move: &Move, is_last: bool) -> io::Result<()> {
        if is_last && self.log.end() >= EMPTIED_BYTES_MIN {
            return self.log.rewrite([]);
        }
        self.log.append(&encode_line(&object_move.object, Step::Done { done: object_move.to.clone() }))
    }
}

/// Returns a record for each move.
fn encode_all(moves: &Moves) -> Vec<Vec<u8>> {
    moves.values().map(encode_begin).collect()
}

fn encode_begin(object_move: &Move) -> Vec<u8> {
    let step = Step::Begin { from: object_move.from.clone(), to: object_move.to.clone() };
    encode_line(&object_move.object, step)
}

fn encode_line(object: &ObjectName, step: Step) -> Vec<u8> {
    let key = percent_encode(object.key.as_bytes(), &KEY).to_string();
    let line = Line { container: object.container.to_string(), key, step };
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A decoded line.
#[derive(Debug)]
struct Change {
    object: ObjectName,
    step: Step,
}

impl Change {
    /// Applies the line to the moves that have not ended.
    fn apply(self, moves: &mut Moves) {
        let Self { object, step } = self;
        match step {
            Step::Begin { from, to } => merge(moves, Move { object, from, to }),
            Step::Done { done } => {
                if moves.get(&object).is_some_and(|object_move| object_move.to == done) {
                    moves.remove(&object);
                }
            }
        }
    }
}

/// Decodes the lines of a record; `None` if one of them is malformed.
fn decode(record: &[u8]) -> Option<Vec<Change>> {
    record.split_inclusive(|&byte| byte == b'\n').map(decode_line).collect()
}

fn decode_line(text: &[u8]) -> Option<Change> {
    let line: Line = serde_json::from_slice(text).ok()?;
    let key = ObjectKey::new(percent_decode_str(&line.key).collect::<Vec<u8>>()).ok()?;
    let object = ObjectName { container: line.container.as_str().into(), key };
    Some(Change { object, step: line.step })
}

/// Replaces a file of an older version by one that has its moves as records. Leaves any other file as it is.
fn convert_lines(path: &Path) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Ok(bytes) if bytes.starts_with(b"{") => bytes,
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let moves = read_lines(path, &bytes)?;
    let new = path.with_extension("new");
    let mut writer = FrameWriter::create(&new, FORMAT.header)?;
    encode_all(&moves).iter().try_for_each(|record| writer.append(record))?;
    writer.sync()?;
    fs::rename(&new, path)
}

/// Reads a file of an older version. Ignores an incomplete last line, which belongs to a rename that was not
/// acknowledged; fails for any other malformed line.
fn read_lines(path: &Path, bytes: &[u8]) -> io::Result<Moves> {
    let mut moves = Moves::new();
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    for (number, text) in bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let damaged = || {
            let says = format!(
                "{}: line {} is damaged; remove the file, after which directories that were \
                 renamed last may have their old names",
                path.display(),
                number + 1
            );
            io::Error::new(ErrorKind::InvalidData, says)
        };
        decode_line(text).ok_or_else(damaged)?.apply(&mut moves);
    }
    Ok(moves)
}

/// Reads the bytes as a journal, as one of an older version, and as the lines of a record, for the fuzz target. The moves
/// that it has are written as a journal that reads as the same moves.
#[cfg(feature = "fuzz")]
pub fn fuzz_moves(bytes: &[u8]) {
    let replay = |file: &[u8]| {
        let mut moves = Moves::new();
        log::fuzz::file(file, FORMAT, decode)?
            .into_iter()
            .flatten()
            .for_each(|change| change.apply(&mut moves));
        Some(moves)
    };
    let frame = |record: &[u8]| log::encode_frame(record).unwrap_or_default();
    let framed = if bytes.is_empty() { Vec::new() } else { [FORMAT.header, &frame(bytes)].concat() };
    let lines = read_lines(Path::new("directories"), bytes).ok();
    for moves in [lines, replay(bytes), replay(&framed)].into_iter().flatten() {
        let records = encode_all(&moves).into_iter().flat_map(|record| frame(&record));
        let written: Vec<u8> = FORMAT.header.iter().copied().chain(records).collect();
        assert_eq!(replay(&written).as_ref(), Some(&moves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn a_move(key: &str, from: Option<&str>, to: Option<&str>) -> Move {
        let object = ObjectName { container: "b".into(), key: ObjectKey::try_from(key).unwrap() };
        Move { object, from: vec![from.map(str::to_owned)], to: to.map(str::to_owned) }
    }

    #[test]
    fn unfinished_moves_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, moves) = Journal::open(dir.path()).unwrap();
        assert!(moves.is_empty());
        let (first, second) = (a_move("k%\n1", None, Some("a/ü")), a_move("k2", Some("a"), None));
        journal.begin(&[first.clone(), second.clone()]).unwrap();
        let again = a_move("k2", None, Some("c"));
        journal.begin(std::slice::from_ref(&again)).unwrap();
        journal.end(&first, false).unwrap();
        // The end of an earlier move of the object does not end the last one.
        journal.end(&second, false).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(dir.path().join("directories"))
            .unwrap()
            .write_all(&[7, 0, 0, 0, 1, 2])
            .unwrap();
        drop(journal);
        for _ in 0..2 {
            let (_, moves) = Journal::open(dir.path()).unwrap();
            assert_eq!(moves.len(), 1);
            let found = &moves[&again.object];
            assert_eq!(
                (found.from.as_slice(), found.to.as_deref()),
                ([None, Some("a".into())].as_slice(), Some("c"))
            );
        }
    }

    #[test]
    fn a_file_of_an_older_version_is_read_and_a_damaged_line_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("directories");
        let (first, second) = (a_move("k%\n1", None, Some("a/ü")), a_move("k2", Some("a"), None));
        let lines = [encode_begin(&first), encode_begin(&second), b"{\"con".to_vec()].concat();
        fs::write(&path, &lines).unwrap();
        for _ in 0..2 {
            let (_, moves) = Journal::open(dir.path()).unwrap();
            assert_eq!(moves.values().collect::<Vec<_>>(), [&first, &second]);
        }
        assert!(fs::read(&path).unwrap().starts_with(FORMAT.header));
        fs::write(&path, "{\"con\n").unwrap();
        assert!(Journal::open(dir.path()).unwrap_err().to_string().contains("line 1 is damaged"));
    }

    #[test]
    fn a_damaged_record_costs_its_moves_only_and_the_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("directories");
        let moves = ["a", "b", "c"].map(|key| a_move(key, None, Some("d")));
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        moves.iter().for_each(|one| journal.begin(std::slice::from_ref(one)).unwrap());
        drop(journal);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).unwrap();
        for _ in 0..2 {
            let (_, left) = Journal::open(dir.path()).unwrap();
            assert_eq!(left.values().collect::<Vec<_>>(), [&moves[0], &moves[1]]);
        }
        assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), bytes);
    }

    /// A rename(2) failed because the journal could not be synced, its lines stayed in the file, and the next mount carried
    /// the rename out.
    #[test]
    fn a_move_whose_record_was_not_synced_is_not_restored() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        let (kept, failed) = (a_move("kept", None, Some("a")), a_move("failed", None, Some("a")));
        journal.begin(std::slice::from_ref(&kept)).unwrap();
        let unsynced = |_: &File| Err(io::Error::other("injected"));
        journal.begin_with(std::slice::from_ref(&failed), unsynced).unwrap_err();
        let later = a_move("later", None, Some("a"));
        journal.begin(std::slice::from_ref(&later)).unwrap();
        drop(journal);
        let (_, moves) = Journal::open(dir.path()).unwrap();
        assert_eq!(moves.keys().collect::<Vec<_>>(), [&kept.object, &later.object]);
    }

    #[test]
    fn a_long_file_without_unfinished_moves_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path()).unwrap();
        let moves: Vec<_> =
            (0..20_000).map(|number| a_move(&format!("key{number}"), None, Some("a"))).collect();
        journal.begin(&moves).unwrap();
        for (at, object_move) in moves.iter().enumerate() {
            journal.end(object_move, at + 1 == moves.len()).unwrap();
        }
        journal.begin(&moves[..1]).unwrap();
        drop(journal);
        assert!(fs::metadata(dir.path().join("directories")).unwrap().len() < 200);
        assert_eq!(Journal::open(dir.path()).unwrap().1.len(), 1);
    }
}
