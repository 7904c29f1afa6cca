//! Opens the bucket behind a volume: an S3 client with credentials, a drive, or a local directory.

pub(crate) mod devices;
pub(crate) mod disk_space;
pub(crate) mod drive_holder;
pub(crate) mod drives;
pub(crate) mod embedded;
pub(crate) mod export;
pub(crate) mod local_buckets;

use crate::bucket::drive_holder;
use crate::bucket::drives::DrivesOptions;
use crate::bucket::embedded;
use crate::bucket::local_buckets::LocalBuckets;
use crate::command::flags::StoreFlags;
use crate::process::environment;
use crate::state;
use crate::volume::{self, ObjectLocation, Volume};
use anyhow::{Context, Error, Result, anyhow};
use drive::OpenOptions;
use staging::joined::JoinedStore;
use staging::writeback::{Writeback, WritebackOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::accounts::Accounts;
use store::wrap::{Operation, Trace, Traced};
use store::{Buckets, Clock, Entropy, ObjectStore, StoreError};
use store_dir::{DirOptions, DirStore};
use store_s3::{Addressing, Credentials, CredentialsSource, Found, RequestKind, S3Buckets, S3Config, Search};

/// Minimum timeout of an answer. A short retry timeout also shortens the timeout of single attempts, but not below
/// this.
const ANSWER_WITHIN_MIN: Duration = Duration::from_secs(5);

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

/// An owner of buckets: a profile of the AWS files, or `None` for the account that the flags and the environment
/// name.
pub(crate) type Account = Option<String>;

/// Source of request counts: requests on the wire for a server, calls for a local store.
#[derive(Debug, Clone)]
enum RequestCounter {
    Wire(Vec<Arc<store_s3::RequestCounts>>),
    Calls(Trace),
}

/// The clock and the random numbers of this process.
#[derive(Debug, Clone)]
pub(crate) struct ProcessContext {
    /// The system clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Random numbers, seeded by the system.
    pub(crate) entropy: Arc<Entropy>,
}

impl ProcessContext {
    /// Returns the clock and the random numbers of the system.
    pub(crate) fn system() -> Result<Self> {
        let seed = crate::command::format::random_bytes()?;
        Ok(Self { clock: Arc::new(store::SystemClock), entropy: Arc::new(Entropy::keyed(&seed)) })
    }
}

impl Bucket {
    /// Opens the bucket. For a server, one request tells whether it can be used.
    pub(crate) async fn open(
        volume: &Volume,
        flags: &StoreFlags,
        read_only: bool,
        context: &ProcessContext,
    ) -> Result<Self> {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        Self::open_with(volume, flags, options, context).await
    }

    /// Like `open`, with all options of a drive. Other stores use only `read_only`.
    pub(crate) async fn open_with(
        volume: &Volume,
        flags: &StoreFlags,
        options: OpenOptions,
        context: &ProcessContext,
    ) -> Result<Self> {
        let read_only = options.read_only;
        match volume {
            Volume::S3 { bucket, .. } => Self::open_s3(bucket, flags, context).await,
            Volume::Directory { root } => Self::open_dir(root, read_only, context),
            Volume::Embedded { root } => match volume::read_record(root)?.objects {
                ObjectLocation::Directory => Self::open_dir(&volume::objects_dir(root), read_only, context),
                ObjectLocation::Drive => {
                    let (store, local) = embedded::open(root, options, context).await?;
                    Ok(Self { local: Some(Arc::new(local)), ..Self::from_store(store) })
                }
            },
            Volume::Drive { .. } | Volume::Directories { .. } => {
                let opening = DrivesOptions { options, degraded: flags.degraded };
                Ok(Self::from_local(LocalBuckets::open(volume, opening, context).await?))
            }
            Volume::Buckets { names, accounts, .. } => {
                Self::open_buckets(names.as_ref(), accounts, flags, context).await
            }
        }
    }

    /// Opens the bucket or, if only one process can have it open, connects to the endpoint of that process.
    pub(crate) async fn open_or_connect(
        volume: &Volume,
        flags: &StoreFlags,
        read_only: bool,
        context: &ProcessContext,
    ) -> Result<Self> {
        match drive_holder::holder_of_volume(volume) {
            Some(holder) => Ok(Self::from_store(drive_holder::connect(&holder, context).await?)),
            None => Self::open(volume, flags, read_only, context).await,
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
        match &self.requests {
            RequestCounter::Wire(accounts) => {
                let mut sum = BTreeMap::new();
                for (kind, count) in accounts.iter().flat_map(|counts| counts.snapshot()) {
                    *sum.entry(kind.name().to_owned()).or_default() += count;
                }
                sum
            }
            RequestCounter::Calls(trace) => {
                let counts = trace.counts();
                let named = |call| (request_kind(call).name().to_owned(), counts.of(call));
                Operation::ALL.into_iter().map(named).collect()
            }
        }
    }

    async fn open_s3(bucket: &str, flags: &StoreFlags, context: &ProcessContext) -> Result<Self> {
        let (buckets, counts) = sign_in(&[None].into(), flags, context).await?;
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
        flags: &StoreFlags,
        context: &ProcessContext,
    ) -> Result<Self> {
        let (buckets, counts) = sign_in(accounts, flags, context).await?;
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

/// Returns an error if none of the buckets can be opened. Views report the others, and retry them.
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

/// Returns all buckets that the credentials of the accounts can access.
pub(crate) async fn open_accounts(
    accounts: &BTreeSet<Account>,
    flags: &StoreFlags,
    context: &ProcessContext,
) -> Result<Arc<dyn Buckets>> {
    Ok(sign_in(accounts, flags, context).await?.0)
}

/// Signs in to the accounts. Returns their buckets, and the request counts of each account.
async fn sign_in(
    accounts: &BTreeSet<Account>,
    flags: &StoreFlags,
    context: &ProcessContext,
) -> Result<(Arc<dyn Buckets>, Vec<Arc<store_s3::RequestCounts>>)> {
    let (mut reached, mut counts) = (BTreeMap::<Account, Arc<dyn Buckets>>::new(), Vec::new());
    for account in accounts {
        let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
        let buckets = S3Buckets::new(s3_config(flags, account.as_deref())?, clock, entropy)?;
        buckets.sign_in().await?;
        counts.push(buckets.requests());
        reached.insert(account.clone(), Arc::new(buckets));
    }
    Ok((Arc::new(Accounts::new(reached)), counts))
}

/// Returns the S3 request that corresponds to a call of a store.
fn request_kind(call: Operation) -> RequestKind {
    match call {
        Operation::Get => RequestKind::Get,
        Operation::Head => RequestKind::Head,
        Operation::Put => RequestKind::Put,
        Operation::Copy => RequestKind::Copy,
        Operation::Delete => RequestKind::Delete,
        Operation::List => RequestKind::List,
        Operation::GetTags => RequestKind::GetTags,
        Operation::SetTags => RequestKind::PutTags,
        Operation::BeginMultipart => RequestKind::Multipart,
        Operation::PutPart => RequestKind::Part,
        Operation::CopyPart => RequestKind::PartCopy,
        Operation::Complete => RequestKind::Complete,
        Operation::Abort => RequestKind::Abort,
    }
}

/// Returns the endpoint that the flags or the environment name. It is part of a volume's identity.
pub(crate) fn endpoint_url(flags: &StoreFlags) -> Option<String> {
    flags
        .endpoint_url
        .clone()
        .or_else(|| environment::variable("AWS_ENDPOINT_URL_S3"))
        .or_else(|| environment::variable("AWS_ENDPOINT_URL"))
}

/// Returns the state directory that the flags name, or the volume's default.
pub(crate) fn state_dir(volume: &Volume, named: Option<&Path>, flags: &StoreFlags) -> PathBuf {
    let own = || state::default_dir(volume, endpoint_url(flags).as_deref(), &environment::states_dir());
    named.map_or_else(own, Path::to_owned)
}

/// Returns the settings for accessing the buckets of an account.
pub(crate) fn s3_config(flags: &StoreFlags, account: Option<&str>) -> Result<S3Config> {
    let found = match account {
        None => default_account(flags)?,
        Some(name) => profile_account(name).with_context(|| format!("the account '{name}'"))?,
    };
    let mut config = S3Config {
        endpoint: found.endpoint,
        credentials: found.credentials,
        ca_bundle: flags.ca_bundle.clone(),
        addressing: addressing(flags),
        ..S3Config::default()
    };
    config.retry.budget = flags.retry_timeout;
    let answer = flags.retry_timeout.clamp(ANSWER_WITHIN_MIN, config.timeouts.answer);
    (config.timeouts.answer, config.timeouts.stall) = (answer, answer);
    if let Some(region) = found.region {
        config.region = region;
    }
    Ok(config)
}

fn addressing(flags: &StoreFlags) -> Option<Addressing> {
    match (flags.force_path_style, flags.virtual_host_style) {
        (true, _) => Some(Addressing::Path),
        (_, true) => Some(Addressing::Host),
        _ => None,
    }
}

/// Returns the settings of the flags, completed from the environment.
fn default_account(flags: &StoreFlags) -> Result<Found> {
    let found = credentials(flags)?;
    let (endpoint, region) = (flags.endpoint_url.clone(), flags.region.clone());
    Ok(Found { endpoint: endpoint.or(found.endpoint), region: region.or(found.region), ..found })
}

/// Returns the settings of a profile. Endpoint and region in the environment are for the default account only.
fn profile_account(name: &str) -> Result<Found> {
    let env = |name: &str| match name {
        "AWS_ENDPOINT_URL" | "AWS_ENDPOINT_URL_S3" | "AWS_REGION" | "AWS_DEFAULT_REGION" => None,
        _ => environment::variable(name),
    };
    Ok(Search { explicit: None, profile: Some(name.to_owned()), region: None, env: &env }.run()?)
}

fn credentials(flags: &StoreFlags) -> Result<Found> {
    if flags.no_sign_request {
        let region =
            environment::variable("AWS_REGION").or_else(|| environment::variable("AWS_DEFAULT_REGION"));
        return Ok(Found {
            credentials: CredentialsSource::Anonymous,
            region,
            endpoint: endpoint_url(flags),
        });
    }
    let explicit = flags.access_key_file.as_deref().map(read_key_file).transpose()?;
    let (profile, region) = (flags.profile.clone(), flags.region.clone());
    Ok(Search { explicit, profile, region, env: &environment::variable }.run()?)
}

/// Reads `ACCESS-KEY:SECRET-KEY[:SESSION-TOKEN]` from the first line of a file that only its owner may read.
fn read_key_file(path: &Path) -> Result<Credentials> {
    let shown = path.display();
    let text = state::read_secret(path)?;
    let mut parts = text.lines().next().unwrap_or_default().trim().splitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(access), Some(secret), token) => {
            Credentials::new(access, secret, token).with_context(|| shown.to_string())
        }
        _ => Err(anyhow!("{shown} has no ACCESS-KEY:SECRET-KEY in its first line")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn key_file(text: &str, mode: u32) -> (tempfile::NamedTempFile, Result<Credentials>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        let read = read_key_file(file.path());
        (file, read)
    }

    #[test]
    fn a_key_file_is_read_only_when_it_is_private() {
        assert_eq!(key_file("AKIA:hush\n", 0o600).1.unwrap().access_key(), "AKIA");
        let refused = format!("{:#}", key_file("AKIA:hush\n", 0o644).1.unwrap_err());
        assert!(refused.contains("chmod 600") && !refused.contains("hush"), "{refused}");
        let refused = format!("{:#}", key_file("hush\n", 0o600).1.unwrap_err());
        assert!(refused.contains("no ACCESS-KEY:SECRET-KEY") && !refused.contains("hush"), "{refused}");
    }
}
