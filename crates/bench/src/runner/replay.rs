//! Replay of a trace: each thread of the trace is a thread here, which makes its calls one after another, as fast as they return.
//!
//! A byte that the trace writes is a function of its offset, so that reads can be compared. A byte that the thread has not written itself
//! may be zero instead: it may be a hole, or another thread may write it later.

use crate::content::{Content, Stamp};
use crate::file_error::FileError;
use crate::workload::{PAGE_BYTES, TraceCall, TraceStep};
use harness::{Histogram, Stopwatch};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Number of the content of all files of a trace.
const NUMBER: usize = 0;
/// Base of the content.
const CONTENT_BYTES: u64 = 1 << 20;

/// Returns the files that a trace uses before it creates them, with the length that its reads need.
fn initial_files(steps: &[TraceStep]) -> BTreeMap<String, u64> {
    let (mut known, mut initial) = (BTreeSet::new(), BTreeMap::new());
    for step in steps {
        let mut need = |path: &String, bytes: u64| {
            if !known.contains(path) {
                let length: &mut u64 = initial.entry(path.clone()).or_default();
                *length = bytes.max(*length);
            }
        };
        match &step.call {
            TraceCall::Read { path, offset, bytes } => need(path, offset + bytes),
            TraceCall::Stat { path } | TraceCall::Unlink { path } | TraceCall::Truncate { path, .. } => {
                need(path, 0)
            }
            TraceCall::Rename { path, to } => {
                need(path, 0);
                known.insert(to.clone());
            }
            TraceCall::Create { path } | TraceCall::Write { path, .. } | TraceCall::Mkdir { path } => {
                known.insert(path.clone());
            }
            _ => {}
        }
    }
    initial
}

/// Returns the directories that a trace does not make, although it uses paths in them.
fn initial_directories(steps: &[TraceStep]) -> BTreeSet<String> {
    let made: BTreeSet<&str> = steps
        .iter()
        .filter_map(|step| match &step.call {
            TraceCall::Mkdir { path } => Some(path.as_str()),
            _ => None,
        })
        .collect();
    let parents =
        steps.iter().flat_map(|step| step.call.paths()).filter_map(|path| Some(path.rsplit_once('/')?.0));
    parents.filter(|parent| !made.contains(parent)).map(str::to_owned).collect()
}

/// Makes the files and directories that a trace uses before it creates them.
pub(super) fn make_initial_files(root: &Path, steps: &[TraceStep]) -> Result<(), FileError> {
    for dir in initial_directories(steps) {
        fs::create_dir_all(root.join(&dir)).map_err(FileError::io(&dir))?;
    }
    for (path, bytes) in initial_files(steps) {
        let failed = FileError::io(&path);
        let full = root.join(&path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(&failed)?;
        }
        let data = Content::new(CONTENT_BYTES).pieces(NUMBER, 0, bytes).concat();
        fs::write(full, data).map_err(&failed)?;
    }
    Ok(())
}

/// Replays the steps of one thread.
pub(super) fn replay(root: &Path, steps: &[TraceStep], latency: &mut Histogram) -> Result<(), FileError> {
    let mut replayer = Replayer::new(root);
    for step in steps {
        let watch = Stopwatch::start();
        replayer.call(&step.call)?;
        latency.record(watch.elapsed());
    }
    Ok(())
}

struct Replayer {
    root: PathBuf,
    open: BTreeMap<String, File>,
    /// Pages that this thread has written completely, by path.
    written: BTreeMap<String, BTreeSet<u64>>,
    content: Content,
}

impl Replayer {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            open: BTreeMap::new(),
            written: BTreeMap::new(),
            content: Content::new(CONTENT_BYTES),
        }
    }

    fn call(&mut self, call: &TraceCall) -> Result<(), FileError> {
        let full = |path: &String| self.root.join(path);
        match call {
            TraceCall::Mkdir { path } => {
                let made = fs::create_dir(full(path)).or_else(|error| match error.kind() {
                    io::ErrorKind::AlreadyExists => Ok(()),
                    _ => Err(error),
                });
                made.map_err(FileError::io(path))
            }
            TraceCall::Create { path } => {
                let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
                let file = options.open(full(path)).map_err(FileError::io(path))?;
                self.written.remove(path);
                self.open.insert(path.clone(), file);
                Ok(())
            }
            TraceCall::Write { path, offset, bytes } => self.write(path, *offset, *bytes),
            TraceCall::Read { path, offset, bytes } => self.read(path, *offset, *bytes),
            TraceCall::Fsync { path } => self.file(path)?.sync_all().map_err(FileError::io(path)),
            TraceCall::Close { path } => {
                self.open.remove(path);
                Ok(())
            }
            TraceCall::Truncate { path, bytes } => {
                if let Some(pages) = self.written.get_mut(path) {
                    pages.retain(|page| (page + 1) * PAGE_BYTES <= *bytes);
                }
                self.file(path)?.set_len(*bytes).map_err(FileError::io(path))
            }
            TraceCall::Stat { path } => fs::metadata(full(path)).map(drop).map_err(FileError::io(path)),
            TraceCall::List { path } => {
                let listed = fs::read_dir(full(path)).and_then(|entries| {
                    entries.map(|entry| entry?.metadata().map(drop)).collect::<io::Result<Vec<()>>>()
                });
                listed.map(drop).map_err(FileError::io(path))
            }
            TraceCall::Rename { path, to } => {
                fs::rename(full(path), full(to)).map_err(FileError::io(path))?;
                if let Some(file) = self.open.remove(path) {
                    self.open.insert(to.clone(), file);
                }
                let pages = self.written.remove(path).unwrap_or_default();
                self.written.insert(to.clone(), pages);
                Ok(())
            }
            TraceCall::Unlink { path } => {
                self.written.remove(path);
                fs::remove_file(full(path)).map_err(FileError::io(path))
            }
            TraceCall::Rmdir { path } => fs::remove_dir(full(path)).map_err(FileError::io(path)),
        }
    }

    /// Returns the open file of a path; opens it if necessary.
    fn file(&mut self, path: &str) -> Result<&File, FileError> {
        if !self.open.contains_key(path) {
            let options = OpenOptions::new().read(true).write(true).clone();
            let full = self.root.join(path);
            let file = options.open(&full).or_else(|_| File::open(&full)).map_err(FileError::io(path))?;
            self.open.insert(path.to_owned(), file);
        }
        self.open.get(path).ok_or_else(|| FileError::Missing { file: path.to_owned() })
    }

    fn write(&mut self, path: &str, offset: u64, bytes: u64) -> Result<(), FileError> {
        let data = self.bytes(offset, bytes);
        self.file(path)?.write_all_at(&data, offset).map_err(FileError::io(path))?;
        let whole = offset.div_ceil(PAGE_BYTES)..(offset + bytes) / PAGE_BYTES;
        self.written.entry(path.to_owned()).or_default().extend(whole);
        Ok(())
    }

    /// Reads like the traced program, which may read past the end.
    fn read(&mut self, path: &str, offset: u64, bytes: u64) -> Result<(), FileError> {
        let mut data = vec![0; bytes as usize];
        let mut len = 0;
        while len < data.len() {
            let file = self.file(path)?;
            match file.read_at(&mut data[len..], offset + len as u64).map_err(FileError::io(path))? {
                0 => break,
                count => len += count,
            }
        }
        let expected = self.bytes(offset, len as u64);
        let written = self.written.get(path);
        let is_own = |at: u64| written.is_some_and(|pages| pages.contains(&(at / PAGE_BYTES)));
        let is_right = |(at, (found, wanted)): (usize, (&u8, &u8))| {
            found == wanted || (*found == 0 && !is_own(offset + at as u64))
        };
        match data[..len].iter().zip(&expected).enumerate().all(is_right) {
            true => Ok(()),
            false => Err(FileError::WrongBytes { file: path.to_owned(), offset }),
        }
    }

    /// Returns the content of a range.
    fn bytes(&mut self, offset: u64, bytes: u64) -> Vec<u8> {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let pieces = self.content.pieces(Stamp::from(NUMBER), start, offset + bytes).concat();
        pieces[(offset - start) as usize..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::parse_trace;

    const TRACE: &str = r#"{"t_us":0,"op":"mkdir","path":"d"}
{"t_us":1,"op":"create","path":"d/a"}
{"t_us":2,"op":"write","path":"d/a","offset":100,"bytes":10000}
{"t_us":3,"op":"read","path":"d/a","offset":0,"bytes":20000}
{"t_us":4,"op":"fsync","path":"d/a"}
{"t_us":5,"op":"rename","path":"d/a","to":"d/b"}
{"t_us":6,"op":"read","path":"d/b","offset":4096,"bytes":4096}
{"t_us":7,"op":"read","path":"old","offset":5000,"bytes":123}
{"t_us":8,"op":"list","path":"d"}
{"t_us":9,"op":"truncate","path":"d/b","bytes":50}
{"t_us":10,"op":"close","path":"d/b"}
{"t_us":11,"op":"unlink","path":"d/b"}
{"t_us":12,"op":"rmdir","path":"d"}"#;

    fn run(root: &Path, text: &str) -> Result<u64, FileError> {
        let (steps, mut latency) = (parse_trace(text).unwrap(), Histogram::default());
        make_initial_files(root, &steps)?;
        replay(root, &steps, &mut latency)?;
        Ok(latency.count())
    }

    #[test]
    fn every_call_is_replayed_on_files_that_existed_before() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run(dir.path(), TRACE).unwrap(), 13);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["old"]);
        assert_eq!(fs::metadata(dir.path().join("old")).unwrap().len(), 5123);
    }

    #[test]
    fn bytes_that_the_thread_wrote_must_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let written = r#"{"t_us":0,"op":"write","path":"f","offset":0,"bytes":8192}"#;
        let read = r#"{"t_us":1,"op":"read","path":"f","offset":0,"bytes":12288}"#;
        fs::write(dir.path().join("f"), "").unwrap();
        let steps = parse_trace(&format!("{written}\n{read}")).unwrap();
        let mut replayer = Replayer::new(dir.path());
        steps.iter().try_for_each(|step| replayer.call(&step.call)).unwrap();
        // A page is lost: it reads as zeros.
        let file = OpenOptions::new().write(true).open(dir.path().join("f")).unwrap();
        file.write_all_at(&[0; 4096], 4096).unwrap();
        assert!(matches!(replayer.call(&steps[1].call), Err(FileError::WrongBytes { .. })));
        // To another thread it may be a hole, but a wrong byte is wrong for everybody.
        Replayer::new(dir.path()).call(&steps[1].call).unwrap();
        file.write_all_at(b"x", 5000).unwrap();
        assert!(matches!(Replayer::new(dir.path()).call(&steps[1].call), Err(FileError::WrongBytes { .. })));
    }
}
