//! The baseline: the jobs done by the S3 client without a mount.

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _};
use servers::S3Server;
use std::sync::Arc;
use store::{
    Buckets as _, Entropy, GetOptions, ListRequest, ObjectKey, ObjectStore, Pages, Payload, Precondition,
};
use store::{PutOptions, StoreError, SystemClock, Tags};
use store_s3::{Credentials, CredentialsSource, S3Buckets, S3Config};
use tokio::runtime::Runtime;

use super::content::{Content, ContentChecker};
use super::resource_usage::{self, Measured};
use super::{Job, Scale};

/// Size of the parts of uploads and of the ranges of downloads.
const PART_BYTES: u64 = 8 << 20;
/// Parts or ranges in flight of a single stream.
const IN_FLIGHT_SINGLE: usize = 4;
/// Parts or ranges in flight of each of several streams.
const IN_FLIGHT_EACH: usize = 2;

/// A call on an empty object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Put,
    Head,
    Delete,
}

/// A bucket reached by the raw client.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) name: String,
    store: Arc<dyn ObjectStore>,
}

impl Bucket {
    pub(super) fn create(server: &S3Server, name: &str, runtime: &Runtime) -> Result<Self> {
        let keys = (server.access_key(), server.secret_key());
        let buckets = buckets(server.endpoint(), server.region(), keys, runtime)?;
        runtime.block_on(buckets.create(name))?;
        Ok(Self { name: name.to_owned(), store: runtime.block_on(buckets.open(name))? })
    }

    /// Opens an existing bucket at an endpoint.
    pub(super) fn open(endpoint: String, keys: (&str, &str), name: &str, runtime: &Runtime) -> Result<Self> {
        let buckets = buckets(endpoint, "us-east-1", keys, runtime)?;
        Ok(Self { name: name.to_owned(), store: runtime.block_on(buckets.open(name))? })
    }

    /// Runs a job and measures it.
    pub(super) fn run_job(&self, job: &Job, scale: &Scale, runtime: &Runtime) -> Result<Measured> {
        let pid = std::process::id();
        let before = resource_usage::cpu_time(pid)?;
        let ((), wall) = resource_usage::timed(|| runtime.block_on(self.transfer_files(job, scale)))?;
        Ok(Measured { wall, cpu: resource_usage::cpu_time(pid)? - before, ..Measured::default() })
    }

    async fn transfer_files(&self, job: &Job, scale: &Scale) -> Result<()> {
        let (bytes, in_flight) =
            (job.file_bytes(scale), if job.threads == 1 { IN_FLIGHT_SINGLE } else { IN_FLIGHT_EACH });
        let files = job.paths(scale).into_iter().enumerate().map(|(file, path)| async move {
            let key = ObjectKey::try_from(path.as_str())?;
            if job.writes {
                self.write(file, &key, bytes, in_flight).await
            } else {
                self.read(file, &key, bytes, in_flight).await
            }
        });
        futures_util::stream::iter(files).buffer_unordered(job.threads).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    async fn write(&self, file: usize, key: &ObjectKey, bytes: u64, in_flight: usize) -> Result<()> {
        if bytes <= PART_BYTES {
            let body: Payload = Content::new(bytes).pieces(file, 0, bytes).into_iter().collect();
            self.store.put(key, body, PutOptions::default()).await?;
            return Ok(());
        }
        let upload = self.store.multipart(key, store::Attributes::default(), Tags::new()).await?;
        let parts = (0..bytes.div_ceil(PART_BYTES)).map(|part| {
            let upload = upload.clone();
            async move {
                let end = ((part + 1) * PART_BYTES).min(bytes);
                let body: Payload =
                    Content::new(bytes).pieces(file, part * PART_BYTES, end).into_iter().collect();
                upload.put_part(part as u32 + 1, body).await
            }
        });
        futures_util::stream::iter(parts).buffer_unordered(in_flight).try_collect::<Vec<()>>().await?;
        upload.complete(Precondition::None).await?;
        Ok(())
    }

    async fn read(&self, file: usize, key: &ObjectKey, bytes: u64, in_flight: usize) -> Result<()> {
        let ranges = (0..bytes.div_ceil(PART_BYTES)).map(|part| async move {
            let (start, end) = (part * PART_BYTES, ((part + 1) * PART_BYTES).min(bytes));
            let range = (end - start < bytes).then_some(start..end);
            let mut body = self.store.get(key, GetOptions { range, ..GetOptions::default() }).await?.body;
            let mut checker = ContentChecker::new(Content::new(bytes), file, start);
            while let Some(piece) = body.try_next().await? {
                ensure!(checker.check_next(&piece), "'{key}' has wrong bytes");
            }
            ensure!(checker.position() == end, "'{key}' is too short");
            anyhow::Ok(())
        });
        futures_util::stream::iter(ranges).buffer_unordered(in_flight).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Puts file 0, with `parts` parts in flight.
    pub(super) async fn put_file(&self, key: &str, bytes: u64, parts: usize) -> Result<()> {
        self.write(0, &ObjectKey::try_from(key)?, bytes, parts).await
    }

    /// Gets file 0 with `parts` ranges in flight, and compares its content.
    pub(super) async fn get_file(&self, key: &str, bytes: u64, parts: usize) -> Result<()> {
        self.read(0, &ObjectKey::try_from(key)?, bytes, parts).await
    }

    /// Checks that the bucket has all files of the job at their full size.
    pub(super) fn check_files(&self, job: &Job, scale: &Scale, runtime: &Runtime) -> Result<()> {
        let paths = job.paths(scale);
        let folder = paths.first().and_then(|path| path.split_once('/')).context("the job has no files")?.0;
        let sizes = runtime.block_on(self.sizes(&format!("{folder}/")))?;
        let complete = sizes.iter().filter(|size| **size == job.file_bytes(scale)).count();
        ensure!(complete == paths.len(), "the bucket has {complete} of {} files", paths.len());
        Ok(())
    }

    /// Counts the objects with a prefix, with a sequential listing.
    pub(super) async fn count(&self, prefix: &str) -> Result<usize> {
        Ok(self.sizes(prefix).await?.len())
    }

    /// Makes a call on an object.
    pub(super) async fn call_one(&self, call: Call, name: &str) -> Result<()> {
        self.call_each(call, &[name.to_owned()], 1).await
    }

    /// Makes a call on each of these objects, with `concurrency` calls in flight.
    pub(super) async fn call_each(&self, call: Call, names: &[String], concurrency: usize) -> Result<()> {
        let calls = names.iter().map(|name| async move {
            let key = ObjectKey::try_from(name.as_str())?;
            match call {
                Call::Put => drop(self.store.put(&key, Payload::default(), PutOptions::default()).await?),
                Call::Head => drop(self.store.head(&key).await?),
                Call::Delete => self.store.delete(&key, Precondition::None).await?,
            }
            anyhow::Ok(())
        });
        futures_util::stream::iter(calls).buffer_unordered(concurrency).try_collect().await
    }

    async fn sizes(&self, prefix: &str) -> Result<Vec<u64>, StoreError> {
        let prefix = bytes::Bytes::copy_from_slice(prefix.as_bytes());
        let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
        let entries = Pages::of(self.store.as_ref(), request).all().await?;
        let sizes = entries.iter().filter_map(|entry| match entry {
            store::ListEntry::Object { object, size_bytes } if !object.key.as_bytes().ends_with(b"/") => {
                Some(*size_bytes)
            }
            _ => None,
        });
        Ok(sizes.collect())
    }

    /// Removes all objects, so that every round begins with the same disk.
    pub(super) fn remove_all(&self, runtime: &Runtime) -> Result<()> {
        runtime.block_on(async {
            loop {
                let page = self.store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await?;
                if page.entries.is_empty() {
                    return Ok(());
                }
                for entry in page.entries {
                    self.store.delete(&ObjectKey::try_from(entry.text())?, Precondition::None).await?;
                }
            }
        })
    }
}

fn buckets(endpoint: String, region: &str, keys: (&str, &str), runtime: &Runtime) -> Result<S3Buckets> {
    let credentials = Credentials::new(keys.0, keys.1, None)?;
    let config = S3Config {
        endpoint: Some(endpoint),
        region: region.to_owned(),
        credentials: CredentialsSource::Fixed(Arc::new(credentials)),
        ..S3Config::default()
    };
    let _guard = runtime.enter();
    Ok(S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1)))?)
}
