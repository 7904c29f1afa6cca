//! The minimum cost of a run on an endpoint that is paid for: requests, and bytes in each direction.
//!
//! It is what the raw client would need for the files of all sessions, with the comparison by the second client and the removal. A package
//! may need several times as many requests.

use super::run_plan::RunPlan;
use crate::package::Driver;
use crate::plan::Session;
use crate::results::Results;
use crate::workload::{Job, Operation, Scale};
use std::fmt;

/// Size of the parts of an upload, and of the ranges of a download.
const PART_BYTES: u64 = 8 << 20;
/// Objects in a page of a listing.
const PAGE_OBJECTS: u64 = 1000;

/// The minimum cost of a run on one platform.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cost {
    /// Name of the platform.
    pub platform: String,
    /// Requests.
    pub requests: u64,
    /// Bytes to the endpoint.
    pub uploaded_bytes: u64,
    /// Bytes from the endpoint.
    pub downloaded_bytes: u64,
}

impl RunPlan {
    /// Returns the minimum costs of what is left to measure, for each platform that is paid for.
    pub fn costs(&self, results: &Results) -> Vec<Cost> {
        let sessions = self.sessions(results);
        let paid = self.platforms.iter().filter(|platform| platform.is_paid());
        let costs = paid.map(|platform| {
            let mut cost = Cost { platform: platform.name.clone(), ..Cost::default() };
            for session in sessions.iter().filter(|session| session.platform == platform.name) {
                if self
                    .target(&session.target)
                    .is_some_and(|target| target.package.driver != Driver::Directory)
                {
                    cost.add_session(session, &self.scale);
                }
            }
            cost
        });
        costs.filter(|cost| cost.requests > 0).collect()
    }
}

impl Cost {
    /// Adds the requests and bytes of a session.
    fn add_session(&mut self, session: &Session, scale: &Scale) {
        // The bucket's creation and removal.
        self.requests += 2;
        for step in &session.steps {
            self.add_job(&step.job, scale);
        }
    }

    /// Adds the requests and bytes of a job.
    fn add_job(&mut self, job: &Job, scale: &Scale) {
        let (operations, bytes) = (job.operations(scale), job.bytes(scale));
        let file_bytes = bytes / operations.max(1);
        let reads = operations * file_bytes.div_ceil(PART_BYTES).max(1);
        let listing = operations.div_ceil(PAGE_OBJECTS);
        match job.operation {
            Operation::Write | Operation::Mixed => {
                let parts = file_bytes.div_ceil(PART_BYTES).max(1);
                let uploads = operations * if parts > 1 { parts + 2 } else { 1 };
                // The comparison reads every byte, and the removal deletes every object.
                self.requests += uploads + reads + operations + 2 * listing;
                self.uploaded_bytes += bytes;
                self.downloaded_bytes += bytes;
            }
            Operation::List => self.requests += listing,
            Operation::Rename => self.requests += 2 * operations + listing,
            _ => {
                self.requests += reads;
                self.downloaded_bytes += bytes;
            }
        }
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use harness::format::{bytes, count};
        write!(
            f,
            "{}: at least {} requests, {} to the endpoint and {} from it",
            self.platform,
            count(self.requests),
            bytes(self.uploaded_bytes as f64),
            bytes(self.downloaded_bytes as f64)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn the_six_jobs_cost_what_their_files_need() {
        let paper = Workload::paper().unwrap();
        let mut cost = Cost::default();
        cost.add_job(paper.job("job5").unwrap(), &Scale::SMALL);
        // A PUT, a GET and a DELETE for each file, and two listings of two pages.
        assert_eq!((cost.requests, cost.uploaded_bytes), (3 * 1024 + 4, 64 << 20));
        let mut cost = Cost::default();
        cost.add_job(paper.job("job1").unwrap(), &Scale::SMALL);
        // Eight parts and two more requests for each file, eight ranges, a DELETE.
        assert_eq!((cost.requests, cost.downloaded_bytes), (8 * (10 + 8 + 1) + 2, 512 << 20));
        cost.platform = "aws".into();
        assert_eq!(
            cost.to_string(),
            "aws: at least 154 requests, 512 MiB to the endpoint and 512 MiB from it"
        );
    }
}
