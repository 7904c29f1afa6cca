//! Replay of a trace: each thread of the trace is a thread here, which makes its calls one after another, as fast as they return and the
//! order of names permits (`workload::trace_order`).
//!
//! A byte that the trace writes is a function of its offset in the file, so that reads can be compared. A byte may be zero instead, unless
//! the thread itself has written its whole page: it may be in a hole, or another thread may write it later.

use crate::content::{Content, Stamp};
use crate::file_error::FileError;
use crate::workload::{PAGE_BYTES, ReplayThread, TraceCall, TraceStep};
use harness::{Histogram, Stopwatch};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// File number from which the content of all files of a trace is made.
const NUMBER: usize = 0;
/// Length of the random block from which the content is made; it repeats in longer files.
const CONTENT_BYTES: u64 = 1 << 20;

/// Returns the files that a trace uses before it creates them, each with the length in bytes that its reads and writes need.
fn initial_files(steps: &[TraceStep]) -> BTreeMap<String, u64> {
    let (mut known, mut initial): (BTreeSet<String>, _) = (BTreeSet::new(), BTreeMap::new());
    let directories = directories(steps);
    for step in steps {
        let mut need = |path: &String, bytes: u64| {
            if !known.contains(path) && !directories.contains(path.as_str()) {
                let length: &mut u64 = initial.entry(path.clone()).or_default();
                *length = bytes.max(*length);
            }
        };
        match &step.call {
            TraceCall::Read { path, offset, bytes } => need(path, offset + bytes),
            TraceCall::Write { path, offset, .. } => need(path, *offset),
            TraceCall::Stat { path }
            | TraceCall::Fsync { path }
            | TraceCall::Unlink { path }
            | TraceCall::Truncate { path, .. } => need(path, 0),
            TraceCall::Rename { path, to } => {
                need(path, 0);
                let below = format!("{path}/");
                let below = known.range(below.clone()..).take_while(|known| known.starts_with(&below));
                let renamed: Vec<String> =
                    below.map(|below| format!("{to}{}", &below[path.len()..])).collect();
                known.extend(renamed);
                known.insert(to.clone());
            }
            TraceCall::Create { path } | TraceCall::Mkdir { path } => {
                known.insert(path.clone());
            }
            _ => {}
        }
    }
    initial
}

/// Returns the paths that are directories in some step of a trace.
fn directories(steps: &[TraceStep]) -> BTreeSet<&str> {
    let mut directories = BTreeSet::new();
    for step in steps {
        let is_directory =
            matches!(step.call, TraceCall::Mkdir { .. } | TraceCall::List { .. } | TraceCall::Rmdir { .. });
        for path in step.call.paths() {
            directories.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
            if is_directory {
                directories.insert(path);
            }
        }
    }
    directories
}

/// Returns the directories that a trace does not make, although it uses them or paths in them.
fn initial_directories(steps: &[TraceStep]) -> BTreeSet<String> {
    let made: BTreeSet<&str> = steps
        .iter()
        .filter_map(|step| match &step.call {
            TraceCall::Mkdir { path } | TraceCall::Rename { to: path, .. } => Some(path.as_str()),
            _ => None,
        })
        .collect();
    let is_made =
        |path: &str| path.match_indices('/').any(|(at, _)| made.contains(&path[..at])) || made.contains(path);
    directories(steps).into_iter().filter(|path| !is_made(path)).map(str::to_owned).collect()
}

/// Makes the directory of the trace, and in it the files and directories that the trace uses before it creates them.
pub(super) fn make_initial_files(root: &Path, steps: &[TraceStep]) -> Result<(), FileError> {
    fs::create_dir_all(root).map_err(FileError::io("directory of the trace"))?;
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

/// Replays the steps of one thread, and records the duration of each call. Ends early without an error if another thread has failed.
pub(super) fn replay(root: &Path, thread: &ReplayThread, latency: &mut Histogram) -> Result<(), FileError> {
    let mut replayer = Replayer::new(root);
    for step in thread.steps.iter() {
        if !thread.wait_for(step) {
            // Another thread has failed, and reports its error.
            return Ok(());
        }
        let watch = Stopwatch::start();
        replayer.call(&step.step.call).inspect_err(|_| thread.give_up())?;
        latency.record(watch.elapsed());
        thread.complete_step();
    }
    Ok(())
}

/// The state of one thread of a replay.
struct Replayer {
    root: PathBuf,
    /// Open files, by path.
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

    /// Makes a call of the trace.
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

    /// Reads a range and compares the bytes. Like the traced program, it may read past the end of the file.
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

    /// Returns the bytes that a file has in a range if the trace has written them.
    fn bytes(&mut self, offset: u64, bytes: u64) -> Vec<u8> {
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let pieces = self.content.pieces(Stamp::from(NUMBER), start, offset + bytes).concat();
        pieces[(offset - start) as usize..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{order_threads, parse_trace};

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
        std::thread::scope(|scope| {
            let threads: Vec<_> = order_threads(&steps).into_iter().collect();
            let running: Vec<_> = threads
                .into_iter()
                .map(|thread| {
                    scope.spawn(move || {
                        let mut latency = Histogram::default();
                        replay(root, &thread, &mut latency).map(|()| latency)
                    })
                })
                .collect();
            running.into_iter().try_for_each(|thread| {
                latency.merge(&thread.join().unwrap()?);
                Ok(())
            })
        })?;
        Ok(latency.count())
    }

    #[test]
    fn every_call_is_replayed_on_files_that_existed_before() {
        let dir = tempfile::tempdir().unwrap();
        // A trace that uses nothing that was there before has a directory all the same.
        let made = run(&dir.path().join("new"), r#"{"t_us":0,"op":"mkdir","path":"d"}"#);
        assert_eq!(made.unwrap(), 1);
        fs::remove_dir_all(dir.path().join("new")).unwrap();
        assert_eq!(run(dir.path(), TRACE).unwrap(), 13);
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["old"]);
        assert_eq!(fs::metadata(dir.path().join("old")).unwrap().len(), 5123);
    }

    /// A regression test: the threads of a recorded script failed, because each one used what another one had not made yet; a
    /// directory that a trace only asks about became a file; and a file that is only appended to was missing.
    #[test]
    fn s723_threads_that_depend_on_each_other_are_replayed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut text = String::from("{\"t_us\":0,\"op\":\"stat\",\"path\":\"old\"}\n");
        let mut add = |thread: usize, call: String| {
            text.push_str(&format!("{{\"t_us\":1,\"thread\":{thread},{call}}}\n"));
        };
        add(0, r#""op":"write","path":"log","offset":100,"bytes":10"#.to_owned());
        add(1, r#""op":"list","path":"old""#.to_owned());
        for turn in 0..50 {
            add(2 * turn, format!(r#""op":"mkdir","path":"d{turn}""#));
            add(2 * turn + 1, format!(r#""op":"create","path":"d{turn}/f""#));
            add(2 * turn, format!(r#""op":"write","path":"d{turn}/f","offset":0,"bytes":5000"#));
            add(2 * turn + 1, format!(r#""op":"rename","path":"d{turn}","to":"e""#));
            add(2 * turn, r#""op":"read","path":"e/f","offset":0,"bytes":5000"#.to_owned());
            add(2 * turn + 1, r#""op":"unlink","path":"e/f""#.to_owned());
            add(2 * turn, r#""op":"rmdir","path":"e""#.to_owned());
        }
        assert_eq!(run(dir.path(), &text).unwrap(), 353);
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["log", "old"]);
        assert!(fs::metadata(dir.path().join("old")).unwrap().is_dir());
        assert_eq!(fs::metadata(dir.path().join("log")).unwrap().len(), 110);
        // A thread whose step fails ends the others' waits.
        let failing = r#"{"t_us":0,"thread":0,"op":"mkdir","path":"x"}
{"t_us":1,"thread":0,"op":"rmdir","path":"x"}
{"t_us":2,"thread":0,"op":"create","path":"x/f"}
{"t_us":3,"thread":1,"op":"read","path":"x/f","offset":0,"bytes":1}"#;
        assert!(run(dir.path(), failing).is_err());
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
