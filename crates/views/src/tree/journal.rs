//! The journal of moves: one file, to which lines are appended, with the objects that are to be moved to another
//! directory.
//!
//! A line is JSON: `{"container", "key", "from": [...], "to"}` when a move begins, and `{"container", "key", "done":
//! to}` when it has ended (`docs/format.md`). Of several lines that begin a move of one object, the last counts.
//! Invariant: a line counts completely or not at all; an incomplete last line belongs to a rename that was not
//! acknowledged.

use super::moves::{Move, Moves, merge};
use crate::ObjectName;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use store::ObjectKey;

/// Bytes of a key that are percent-encoded.
const KEY: AsciiSet = CONTROLS.add(b'%');
/// Length from which the file is truncated when no move is left.
const EMPTIED_BYTES_MIN: u64 = 1 << 20;

/// The journal, open for appending.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    bytes: u64,
}

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
    Begin { from: Vec<Option<String>>, to: Option<String> },
    Done { done: Option<String> },
}

impl Journal {
    /// Opens the journal in a directory, creating both if necessary. Returns it with the moves that have not ended.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, Moves)> {
        fs::create_dir_all(dir)?;
        let path = dir.join("directories");
        let moves = match fs::read(&path) {
            Ok(bytes) => replay(&path, &bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => Moves::new(),
            Err(error) => return Err(error),
        };
        let new: PathBuf = dir.join("directories.new");
        let mut file = File::create(&new)?;
        let text: Vec<u8> = moves
            .values()
            .flat_map(|object_move| encode_line(&object_move.object, begin_step(object_move)))
            .collect();
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()?;
        Ok((Self { file, bytes: text.len() as u64 }, moves))
    }

    /// Records that moves begin; the record survives the loss of power. After an error the file is as it was, so that the
    /// next process does not make moves whose rename failed.
    pub(super) fn begin(&mut self, moves: &[Move]) -> io::Result<()> {
        self.begin_with(moves, File::sync_data)
    }

    fn begin_with(&mut self, moves: &[Move], sync: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let text: Vec<u8> = moves
            .iter()
            .flat_map(|object_move| encode_line(&object_move.object, begin_step(object_move)))
            .collect();
        let before = self.bytes;
        self.append(&text)?;
        sync(&self.file).inspect_err(|_| {
            if let Err(error) = self.cut_to(before) {
                tracing::error!(%error, "directories whose rename failed may be renamed by the next mount");
            }
        })
    }

    /// Records that a move has ended. Losing this record does no harm.
    pub(super) fn end(&mut self, object_move: &Move, is_last: bool) -> io::Result<()> {
        if is_last && self.bytes >= EMPTIED_BYTES_MIN {
            self.file.set_len(0)?;
            io::Seek::rewind(&mut self.file)?;
            self.bytes = 0;
            return Ok(());
        }
        self.append(&encode_line(&object_move.object, Step::Done { done: object_move.to.clone() }))
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(text) {
            // An incomplete line would make the lines after it unreadable.
            self.cut_to(self.bytes)?;
            return Err(error);
        }
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn cut_to(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)?;
        io::Seek::seek(&mut self.file, io::SeekFrom::Start(bytes))?;
        self.bytes = bytes;
        Ok(())
    }
}

fn begin_step(object_move: &Move) -> Step {
    Step::Begin { from: object_move.from.clone(), to: object_move.to.clone() }
}

fn encode_line(object: &ObjectName, step: Step) -> Vec<u8> {
    let key = percent_encode(object.key.as_bytes(), &KEY).to_string();
    let line = Line { container: object.container.to_string(), key, step };
    let mut text = serde_json::to_vec(&line).unwrap_or_default();
    text.push(b'\n');
    text
}

fn replay(path: &Path, bytes: &[u8]) -> io::Result<Moves> {
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
        let line: Line = serde_json::from_slice(text).map_err(|_| damaged())?;
        let key: Vec<u8> = percent_decode_str(&line.key).collect();
        let key = ObjectKey::new(key).map_err(|_| damaged())?;
        let object = ObjectName { container: line.container.as_str().into(), key };
        match line.step {
            Step::Begin { from, to } => merge(&mut moves, Move { object, from, to }),
            Step::Done { done } => {
                if moves.get(&object).is_some_and(|object_move| object_move.to == done) {
                    moves.remove(&object);
                }
            }
        }
    }
    Ok(moves)
}

/// Reads the bytes as a journal, for the fuzz target. The moves that it has are written as a journal that reads as
/// the same moves.
#[cfg(feature = "fuzz")]
pub fn fuzz_moves(bytes: &[u8]) {
    let path = Path::new("directories");
    let Ok(moves) = replay(path, bytes) else { return };
    let written: Vec<u8> = moves
        .values()
        .flat_map(|object_move| encode_line(&object_move.object, begin_step(object_move)))
        .collect();
    let again = replay(path, &written).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again, moves);
}

#[cfg(test)]
mod tests {
    use super::*;

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
            .write_all(b"{\"con")
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
        let path = dir.path().join("directories");
        fs::write(&path, "{\"con\n").unwrap();
        assert!(Journal::open(dir.path()).unwrap_err().to_string().contains("line 1 is damaged"));
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
