//! Fuzz target for the crate `fuzz`: the responses of a beanstalkd server.

pub use crate::beanstalkd::fuzz_jobs as jobs;
