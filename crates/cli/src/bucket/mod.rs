//! Opens the bucket behind a volume: an S3 client with credentials, a drive, or a local directory, with a write-back log in front of it if
//! wanted. Also counts its requests, measures its disk space, reaches a drive that another process has open, exports objects to
//! files, and stores streams of unknown length.

pub(crate) mod credentials;
pub(crate) mod devices;
pub(crate) mod disk_space;
pub(crate) mod drive_holder;
pub(crate) mod drives;
pub(crate) mod embedded_drive;
pub(crate) mod local_buckets;
pub(crate) mod object_copy;
pub(crate) mod request_counter;
pub(crate) mod stream_upload;

use crate::bucket::credentials::{StoreSettings, sign_in};
use crate::bucket::drives::DrivesOptions;
use crate::bucket::local_buckets::LocalBuckets;
use crate::bucket::request_counter::{RequestCounter, StoreFigures};
use crate::process::context::ProcessContext;
use crate::volume::embedded::{self, ObjectLocation};
use crate::volume::{Account, Volume};
use anyhow::{Context, Error, Result, anyhow};
use drive::OpenOptions;
use metrics::Observation;
use staging::joined::JoinedStore;
use staging::writeback::{Writeback, WritebackOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use store::wrap::{Trace, Traced};
use store::{Buckets, ObjectStore, StoreError, StoreRequest};
use store_dir::{DirOptions, DirStore};

/// An open bucket of a volume.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// The store with the volume's objects.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The single buckets, if the volume consists of several.
    pub(crate) buckets: Option<Arc<dyn Buckets>>,
    /// The drives or directories on this machine, if the objects are there. They must be closed at the end.
    pub(crate) local: Option<Arc<LocalBuckets>>,
    /// The write-back log in front of the store, if there is one.
    pub(crate) writeback: Option<Arc<Writeback>>,
    requests: RequestCounter,
}

impl Bucket {
    /// Opens the bucket, or all buckets, of a volume. For a server, requests check that they can be accessed.
    pub(crate) async fn open(
        volume: &Volume,
        settings: &StoreSettings,
        read_only: bool,
        context: &ProcessContext,
    ) -> Result<Self> {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        Self::open_with(volume, settings, options, context).await
    }

    /// Opens the bucket of a volume with all options of a drive. Local directories use only `read_only`, servers none of the options.
    pub(crate) async fn open_with(
        volume: &Volume,
        settings: &StoreSettings,
        options: OpenOptions,
        context: &ProcessContext,
    ) -> Result<Self> {
        let read_only = options.read_only;
        match volume {
            Volume::S3 { bucket, .. } => Self::open_s3(bucket, settings, context).await,
            Volume::Directory { root } => Self::open_dir(root, read_only, context),
            Volume::Embedded { root } => match embedded::read_record(root)?.objects {
                ObjectLocation::Directory => Self::open_dir(&embedded::objects_dir(root), read_only, context),
                ObjectLocation::Drive => {
                    let (store, local) = embedded_drive::open(root, options, context).await?;
                    Ok(Self { local: Some(Arc::new(local)), ..Self::from_store(store) })
                }
            },
            Volume::Drive { .. } | Volume::Directories { .. } => {
                let opening = DrivesOptions { options, degraded: settings.degraded };
                Ok(Self::from_local(LocalBuckets::open(volume, opening, context).await?))
            }
            Volume::Buckets { names, accounts, .. } => {
                Self::open_buckets(names.as_ref(), accounts, settings, context).await
            }
        }
    }

    /// Opens the bucket or, if another process has its drive open, connects to the endpoint of that process.
    pub(crate) async fn open_or_connect(
        volume: &Volume,
        settings: &StoreSettings,
        read_only: bool,
        context: &ProcessContext,
    ) -> Result<Self> {
        match drive_holder::holder_of_volume(volume) {
            Some(holder) => Ok(Self::from_store(drive_holder::connect(&holder, context).await?)),
            None => Self::open(volume, settings, read_only, context).await,
        }
    }

    /// Puts a write-back log in front of the store. Changes that are in the log already are visible from now on.
    pub(crate) fn add_writeback_log(
        &mut self,
        dir: &Path,
        options: WritebackOptions,
        context: &ProcessContext,
    ) -> Result<()> {
        let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
        let writeback = Writeback::open(dir, Arc::clone(&self.store), options, clock, entropy)
            .with_context(|| format!("cannot use the write-back log in {}", dir.display()))?;
        self.store = writeback.clone();
        self.writeback = Some(writeback);
        Ok(())
    }

    /// Returns the requests to the store so far, by kind, including kinds without requests.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        self.requests.by_kind()
    }

    /// Calls `observer` with each request to the store that ends and belongs to no operation in progress, until the returned values
    /// are dropped.
    pub(crate) fn observe_requests(
        &self,
        observer: impl Fn(&StoreRequest) + Clone + Send + Sync + 'static,
    ) -> Vec<Observation<StoreRequest>> {
        self.requests.observe(observer)
    }

    /// Returns outcomes, times and bytes of the requests to the store so far.
    pub(crate) fn store_figures(&self) -> StoreFigures {
        self.requests.figures()
    }

    async fn open_s3(bucket: &str, settings: &StoreSettings, context: &ProcessContext) -> Result<Self> {
        let (buckets, counts) = sign_in(&[None].into(), settings, context).await?;
        let store = buckets.open(bucket).await.map_err(|error| with_advice(error, bucket))?;
        Ok(Self {
            store,
            buckets: None,
            local: None,
            writeback: None,
            requests: RequestCounter::Wire(counts),
        })
    }

    /// Opens the named buckets, of which at least one must be accessible, or all buckets.
    async fn open_buckets(
        names: Option<&BTreeSet<String>>,
        accounts: &BTreeSet<Account>,
        settings: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<Self> {
        let (buckets, counts) = sign_in(accounts, settings, context).await?;
        match names {
            Some(names) => check_any_opens(&*buckets, names).await?,
            None => drop(buckets.list().await.context("cannot list the buckets")?),
        }
        let requests = RequestCounter::Wire(counts);
        let store = Arc::new(JoinedStore::new(Arc::clone(&buckets), names.cloned()));
        Ok(Self { store, buckets: Some(buckets), local: None, writeback: None, requests })
    }

    /// Opens all buckets of this machine's drives or directory.
    fn from_local(local: LocalBuckets) -> Self {
        let (trace, buckets) = (Trace::new(), local.buckets());
        let joined = JoinedStore::new(Arc::clone(&buckets), None);
        let store = Arc::new(Traced::new(joined, trace.clone()));
        Self {
            store,
            buckets: Some(buckets),
            local: Some(Arc::new(local)),
            writeback: None,
            requests: RequestCounter::Calls(trace),
        }
    }

    fn open_dir(root: &Path, read_only: bool, context: &ProcessContext) -> Result<Self> {
        let options = DirOptions { read_only, ..DirOptions::default() };
        let opened = DirStore::open(root, options, Arc::clone(&context.clock), Arc::clone(&context.entropy))
            .with_context(|| format!("cannot use {} as a bucket", root.display()))?;
        Ok(Self::from_store(opened))
    }

    /// Returns one bucket, with a count of its calls.
    fn from_store(opened: impl ObjectStore + 'static) -> Self {
        let trace = Trace::new();
        let store = Arc::new(Traced::new(opened, trace.clone()));
        Self { store, buckets: None, local: None, writeback: None, requests: RequestCounter::Calls(trace) }
    }
}

/// Returns an error if none of the buckets can be opened, or if one fails for another reason than missing or denied
/// before one opens. Views report the buckets that cannot be opened, and retry them.
async fn check_any_opens(buckets: &dyn Buckets, names: &BTreeSet<String>) -> Result<()> {
    let mut refused = None;
    for name in names {
        match buckets.open(name).await {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Denied(_) | StoreError::NoSuchBucket(_))) => {
                refused.get_or_insert(with_advice(error, name));
            }
            Err(error) => return Err(with_advice(error, name)),
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Adds advice that the store itself cannot give to its error.
fn with_advice(error: StoreError, bucket: &str) -> Error {
    let advice = match &error {
        StoreError::Denied(_) => Some("check the credentials, and that they may list and write the bucket"),
        StoreError::Throttled(_) => Some("try again later"),
        _ => None,
    };
    match advice {
        Some(advice) => anyhow!("cannot open s3://{bucket}: {error}; {advice}"),
        None => anyhow!("cannot open s3://{bucket}: {error}"),
    }
}
