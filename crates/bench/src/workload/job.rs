//! A job: what its threads do with which files.

use super::scale::Scale;
use super::task::{JobFile, PAGE_BYTES, Rewritten, Task};
use super::trace::{TraceStep, parse_trace};
use super::trace_order::order_threads;
use super::workload_error::WorkloadError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Entropy;

/// Suffix of the path of a file that a job has renamed.
const RENAMED: &str = ".renamed";

/// A job: its threads share the tasks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name in results.
    pub name: String,
    /// Name in reports.
    pub title: String,
    /// Operation.
    pub operation: Operation,
    /// Kind of the files, which gives their number and size.
    pub files: FileKind,
    /// Number of threads.
    pub threads: usize,
    /// For a job that needs files: the job that left them.
    pub reads: Option<String>,
    /// When written blocks are synced.
    #[serde(default)]
    pub sync: SyncPolicy,
    /// For a job that writes: whether the package's processes are killed as soon as the last file is closed. Files that were acknowledged
    /// must be in the bucket all the same.
    #[serde(default)]
    pub kills: bool,
    /// For [`Operation::Fio`]: the job file.
    pub script: Option<String>,
    /// For [`Operation::Program`]: the program.
    pub program: Option<ForeignProgram>,
    /// For [`Operation::Trace`]: the file with the trace.
    pub trace: Option<PathBuf>,
    /// The parts that are not in the job's own text.
    #[serde(skip)]
    pub(super) resolved: Resolved,
}

/// A program that does a job in a directory of the mount.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignProgram {
    /// Words of the command; `${directory}` is the directory.
    pub command: Vec<String>,
    /// Number of operations that the program makes.
    pub operations: u64,
}

/// Parts of a job that are taken from other jobs and files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Resolved {
    /// The jobs whose files are needed, the first writer first.
    pub(super) ancestors: Vec<Job>,
    /// The steps of the trace.
    steps: Arc<Vec<TraceStep>>,
}

/// The operation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Creates files, writes them in order, and closes them.
    Write,
    /// Reads files in order and compares every byte.
    Read,
    /// Reads blocks of 4 KiB at random offsets, each block once, and compares every byte.
    RandomRead,
    /// Writes blocks of 4 KiB at random offsets.
    RandomWrite,
    /// Reads 4 KiB in the middle of each file.
    FirstByte,
    /// Asks for the attributes of each file.
    Stat,
    /// Lists the directory with the attributes of each file, as `ls -l` does.
    List,
    /// Renames each file.
    Rename,
    /// Removes each file.
    Unlink,
    /// Seven of ten steps read a file, two write a new file, and one asks for attributes.
    Mixed,
    /// Runs fio with a job file.
    Fio,
    /// Runs a program.
    Program,
    /// Replays a trace of file operations.
    Trace,
}

/// Files of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Few large files, in order.
    Big,
    /// Many small files, in random order.
    Small,
    /// One file that is accessed at random offsets.
    Single,
    /// Very many empty files, in random order.
    Empty,
}

/// When written blocks are synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncPolicy {
    /// Not before the file is closed.
    #[default]
    None,
    /// Once, before the file is closed.
    End,
    /// After each block.
    Each,
}

/// The unit of a job's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Mebibytes per second.
    #[serde(rename = "MiB/s")]
    MebibytesPerSecond,
    /// Operations per second.
    #[serde(rename = "operations/s")]
    OperationsPerSecond,
}

/// The part of a job that reports need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobColumn {
    /// Name in results.
    pub name: String,
    /// Name in reports.
    pub title: String,
    /// Whether the job changes files.
    pub is_write: bool,
    /// Unit of the rate.
    pub unit: Unit,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MebibytesPerSecond => "MiB/s",
            Self::OperationsPerSecond => "/s",
        })
    }
}

impl Operation {
    /// Returns whether the job makes the files that it needs.
    pub fn makes_files(self) -> bool {
        matches!(self, Self::Write | Self::Fio | Self::Program | Self::Trace)
    }

    /// Returns whether the job needs files of an earlier job.
    pub fn needs_files(self) -> bool {
        !self.makes_files()
    }

    /// Returns whether a later job can use the files.
    pub fn leaves_files(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite | Self::Rename)
    }

    /// Returns whether files change, so that a second client has something to compare.
    pub fn changes_files(self) -> bool {
        matches!(self, Self::Write | Self::RandomWrite | Self::Rename | Self::Unlink | Self::Mixed)
    }
}

impl Job {
    /// Returns the directory of the job's files.
    pub fn folder(&self) -> &str {
        self.resolved.ancestors.first().map_or(&self.name, |first| &first.name)
    }

    /// Returns the names of the jobs whose files the job needs.
    pub fn needs(&self) -> impl Iterator<Item = &str> {
        self.resolved.ancestors.iter().map(|job| job.name.as_str())
    }

    /// Returns what reports need to know.
    pub fn column(&self) -> JobColumn {
        JobColumn {
            name: self.name.clone(),
            title: self.title.clone(),
            is_write: self.operation.changes_files() || self.operation.makes_files(),
            unit: self.unit(),
        }
    }

    /// Returns the unit of the job's rate.
    fn unit(&self) -> Unit {
        let moves_whole_files = matches!(self.operation, Operation::Write | Operation::Read);
        match moves_whole_files && self.files != FileKind::Empty {
            true => Unit::MebibytesPerSecond,
            false => Unit::OperationsPerSecond,
        }
    }

    /// Returns the files that the job makes or uses, those in use as they are before it, in order of their numbers.
    pub fn files(&self, scale: &Scale, seed: u64) -> Vec<JobFile> {
        files_left_by(self.folder(), &self.resolved.ancestors, self.files, scale, seed)
    }

    /// Returns the files of the job's directory that must exist after it, in order of their numbers.
    pub fn files_after(&self, scale: &Scale, seed: u64) -> Vec<JobFile> {
        match self.operation {
            Operation::Unlink => Vec::new(),
            Operation::Mixed => {
                let written = self.tasks(scale, seed).into_iter().flatten().filter_map(Task::into_written);
                let mut files: Vec<JobFile> = self.files(scale, seed).into_iter().chain(written).collect();
                files.sort_by_key(|file| file.number);
                files
            }
            _ => {
                let own = Self { resolved: Resolved::default(), ..self.clone() };
                let jobs: Vec<Self> = self.resolved.ancestors.iter().cloned().chain([own]).collect();
                files_left_by(self.folder(), &jobs, self.files, scale, seed)
            }
        }
    }

    /// Returns the tasks of each thread, in the order in which the thread does them. Small and empty files are shuffled.
    pub fn tasks(&self, scale: &Scale, seed: u64) -> Vec<Vec<Task>> {
        let mut files = self.files(scale, seed);
        match self.operation {
            Operation::RandomRead | Operation::RandomWrite => return self.block_tasks(&files, scale, seed),
            Operation::List => {
                return vec![vec![Task::List { folder: self.folder().to_owned(), files: Arc::new(files) }]];
            }
            Operation::Trace => return self.trace_tasks(),
            Operation::Fio | Operation::Program => return Vec::new(),
            _ => {}
        }
        if matches!(self.files, FileKind::Small | FileKind::Empty) {
            shuffle(&mut files, &Entropy::new(seed));
        }
        let count = files.len();
        let task = |(at, file)| self.file_task(at, file, count);
        let tasks: Vec<Task> = files.into_iter().enumerate().map(task).collect();
        let share = |thread| tasks.iter().skip(thread).step_by(self.threads).cloned().collect();
        (0..self.threads).map(share).collect()
    }

    /// Returns the task with the file that is at this place in the order of the job.
    fn file_task(&self, at: usize, file: JobFile, count: usize) -> Task {
        match self.operation {
            Operation::Read => Task::Read(file),
            Operation::FirstByte => Task::FirstByte(file),
            Operation::Stat => Task::Stat(file),
            Operation::Rename => Task::Rename { to: format!("{}{RENAMED}", file.path), from: file },
            Operation::Unlink => Task::Unlink(file),
            Operation::Mixed => match at % 10 {
                0..7 => Task::Read(file),
                7 | 8 => {
                    let number = count + file.number;
                    let path = format!("{}/{number:05}", self.folder());
                    Task::Write(JobFile { number, path, ..file })
                }
                _ => Task::Stat(file),
            },
            _ => Task::Write(file),
        }
    }

    /// Returns a task for each thread, with blocks that no other thread has.
    fn block_tasks(&self, files: &[JobFile], scale: &Scale, seed: u64) -> Vec<Vec<Task>> {
        let Some(file) = files.first() else { return vec![Vec::new(); self.threads] };
        let offsets = self.offsets(scale, seed);
        let share = |thread| {
            let own: Vec<u64> = offsets.iter().skip(thread).step_by(self.threads).copied().collect();
            let offsets = Arc::new(own);
            vec![match self.operation {
                Operation::RandomRead => Task::ReadBlocks { file: file.clone(), offsets },
                _ => Task::WriteBlocks { file: file.clone(), offsets, sync: self.sync },
            }]
        };
        (0..self.threads).map(share).collect()
    }

    /// Returns a task for each thread of the trace.
    fn trace_tasks(&self) -> Vec<Vec<Task>> {
        let threads = order_threads(&self.resolved.steps).into_iter();
        threads.map(|thread| vec![Task::Replay(thread)]).collect()
    }

    /// Returns the offsets of the blocks that the job's threads access, in their order.
    fn offsets(&self, scale: &Scale, seed: u64) -> Vec<u64> {
        let (_, size_bytes) = scale.files(self.files);
        let mut blocks: Vec<u64> = (0..size_bytes / PAGE_BYTES).collect();
        shuffle(&mut blocks, &Entropy::new(seed ^ hash(&self.name)));
        blocks.truncate(scale.blocks as usize * self.threads);
        blocks.into_iter().map(|block| block * PAGE_BYTES).collect()
    }

    /// Returns the number of bytes that the job moves.
    pub fn bytes(&self, scale: &Scale) -> u64 {
        let (count, size_bytes) = scale.files(self.files);
        match self.operation {
            Operation::Write | Operation::Read => count as u64 * size_bytes,
            Operation::RandomRead | Operation::RandomWrite => self.operations(scale) * PAGE_BYTES,
            Operation::FirstByte => count as u64 * PAGE_BYTES.min(size_bytes),
            Operation::Mixed => (count as u64 - count as u64 / 10) * size_bytes,
            _ => 0,
        }
    }

    /// Returns the number of bytes that the store must have sent for a run of the job to count as cold; 0 for a job that does not only read,
    /// for which this is not checked.
    pub fn fetched_bytes(&self, scale: &Scale) -> u64 {
        match self.operation {
            Operation::Read | Operation::RandomRead | Operation::FirstByte => self.bytes(scale),
            _ => 0,
        }
    }

    /// Returns the number of operations of the job; 0 for fio, which reports it afterwards.
    pub fn operations(&self, scale: &Scale) -> u64 {
        let (count, size_bytes) = scale.files(self.files);
        match self.operation {
            Operation::RandomRead | Operation::RandomWrite => {
                (scale.blocks * self.threads as u64).min(size_bytes / PAGE_BYTES)
            }
            Operation::Program => self.program.as_ref().map_or(1, |program| program.operations),
            Operation::Fio => 0,
            Operation::Trace => self.resolved.steps.len() as u64,
            _ => count as u64,
        }
    }

    /// Returns the steps of the job's trace.
    pub fn steps(&self) -> &Arc<Vec<TraceStep>> {
        &self.resolved.steps
    }

    /// Reads the steps of the job's trace, if it has one. Its path is relative to `dir`.
    pub(super) fn load_trace(&mut self, dir: &Path) -> Result<(), WorkloadError> {
        let Some(trace) = &self.trace else { return Ok(()) };
        let path = dir.join(trace);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| WorkloadError::File { path: path.clone(), source })?;
        let steps = parse_trace(&text).map_err(|source| WorkloadError::Trace { path, source })?;
        self.resolved.steps = Arc::new(steps);
        Ok(())
    }
}

/// Returns the files that are in a directory after these jobs.
fn files_left_by(folder: &str, jobs: &[Job], kind: FileKind, scale: &Scale, seed: u64) -> Vec<JobFile> {
    let (count, size_bytes) = scale.files(kind);
    let suffix = if jobs.iter().any(|job| job.operation == Operation::Rename) { RENAMED } else { "" };
    let writers = jobs.iter().filter(|job| job.operation == Operation::RandomWrite);
    let pages: BTreeSet<u64> =
        writers.flat_map(|job| job.offsets(scale, seed)).map(|offset| offset / PAGE_BYTES).collect();
    let rewritten = (!pages.is_empty()).then(|| Arc::new(Rewritten { pages }));
    let file = |number| JobFile {
        number,
        path: format!("{folder}/{number:05}{suffix}"),
        size_bytes,
        rewritten: rewritten.clone(),
    };
    (0..count).map(file).collect()
}

/// Shuffles by Fisher and Yates.
fn shuffle<T>(items: &mut [T], entropy: &Entropy) {
    for at in (1..items.len()).rev() {
        items.swap(at, entropy.below(at as u64 + 1) as usize);
    }
}

/// Returns the FNV-1a hash of a name, by which the jobs of a workload access different blocks.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
