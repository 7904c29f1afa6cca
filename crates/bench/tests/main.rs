//! Tests of the testbed as a whole: runs over directories and MinIO, and planted defects, each reported as exactly that.

mod bench_run;
mod defects;
mod fake;
mod minio;
mod resume;
