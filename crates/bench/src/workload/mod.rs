//! Workloads: jobs as data, and the scale that gives their files numbers and sizes.
//!
//! Invariants: a job that needs files names an earlier job that leaves them; the tasks of a job are a function of workload, scale and
//! seed, the same for every package.

mod job;
mod scale;
mod task;
mod trace;
mod trace_order;
mod workload_error;

use job::Resolved;
pub use job::{FileKind, ForeignProgram, Job, JobColumn, Operation, SyncPolicy, Unit};
pub use scale::Scale;
pub(crate) use task::PAGE_BYTES;
pub use task::{JobFile, Rewritten, Task};
pub use trace::{TraceCall, TraceError, TraceStep, parse_trace};

pub use trace_order::ReplayThread;
#[cfg(test)]
pub(crate) use trace_order::order_threads;
pub use workload_error::WorkloadError;

use serde::Deserialize;
use std::path::Path;

/// The shipped workloads, by name.
const SHIPPED: [(&str, &str); 5] = [
    ("paper", include_str!("../../workloads/paper.toml")),
    ("random", include_str!("../../workloads/random.toml")),
    ("metadata", include_str!("../../workloads/metadata.toml")),
    ("mixed", include_str!("../../workloads/mixed.toml")),
    ("fio", include_str!("../../workloads/fio.toml")),
];

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

impl Workload {
    /// Returns the six jobs of the paper.
    ///
    /// # Errors
    /// None in a correct build: a test parses the shipped files.
    pub fn paper() -> Result<Self, WorkloadError> {
        Self::parse(SHIPPED[0].1, Path::new(""))
    }

    /// Returns the shipped workload of a name, or that of a file.
    ///
    /// # Errors
    /// If there is none, or its file is not valid.
    pub fn find(name: &str) -> Result<Self, WorkloadError> {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Self::parse(text, Path::new(""));
        }
        let path = Path::new(name);
        if !path.exists() {
            let names: Vec<&str> = SHIPPED.iter().map(|(shipped, _)| *shipped).collect();
            return Err(WorkloadError::Unknown(name.to_owned(), names.join(", ")));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|source| WorkloadError::File { path: path.to_owned(), source })?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("")))
    }

    /// Parses a workload file. Paths of traces are relative to `dir`.
    ///
    /// # Errors
    /// The first problem of the file.
    pub fn parse(text: &str, dir: &Path) -> Result<Self, WorkloadError> {
        let mut workload: Self = toml::from_str(text)?;
        for at in 0..workload.jobs.len() {
            let (earlier, rest) = workload.jobs.split_at_mut(at);
            if let Some(job) = rest.first_mut() {
                check(job, earlier)?;
                job.resolved.ancestors = ancestors(job, earlier);
                job.load_trace(dir)?;
            }
        }
        Ok(workload)
    }

    /// Returns the jobs of several workloads as one.
    ///
    /// # Errors
    /// [`WorkloadError::Duplicate`].
    pub fn joined(workloads: Vec<Self>) -> Result<Self, WorkloadError> {
        let names: Vec<String> = workloads.iter().map(|workload| workload.name.clone()).collect();
        let jobs: Vec<Job> = workloads.into_iter().flat_map(|workload| workload.jobs).collect();
        for (at, job) in jobs.iter().enumerate() {
            if jobs[..at].iter().any(|earlier| earlier.name == job.name) {
                return Err(WorkloadError::Duplicate(job.name.clone()));
            }
        }
        Ok(Self { name: names.join("+"), jobs })
    }

    /// Returns the workload with these jobs only, and those whose files they need; `None` if it does not have one of them.
    pub fn only(&self, names: &[String]) -> Option<Self> {
        let chosen: Option<Vec<&Job>> = names.iter().map(|name| self.job(name)).collect();
        let chosen = chosen?;
        let is_needed = |job: &&Job| {
            chosen.iter().any(|one| one.name == job.name || one.needs().any(|name| name == job.name))
        };
        Some(Self { name: self.name.clone(), jobs: self.jobs.iter().filter(is_needed).cloned().collect() })
    }

    /// Returns the job of a name.
    pub fn job(&self, name: &str) -> Option<&Job> {
        self.jobs.iter().find(|job| job.name == name)
    }

    /// Returns the space that a volume needs for the files of all jobs at once, in bytes, with room for what a package adds.
    pub fn capacity_bytes(&self, scale: &Scale) -> u64 {
        let written = self.jobs.iter().filter(|job| job.operation.makes_files());
        let bytes: u64 = written.map(|job| job.bytes(scale)).sum();
        (2 * bytes + (2 << 30)).next_multiple_of(1 << 20)
    }
}

/// Checks a job against the jobs before it in the workload.
fn check(job: &Job, earlier: &[Job]) -> Result<(), WorkloadError> {
    let name = || job.name.clone();
    if earlier.iter().any(|other| other.name == job.name) {
        return Err(WorkloadError::Duplicate(name()));
    }
    if job.threads == 0 {
        return Err(WorkloadError::NoThread(name()));
    }
    match job.operation {
        Operation::Fio if job.script.is_none() => return Err(WorkloadError::Missing(name(), "script")),
        Operation::Program if job.program.is_none() => {
            return Err(WorkloadError::Missing(name(), "program"));
        }
        Operation::Trace if job.trace.is_none() => return Err(WorkloadError::Missing(name(), "trace")),
        _ => {}
    }
    if !job.operation.needs_files() {
        return if job.reads.is_some() { Err(WorkloadError::NoReads(name())) } else { Ok(()) };
    }
    let is_source = |other: &Job| {
        Some(&other.name) == job.reads.as_ref() && other.operation.leaves_files() && other.files == job.files
    };
    if earlier.iter().any(is_source) { Ok(()) } else { Err(WorkloadError::Reads(name())) }
}

/// Returns the jobs whose files a job needs, the first writer first.
fn ancestors(job: &Job, earlier: &[Job]) -> Vec<Job> {
    let source = earlier.iter().find(|other| Some(&other.name) == job.reads.as_ref());
    let Some(source) = source else { return Vec::new() };
    let own = Job { resolved: Resolved::default(), ..source.clone() };
    source.resolved.ancestors.iter().cloned().chain([own]).collect()
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
        let files: Vec<usize> = paper.jobs.iter().map(|job| job.files(&Scale::PAPER, 1).len()).collect();
        assert_eq!(files, [8, 8, 8, 8, 32_768, 32_768]);
        let threads: Vec<usize> = paper.jobs.iter().map(|job| job.threads).collect();
        assert_eq!(threads, [1, 1, 8, 8, 16, 16]);
        let shares = paper.job("job5").unwrap().tasks(&Scale::PAPER, 1);
        assert!(shares.iter().all(|share| share.len() == 2048));
    }

    #[test]
    fn every_shipped_workload_is_valid() {
        let all: Result<Vec<Workload>, _> = SHIPPED.iter().map(|(name, _)| Workload::find(name)).collect();
        assert!(Workload::joined(all.unwrap()).unwrap().jobs.len() > 20);
        assert!(Workload::find("nothing").unwrap_err().to_string().contains("metadata"));
    }

    #[test]
    fn threads_share_all_files_in_an_order_given_by_the_seed() {
        let paper = Workload::paper().unwrap();
        let job = paper.job("job6").unwrap();
        let (one, again, other) =
            (job.tasks(&Scale::TINY, 1), job.tasks(&Scale::TINY, 1), job.tasks(&Scale::TINY, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        let number = |task: &Task| match task {
            Task::Read(file) => file.number,
            other => panic!("{other:?}"),
        };
        let numbers: BTreeSet<usize> = one.iter().flatten().map(number).collect();
        assert_eq!(numbers, (0..64).collect());
        let big = paper.job("job4").unwrap().tasks(&Scale::TINY, 1);
        let file = JobFile { number: 7, path: "job3/00007".into(), size_bytes: 2 << 20, rewritten: None };
        assert_eq!(big[7], [Task::Read(file)]);
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
            (format!("{write}{}", job("v", "operation = \"write\"\nthreads = 1\nreads = \"w\"")), "must not"),
            (job("f", "operation = \"fio\"\nthreads = 1"), "needs `script`"),
            (job("t", "operation = \"trace\"\nthreads = 1\ntrace = \"no-such-file\""), "no-such-file"),
        ] {
            let error =
                Workload::parse(&format!("name = \"n\"\n{jobs}"), Path::new("")).unwrap_err().to_string();
            assert!(error.contains(problem), "{jobs}: {error}");
        }
    }

    /// A job that follows a rename finds the new names, and one that follows random writes the new content.
    #[test]
    fn files_are_as_the_jobs_before_left_them() {
        let metadata = Workload::find("metadata").unwrap();
        let unlinked = metadata.job("unlink").unwrap().files(&Scale::TINY, 1);
        assert_eq!(unlinked[3].path, "create/00003.renamed");
        let random = Workload::find("random").unwrap();
        let (before, after) =
            (random.job("random-read-1").unwrap(), random.job("random-write-sync").unwrap());
        assert_eq!(before.files(&Scale::TINY, 1)[0].rewritten, None);
        let pages = |file: &JobFile| file.rewritten.as_ref().unwrap().pages.len() as u64;
        let written = pages(&after.files(&Scale::TINY, 1)[0]);
        assert_eq!(written, Scale::TINY.blocks);
        assert!(pages(&after.files_after(&Scale::TINY, 1)[0]) > written);
    }
}
