//! A bucket reached by Tenon's S3 client, without a file system: the baseline of all packages, and the second client that compares.

use crate::content::{Content, ContentChecker};
use crate::file_error::FileError;
use crate::workload::{JobFile, PAGE_BYTES, Task};
use futures_util::{StreamExt as _, TryStreamExt as _};
use harness::{Histogram, Stopwatch};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{
    Attributes, Buckets, Entropy, GetOptions, ListEntry, ListRequest, ListedObject, ObjectKey, ObjectStore,
    Pages, Payload, Precondition,
};
use store::{PutOptions, StoreError, SystemClock, Tags};
use store_s3::{ConfigError, Credentials, CredentialsSource, S3Buckets, S3Config};

/// Size of the parts of uploads and of the ranges of downloads.
const PART_BYTES: u64 = 8 << 20;
/// Parts or ranges in flight of a single stream.
const IN_FLIGHT_SINGLE: usize = 4;
/// Parts or ranges in flight of each of several streams.
const IN_FLIGHT_EACH: usize = 2;

/// A call on an object.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// Stores the object, without content.
    Put,
    /// Describes the object.
    Head,
    /// Removes the object.
    Delete,
}

/// A bucket reached by the raw client.
#[derive(Debug, Clone)]
pub struct Bucket {
    name: String,
    store: Arc<dyn ObjectStore>,
}

/// Makes a client of an endpoint. It must be called inside a tokio runtime.
///
/// # Errors
/// If the endpoint is not a URL, or a key cannot be sent.
pub fn s3_buckets(endpoint: &str, region: &str, keys: (&str, &str)) -> Result<S3Buckets, ConfigError> {
    let credentials = Credentials::new(keys.0, keys.1, None);
    let credentials = credentials.map_err(|error| ConfigError::Value(error.to_string()))?;
    let config = S3Config {
        endpoint: Some(endpoint.to_owned()),
        region: region.to_owned(),
        credentials: CredentialsSource::Fixed(Arc::new(credentials)),
        ..S3Config::default()
    };
    S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(1)))
}

impl Bucket {
    /// Makes a bucket.
    ///
    /// # Errors
    /// If it exists, or the store fails.
    pub async fn create(buckets: &dyn Buckets, name: &str) -> Result<Self, StoreError> {
        buckets.create(name).await?;
        Self::open(buckets, name).await
    }

    /// Opens an existing bucket.
    ///
    /// # Errors
    /// If it does not exist, or the store fails.
    pub async fn open(buckets: &dyn Buckets, name: &str) -> Result<Self, StoreError> {
        Ok(Self { name: name.to_owned(), store: buckets.open(name).await? })
    }

    /// Returns the name of the bucket.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does the tasks of each share in order, with all shares at once, and returns the durations of their operations.
    ///
    /// # Errors
    /// The first error of a file; a read compares every byte.
    pub async fn run(&self, shares: &[Vec<Task>]) -> Result<Histogram, FileError> {
        let in_flight = if shares.len() == 1 { IN_FLIGHT_SINGLE } else { IN_FLIGHT_EACH };
        let streams = shares.iter().map(|share| async move {
            let mut latency = Histogram::default();
            for task in share {
                self.run_task(task, in_flight, &mut latency).await?;
            }
            Ok(latency)
        });
        let streams = futures_util::stream::iter(streams).buffer_unordered(shares.len().max(1));
        let latencies: Vec<Histogram> = streams.try_collect().await?;
        Ok(latencies.iter().fold(Histogram::default(), |mut all, one| {
            all.merge(one);
            all
        }))
    }

    async fn run_task(
        &self,
        task: &Task,
        in_flight: usize,
        latency: &mut Histogram,
    ) -> Result<(), FileError> {
        let mut watch = Stopwatch::start();
        match task {
            Task::Write(file) => self.write(file, in_flight).await?,
            Task::Read(file) => self.read(file, in_flight).await?,
            Task::FirstByte(file) => {
                let start = file.middle();
                self.read_range(file, start, (start + PAGE_BYTES).min(file.size_bytes)).await?;
            }
            Task::ReadBlocks { file, offsets } => {
                for offset in offsets.iter() {
                    watch = Stopwatch::start();
                    self.read_range(file, *offset, (offset + PAGE_BYTES).min(file.size_bytes)).await?;
                    latency.record(watch.elapsed());
                }
                return Ok(());
            }
            Task::Stat(file) => self.stat(file).await?,
            Task::List { folder, files } => self.list(folder, files).await?,
            Task::Unlink(file) => {
                let removed = self.call_one(Call::Delete, &file.path).await;
                removed.map_err(FileError::store(&file.path))?;
            }
            Task::Rename { .. } => return Err(FileError::unsupported("the S3 API cannot rename an object")),
            Task::Replay(_) => {
                return Err(FileError::unsupported("a trace has calls on files, not on objects"));
            }
            Task::WriteBlocks { .. } => {
                return Err(FileError::unsupported("the S3 API cannot change a part of an object"));
            }
        }
        latency.record(watch.elapsed());
        Ok(())
    }

    /// Asks for the metadata of an object, and compares the size.
    async fn stat(&self, file: &JobFile) -> Result<(), FileError> {
        let failed = FileError::store(&file.path);
        let key = key(&file.path).map_err(&failed)?;
        let found_bytes = self.store.head(&key).await.map_err(&failed)?.size_bytes;
        FileError::check_size(&file.path, found_bytes, file.size_bytes)
    }

    /// Lists objects, and compares the sizes of those that must be listed.
    async fn list(&self, folder: &str, files: &[JobFile]) -> Result<(), FileError> {
        let sizes = self.sizes(&format!("{folder}/")).await.map_err(FileError::store(folder))?;
        for file in files {
            let missing = || FileError::Missing { file: file.path.clone() };
            FileError::check_size(&file.path, *sizes.get(&file.path).ok_or_else(missing)?, file.size_bytes)?;
        }
        Ok(())
    }

    /// Stores a file as one object, with `in_flight` parts in flight.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn write(&self, file: &JobFile, in_flight: usize) -> Result<(), FileError> {
        let failed = FileError::store(&file.path);
        let stored = self.store_file(file, in_flight).await;
        stored.map_err(failed)
    }

    /// Stores a file as an object, in parts if it is long.
    async fn store_file(&self, file: &JobFile, in_flight: usize) -> Result<(), StoreError> {
        let (key, bytes) = (key(&file.path)?, file.size_bytes);
        if bytes <= PART_BYTES {
            let body: Payload = Content::new(bytes).pieces(file, 0, bytes).into_iter().collect();
            self.store.put(&key, body, PutOptions::default()).await?;
            return Ok(());
        }
        let upload = self.store.multipart(&key, Attributes::default(), Tags::new()).await?;
        let parts = (0..bytes.div_ceil(PART_BYTES)).map(|part| {
            let upload = upload.clone();
            async move {
                let end = ((part + 1) * PART_BYTES).min(bytes);
                let pieces = Content::new(bytes).pieces(file, part * PART_BYTES, end);
                upload.put_part(part as u32 + 1, pieces.into_iter().collect()).await
            }
        });
        futures_util::stream::iter(parts).buffer_unordered(in_flight).try_collect::<Vec<()>>().await?;
        upload.complete(Precondition::None).await?;
        Ok(())
    }

    /// Reads a file with `in_flight` ranges in flight, and compares every byte.
    ///
    /// # Errors
    /// If a byte or the size differs, or the store fails.
    pub async fn read(&self, file: &JobFile, in_flight: usize) -> Result<(), FileError> {
        let bytes = file.size_bytes;
        let ranges = (0..bytes.div_ceil(PART_BYTES)).map(|part| async move {
            self.read_range(file, part * PART_BYTES, ((part + 1) * PART_BYTES).min(bytes)).await
        });
        let ranges = futures_util::stream::iter(ranges).buffer_unordered(in_flight);
        ranges.try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Reads a range of an object and compares every byte.
    async fn read_range(&self, file: &JobFile, start: u64, end: u64) -> Result<(), FileError> {
        let failed = FileError::store(&file.path);
        let range = (end - start < file.size_bytes).then_some(start..end);
        let options = GetOptions { range, ..GetOptions::default() };
        let key = key(&file.path).map_err(&failed)?;
        let mut body = self.store.get(&key, options).await.map_err(&failed)?.body;
        let mut checker = ContentChecker::new(Content::new(file.size_bytes), file, start);
        while let Some(piece) = body.try_next().await.map_err(&failed)? {
            if !checker.check_next(&piece) {
                return Err(FileError::WrongBytes { file: file.path.clone(), offset: checker.position() });
            }
        }
        match checker.position() == end {
            true => Ok(()),
            false => FileError::check_size(&file.path, checker.position(), file.size_bytes),
        }
    }

    /// Returns the size of each object below a prefix, by its key, with a sequential listing. Markers of directories are left out.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn sizes(&self, prefix: &str) -> Result<BTreeMap<String, u64>, StoreError> {
        let prefix = bytes::Bytes::copy_from_slice(prefix.as_bytes());
        let request = ListRequest { prefix, limit: 1000, ..ListRequest::default() };
        let entries = Pages::new(self.store.as_ref(), request).collect().await?;
        let size = |entry: ListEntry| match entry {
            ListEntry::Object(ListedObject { object, size_bytes, .. })
                if !object.key.as_bytes().ends_with(b"/") =>
            {
                Some((String::from_utf8_lossy(object.key.as_bytes()).into_owned(), size_bytes))
            }
            _ => None,
        };
        Ok(entries.into_iter().filter_map(size).collect())
    }

    /// Counts the objects with a prefix, with a sequential listing.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn count(&self, prefix: &str) -> Result<usize, StoreError> {
        Ok(self.sizes(prefix).await?.len())
    }

    /// Makes a call on an object.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn call_one(&self, call: Call, name: &str) -> Result<(), StoreError> {
        self.call_each(call, &[name.to_owned()], 1).await
    }

    /// Makes a call on each of these objects, with `concurrency` calls in flight.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn call_each(
        &self,
        call: Call,
        names: &[String],
        concurrency: usize,
    ) -> Result<(), StoreError> {
        let calls = names.iter().map(|name| async move {
            let key = key(name)?;
            match call {
                Call::Put => drop(self.store.put(&key, Payload::default(), PutOptions::default()).await?),
                Call::Head => drop(self.store.head(&key).await?),
                Call::Delete => self.store.delete(&key, Precondition::None).await?,
            }
            Ok(())
        });
        futures_util::stream::iter(calls).buffer_unordered(concurrency).try_collect().await
    }

    /// Stores an object with user metadata.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn put_described(
        &self,
        name: &str,
        body: &'static [u8],
        user: BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let attributes = Attributes { user, ..Attributes::default() };
        let options = PutOptions { attributes, ..PutOptions::default() };
        let body: Payload = body.to_vec().into();
        self.store.put(&key(name)?, body, options).await?;
        Ok(())
    }

    /// Returns the size and the user metadata of an object.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn described(&self, name: &str) -> Result<(u64, BTreeMap<String, String>), StoreError> {
        let meta = self.store.head(&key(name)?).await?;
        Ok((meta.size_bytes, meta.attributes.user))
    }

    /// Removes all objects.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn remove_all(&self) -> Result<(), StoreError> {
        loop {
            let page = self.store.list(ListRequest { limit: 1000, ..ListRequest::default() }).await?;
            if page.entries.is_empty() {
                return Ok(());
            }
            let removals = page.entries.iter().map(|entry| async move {
                let key = ObjectKey::try_from(entry.text());
                let key = key.map_err(|error| StoreError::Invalid(error.to_string()))?;
                self.store.delete(&key, Precondition::None).await
            });
            let removals = futures_util::stream::iter(removals).buffer_unordered(IN_FLIGHT_SINGLE);
            removals.try_collect::<Vec<()>>().await?;
        }
    }
}

fn key(path: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::try_from(path).map_err(|error| StoreError::Invalid(error.to_string()))
}
