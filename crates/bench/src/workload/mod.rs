//! Workloads: jobs as data, and the scale that gives their files numbers and sizes.
//!
//! Invariant: a job that reads names an earlier job that writes the same files.

use serde::{Deserialize, Serialize};
use store::Entropy;

/// The six jobs of the paper.
const PAPER: &str = include_str!("../workloads/paper.toml");

/// Jobs in their order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Name.
    pub name: String,
    /// Jobs.
    #[serde(rename = "job")]
    pub jobs: Vec<Job>,
}

/// A job: every file is written or read once, by threads that share the files.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Name in results.
    pub name: String,
    /// Name in reports.
    pub title: String,
    /// Whether the job writes or reads.
    pub operation: Operation,
    /// Which files.
    pub files: FileKind,
    /// Number of threads.
    pub threads: usize,
    /// For a job that reads: the job that wrote the files.
    pub reads: Option<String>,
    /// For a job that writes: whether the package's processes are killed as soon as the last file is closed. Files that were acknowledged
    /// must be in the bucket all the same.
    #[serde(default)]
    pub kills: bool,
}

/// The operation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Creates files, writes them in order, and closes them.
    Write,
    /// Reads files in order and compares every byte.
    Read,
}

/// Files of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// Few large files, in order.
    Big,
    /// Many small files, in random order.
    Small,
}

/// Numbers and sizes of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Number of big files.
    pub big_files: usize,
    /// Size of a big file.
    pub big_bytes: u64,
    /// Number of small files.
    pub small_files: usize,
    /// Size of a small file.
    pub small_bytes: u64,
}

/// Problems of a workload.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file is no TOML, or misses a field.
    #[error("{}", .0.message().lines().next().unwrap_or_default())]
    Toml(#[from] toml::de::Error),
    /// A job that reads does not name an earlier job that writes the same files.
    #[error("job '{0}' must name in `reads` an earlier job that writes the same files")]
    Reads(String),
    /// Two jobs have one name.
    #[error("job '{0}' exists twice")]
    Duplicate(String),
    /// A job has no thread.
    #[error("job '{0}' needs at least one thread")]
    NoThread(String),
}

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// Number, from 0; the content is a function of it.
    pub number: usize,
    /// Path below the mount point, and key in the bucket: `job1/00007`.
    pub path: String,
    /// Size.
    pub size_bytes: u64,
}

impl Workload {
    /// Returns the six jobs of the paper.
    ///
    /// # Errors
    /// None in a correct build: a test parses the shipped file.
    pub fn paper() -> Result<Self, WorkloadError> {
        Self::parse(PAPER)
    }

    /// Parses a workload file.
    ///
    /// # Errors
    /// The first problem of the file.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let workload: Self = toml::from_str(text)?;
        for (at, job) in workload.jobs.iter().enumerate() {
            let earlier = &workload.jobs[..at];
            if earlier.iter().any(|other| other.name == job.name) {
                return Err(WorkloadError::Duplicate(job.name.clone()));
            }
            if job.threads == 0 {
                return Err(WorkloadError::NoThread(job.name.clone()));
            }
            let is_source = |other: &&Job| {
                Some(&other.name) == job.reads.as_ref()
                    && other.operation == Operation::Write
                    && other.files == job.files
            };
            if (job.operation == Operation::Read) != earlier.iter().any(|other| is_source(&other)) {
                return Err(WorkloadError::Reads(job.name.clone()));
            }
        }
        Ok(workload)
    }

    /// Returns the job of a name.
    pub fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.name == name)
    }
}

impl Job {
    /// Returns the directory of the job's files.
    pub fn folder(&self) -> &str {
        self.reads.as_deref().unwrap_or(&self.name)
    }

    /// Returns the job's files in order of their numbers.
    pub fn files(&self, scale: &Scale) -> Vec<JobFile> {
        let (count, size_bytes) = scale.files(self.files);
        let folder = self.folder();
        let file = |number| JobFile { number, path: format!("{folder}/{number:05}"), size_bytes };
        (0..count).map(file).collect()
    }

    /// Returns the files of each thread, in the order in which the thread takes them. Small files are shuffled: the seed gives the same
    /// order for every package.
    pub fn shares(&self, scale: &Scale, seed: u64) -> Vec<Vec<JobFile>> {
        let mut files = self.files(scale);
        if self.files == FileKind::Small {
            shuffle(&mut files, &Entropy::new(seed));
        }
        let share = |thread| files.iter().skip(thread).step_by(self.threads).cloned().collect();
        (0..self.threads).map(share).collect()
    }

    /// Returns the number of bytes of all files.
    pub fn bytes(&self, scale: &Scale) -> u64 {
        let (count, size_bytes) = scale.files(self.files);
        count as u64 * size_bytes
    }
}

impl Scale {
    /// Smallest scale, for tests: seconds.
    pub const TINY: Self = Self { big_files: 8, big_bytes: 2 << 20, small_files: 64, small_bytes: 64 << 10 };
    /// Default scale: minutes.
    pub const SMALL: Self =
        Self { big_files: 8, big_bytes: 64 << 20, small_files: 1024, small_bytes: 64 << 10 };
    /// Scale of the paper: 8 files of 1 GiB, 32,768 files of 64 KiB.
    pub const PAPER: Self =
        Self { big_files: 8, big_bytes: 1 << 30, small_files: 32_768, small_bytes: 64 << 10 };

    fn files(&self, kind: FileKind) -> (usize, u64) {
        match kind {
            FileKind::Big => (self.big_files, self.big_bytes),
            FileKind::Small => (self.small_files, self.small_bytes),
        }
    }
}

/// Shuffles by Fisher and Yates.
fn shuffle<T>(items: &mut [T], entropy: &Entropy) {
    for at in (1..items.len()).rev() {
        items.swap(at, entropy.below(at as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_shipped_workload_is_that_of_the_paper() {
        let paper = Workload::paper().unwrap();
        assert_eq!(paper.jobs.len(), 6);
        let bytes: Vec<u64> = paper.jobs.iter().map(|job| job.bytes(&Scale::PAPER) >> 20).collect();
        assert_eq!(bytes, [8192, 8192, 8192, 8192, 2048, 2048]);
        let threads: Vec<usize> = paper.jobs.iter().map(|job| job.threads).collect();
        assert_eq!(threads, [1, 1, 8, 8, 16, 16]);
        let shares = paper.job("job5").unwrap().shares(&Scale::PAPER, 1);
        assert!(shares.iter().all(|share| share.len() == 2048));
    }

    #[test]
    fn threads_share_all_files_in_an_order_given_by_the_seed() {
        let paper = Workload::paper().unwrap();
        let job = paper.job("job6").unwrap();
        let (one, again, other) =
            (job.shares(&Scale::TINY, 1), job.shares(&Scale::TINY, 1), job.shares(&Scale::TINY, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        let numbers: BTreeSet<usize> = one.iter().flatten().map(|file| file.number).collect();
        assert_eq!(numbers, (0..64).collect());
        let big = paper.job("job4").unwrap().shares(&Scale::TINY, 1);
        assert_eq!(big[7], [JobFile { number: 7, path: "job3/00007".into(), size_bytes: 2 << 20 }]);
    }

    #[test]
    fn problems_of_a_file_are_found() {
        let job = |name: &str, rest: &str| {
            format!("[[job]]\nname = \"{name}\"\ntitle = \"t\"\nfiles = \"big\"\n{rest}\n")
        };
        let write = job("w", "operation = \"write\"\nthreads = 1");
        for (jobs, problem) in [
            (format!("{write}{write}"), "twice"),
            (job("w", "operation = \"write\"\nthreads = 0"), "at least one thread"),
            (job("r", "operation = \"read\"\nthreads = 1"), "must name"),
            (format!("{write}{}", job("r", "operation = \"read\"\nthreads = 1\nreads = \"x\"")), "must name"),
        ] {
            let error = Workload::parse(&format!("name = \"n\"\n{jobs}")).unwrap_err().to_string();
            assert!(error.contains(problem), "{jobs}: {error}");
        }
    }
}
