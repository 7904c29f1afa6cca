//! Opening the bucket behind a volume: an S3 client with credentials, or a local directory.

use crate::drives::Opening;
use crate::embedded;
use crate::environment;
use crate::flags::StoreFlags;
use crate::held;
use crate::local::Local;
use crate::state;
use crate::volume::{self, ObjectsIn, Volume};
use anyhow::{Context, Error, Result, anyhow};
use drive::OpenOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::accounts::Accounts;
use store::dir::{DirOptions, DirStore};
use store::joined::JoinedStore;
use store::s3::{
    self, Addressing, Credentials, CredentialsSource, Found, RequestKind, S3Buckets, S3Config, Search,
};
use store::wrap::{Operation, Trace, Traced};
use store::writeback::{Writeback, WritebackOptions};
use store::{Buckets, Clock, Entropy, ObjectStore, StoreError};

/// Who wants to hear of errors soon has single attempts given up sooner as well, but no server is that fast.
const ANSWER_WITHIN_MIN: Duration = Duration::from_secs(5);

/// A volume's bucket, open.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    /// The objects.
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Where the volume is several buckets: those, each by itself.
    pub(crate) buckets: Option<Arc<dyn Buckets>>,
    /// Where they are on this machine, and want to be closed.
    pub(crate) local: Option<Arc<Local>>,
    /// The log in front of it, where there is one.
    pub(crate) writeback: Option<Arc<Writeback>>,
    requests: Requests,
}

/// Who owns buckets: a profile of the AWS files, or whom the flags and the environment say.
pub(crate) type Account = Option<String>;

/// Where requests are counted: on the wire if there is one.
#[derive(Debug, Clone)]
enum Requests {
    Wire(Vec<Arc<s3::RequestCounts>>),
    Calls(Trace),
}

/// The time and the randomness of this process.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// The machine's clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Seeded by the system.
    pub(crate) entropy: Arc<Entropy>,
}

impl World {
    /// The real one.
    pub(crate) fn real() -> Result<Self> {
        let seed = crate::command::format::random_bytes()?;
        Ok(Self { clock: Arc::new(store::SystemClock), entropy: Arc::new(Entropy::keyed(&seed)) })
    }
}

impl Bucket {
    /// Opens the bucket; for a server, one request tells whether it can be used.
    pub(crate) async fn open(
        volume: &Volume,
        flags: &StoreFlags,
        read_only: bool,
        world: &World,
    ) -> Result<Self> {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        Self::open_with(volume, flags, options, world).await
    }

    /// The same; how is a drive's affair, but for `read_only`.
    pub(crate) async fn open_with(
        volume: &Volume,
        flags: &StoreFlags,
        options: OpenOptions,
        world: &World,
    ) -> Result<Self> {
        let read_only = options.read_only;
        match volume {
            Volume::S3 { bucket, .. } => Self::open_s3(bucket, flags, world).await,
            Volume::Directory { root } => Self::open_dir(root, read_only, world),
            Volume::Embedded { root } => match volume::read_record(root)?.objects {
                ObjectsIn::Directory => Self::open_dir(&volume::directory_of(root), read_only, world),
                ObjectsIn::Drive => {
                    let (store, local) = embedded::open(root, options, world).await?;
                    Ok(Self { local: Some(Arc::new(local)), ..Self::of_one(store) })
                }
            },
            Volume::Drive { .. } | Volume::Directories { .. } => {
                let opening = Opening { options, degraded: flags.degraded };
                Ok(Self::of_local(Local::open(volume, opening, world).await?))
            }
            Volume::Buckets { names, accounts, .. } => {
                Self::open_buckets(names.as_ref(), accounts, flags, world).await
            }
        }
    }

    /// Opens the bucket, or has it by the process that has it open, where only one can.
    pub(crate) async fn reach(
        volume: &Volume,
        flags: &StoreFlags,
        read_only: bool,
        world: &World,
    ) -> Result<Self> {
        match held::holder(volume) {
            Some(holder) => Ok(Self::of_one(held::reach(&holder, world).await?)),
            None => Self::open(volume, flags, read_only, world).await,
        }
    }

    /// Puts a log in front of it; what the log holds already is seen from now on.
    pub(crate) fn write_back(&mut self, dir: &Path, options: WritebackOptions, world: &World) -> Result<()> {
        let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
        let writeback = Writeback::open(dir, Arc::clone(&self.store), options, clock, entropy)
            .with_context(|| format!("cannot use the write-back log in {}", dir.display()))?;
        self.store = writeback.clone();
        self.writeback = Some(writeback);
        Ok(())
    }

    /// Requests to the store so far, by kind; every kind is there.
    pub(crate) fn requests(&self) -> BTreeMap<String, u64> {
        match &self.requests {
            Requests::Wire(accounts) => {
                let mut sum = BTreeMap::new();
                for (kind, count) in accounts.iter().flat_map(|counts| counts.snapshot()) {
                    *sum.entry(kind.name().to_owned()).or_default() += count;
                }
                sum
            }
            Requests::Calls(trace) => {
                let counts = trace.counts();
                let named = |call| (kind(call).name().to_owned(), counts.of(call));
                Operation::ALL.into_iter().map(named).collect()
            }
        }
    }

    async fn open_s3(bucket: &str, flags: &StoreFlags, world: &World) -> Result<Self> {
        let (buckets, counts) = sign_in(&[None].into(), flags, world).await?;
        let store = buckets.open(bucket).await.map_err(|error| advised(error, bucket))?;
        Ok(Self { store, buckets: None, local: None, writeback: None, requests: Requests::Wire(counts) })
    }

    /// These buckets, one of which must be there at least, or all.
    async fn open_buckets(
        names: Option<&BTreeSet<String>>,
        accounts: &BTreeSet<Account>,
        flags: &StoreFlags,
        world: &World,
    ) -> Result<Self> {
        let (buckets, counts) = sign_in(accounts, flags, world).await?;
        match names {
            Some(names) => must_have_one(&*buckets, names).await?,
            None => drop(buckets.list().await.context("cannot list the buckets")?),
        }
        let requests = Requests::Wire(counts);
        let store = Arc::new(JoinedStore::new(Arc::clone(&buckets), names.cloned()));
        Ok(Self { store, buckets: Some(buckets), local: None, writeback: None, requests })
    }

    /// All buckets that there are on this machine's device or directory.
    fn of_local(local: Local) -> Self {
        let (trace, buckets) = (Trace::new(), local.buckets());
        let joined = JoinedStore::new(Arc::clone(&buckets), None);
        let store = Arc::new(Traced::new(joined, trace.clone()));
        Self {
            store,
            buckets: Some(buckets),
            local: Some(Arc::new(local)),
            writeback: None,
            requests: Requests::Calls(trace),
        }
    }

    fn open_dir(root: &Path, read_only: bool, world: &World) -> Result<Self> {
        let options = DirOptions { read_only, ..DirOptions::default() };
        let opened = DirStore::open(root, options, Arc::clone(&world.clock), Arc::clone(&world.entropy))
            .with_context(|| format!("cannot use {} as a bucket", root.display()))?;
        Ok(Self::of_one(opened))
    }

    /// One bucket, whose calls are counted.
    fn of_one(opened: impl ObjectStore + 'static) -> Self {
        let trace = Trace::new();
        let store = Arc::new(Traced::new(opened, trace.clone()));
        Self { store, buckets: None, local: None, writeback: None, requests: Requests::Calls(trace) }
    }
}

/// An error if none of some buckets can be opened. Of the others views say that they are without them, and go on asking.
async fn must_have_one(buckets: &dyn Buckets, names: &BTreeSet<String>) -> Result<()> {
    let mut refused = None;
    for name in names {
        match buckets.open(name).await {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Denied(_) | StoreError::NoSuchBucket(_))) => {
                refused.get_or_insert(advised(error, name));
            }
            Err(error) => return Err(advised(error, name)),
        }
    }
    refused.map_or(Ok(()), Err)
}

/// All buckets that the credentials of these accounts reach.
pub(crate) async fn all(
    accounts: &BTreeSet<Account>,
    flags: &StoreFlags,
    world: &World,
) -> Result<Arc<dyn Buckets>> {
    Ok(sign_in(accounts, flags, world).await?.0)
}

/// The buckets of accounts, and where each counts its requests.
async fn sign_in(
    accounts: &BTreeSet<Account>,
    flags: &StoreFlags,
    world: &World,
) -> Result<(Arc<dyn Buckets>, Vec<Arc<s3::RequestCounts>>)> {
    let (mut reached, mut counts) = (BTreeMap::<Account, Arc<dyn Buckets>>::new(), Vec::new());
    for account in accounts {
        let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
        let buckets = S3Buckets::new(s3_config(flags, account.as_deref())?, clock, entropy)?;
        buckets.sign_in().await?;
        counts.push(buckets.requests());
        reached.insert(account.clone(), Arc::new(buckets));
    }
    Ok((Arc::new(Accounts::new(reached)), counts))
}

/// The S3 request that a call to a store stands for.
fn kind(call: Operation) -> RequestKind {
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

/// The endpoint that the flags or the environment name: part of a volume's identity.
pub(crate) fn endpoint(flags: &StoreFlags) -> Option<String> {
    flags
        .endpoint_url
        .clone()
        .or_else(|| environment::variable("AWS_ENDPOINT_URL_S3"))
        .or_else(|| environment::variable("AWS_ENDPOINT_URL"))
}

/// The state directory that the flags name, or a volume's own.
pub(crate) fn state_dir(volume: &Volume, named: Option<&Path>, flags: &StoreFlags) -> PathBuf {
    let own = || state::default_dir(volume, endpoint(flags).as_deref(), &environment::states_dir());
    named.map_or_else(own, Path::to_owned)
}

/// How to reach the buckets of an account.
pub(crate) fn s3_config(flags: &StoreFlags, account: Option<&str>) -> Result<S3Config> {
    let found = match account {
        None => own(flags)?,
        Some(name) => profile(name).with_context(|| format!("the account '{name}'"))?,
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

/// What the flags say, and besides them the environment.
fn own(flags: &StoreFlags) -> Result<Found> {
    let found = credentials(flags)?;
    let (endpoint, region) = (flags.endpoint_url.clone(), flags.region.clone());
    Ok(Found { endpoint: endpoint.or(found.endpoint), region: region.or(found.region), ..found })
}

/// What a profile says; where to ask is nobody else's to say.
fn profile(name: &str) -> Result<Found> {
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
        return Ok(Found { credentials: CredentialsSource::Anonymous, region, endpoint: endpoint(flags) });
    }
    let explicit = flags.access_key_file.as_deref().map(read_key_file).transpose()?;
    let (profile, region) = (flags.profile.clone(), flags.region.clone());
    Ok(Search { explicit, profile, region, env: &environment::variable }.run()?)
}

/// `ACCESS-KEY:SECRET-KEY[:SESSION-TOKEN]`, as the first line of a file that only its owner reads.
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

/// The store's error, and what to do where the store cannot know.
fn advised(error: StoreError, bucket: &str) -> Error {
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
