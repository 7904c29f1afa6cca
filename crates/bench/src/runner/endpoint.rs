//! A platform that runs: its store, the proxy in front of it, and the second client.

use super::program::group_name;
use super::run_error::RunError;
use super::run_plan::Programs;
use super::signing_proxy::SigningProxy;
use crate::platform::{Platform, PlatformKind, S3Endpoint};
use crate::raw_client::{Bucket, s3_buckets};
use harness::minio::{Minio, READY, REGION};
use harness::{
    CleanupAction, CleanupProcess, ControlGroup, Proxy, Server, ServerSpec, Shape, Traffic, file_error,
    free_address, run_program,
};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use store::{Buckets, Entropy, StoreError, SystemClock};
use store_dir::{DirBuckets, DirOptions};
use store_s3::S3Buckets;
use tokio::runtime::Runtime;

const ACCESS_KEY: &str = "tenon-bench";

/// Options of the start of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointOptions {
    /// The network that the proxy imitates.
    pub(crate) shape: Shape,
    /// Bytes that a drive must hold.
    pub(crate) capacity_bytes: u64,
    /// Whether the data of a server that is started outlives it.
    pub(crate) keeps_data: bool,
}

/// A store with its proxy. Dropping it stops the server and, unless its data is kept, removes its directory.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// URL for packages: that of the proxy. For a directory, its path.
    pub(crate) url: String,
    pub(crate) region: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Buckets past the proxy, for the second client.
    pub(crate) direct: Arc<dyn Buckets>,
    /// Buckets through the proxy, for the raw client.
    pub(crate) proxied: Arc<dyn Buckets>,
    /// Proxy between packages and the store.
    pub(crate) proxy: Option<Proxy>,
    server_group: Option<ControlGroup>,
    _signing: Option<SigningProxy>,
    _server: Option<Server>,
    // Dropped last: it removes what the other fields refer to.
    _cleanup: CleanupProcess,
}

/// A server that was started here.
struct Started {
    server: Server,
    group: Option<ControlGroup>,
    url: String,
    secret_key: String,
}

impl Endpoint {
    /// Starts what the platform needs, with all files below `dir`.
    pub(crate) fn start(
        platform: &Platform,
        options: EndpointOptions,
        programs: &Programs,
        dir: &Path,
        runtime: &Runtime,
    ) -> Result<Self, RunError> {
        let mut cleanup = CleanupProcess::new()?;
        if !options.keeps_data {
            cleanup.register(&CleanupAction::Remove(dir))?;
        }
        fs::create_dir_all(dir).map_err(file_error(dir))?;
        let started = match &platform.kind {
            PlatformKind::Directory => return Self::directory(dir, cleanup),
            PlatformKind::S3(endpoint) => return Self::foreign(endpoint, options.shape, cleanup, runtime),
            PlatformKind::Minio => start_minio(programs, dir, &mut cleanup)?,
            PlatformKind::TenonDirectory => {
                let buckets = dir.join("buckets");
                fs::create_dir_all(&buckets).map_err(file_error(&buckets))?;
                start_tenon(programs, dir, &format!("dirs://{}", buckets.display()), &mut cleanup)?
            }
            PlatformKind::TenonDrive => {
                let drive = dir.join("drive");
                if !drive.exists() {
                    format_drive(programs, &drive, options.capacity_bytes)?;
                }
                start_tenon(programs, dir, &format!("drive://{}", drive.display()), &mut cleanup)?
            }
        };
        let _guard = runtime.enter();
        let keys = (ACCESS_KEY, started.secret_key.as_str());
        let direct: Arc<dyn Buckets> = Arc::new(s3_buckets(&started.url, REGION, keys)?);
        let own_keys = (ACCESS_KEY.to_owned(), started.secret_key.clone());
        let endpoint = Self::proxied(&started.url, REGION, own_keys, direct, options.shape, cleanup)?;
        Ok(Self { server_group: started.group, _server: Some(started.server), ..endpoint })
    }

    /// Returns an endpoint whose buckets are directories on this machine.
    fn directory(dir: &Path, cleanup: CleanupProcess) -> Result<Self, RunError> {
        let entropy = Arc::new(Entropy::new(1));
        let buckets = DirBuckets::open(dir, DirOptions::default(), Arc::new(SystemClock), entropy)?;
        let buckets: Arc<dyn Buckets> = Arc::new(buckets);
        Ok(Self {
            url: dir.display().to_string(),
            region: String::new(),
            access_key: String::new(),
            secret_key: String::new(),
            direct: buckets.clone(),
            proxied: buckets,
            proxy: None,
            server_group: None,
            _signing: None,
            _server: None,
            _cleanup: cleanup,
        })
    }

    /// Opens an endpoint that exists. Towards TLS, and where the keys are not fixed, requests are signed anew.
    fn foreign(
        endpoint: &S3Endpoint,
        shape: Shape,
        cleanup: CleanupProcess,
        runtime: &Runtime,
    ) -> Result<Self, RunError> {
        let _guard = runtime.enter();
        let direct: Arc<dyn Buckets> = Arc::new(direct_buckets(endpoint)?);
        let region = endpoint.region.as_str();
        if let Some(keys) = endpoint.keys_for_packages() {
            return Self::proxied(&endpoint.url, region, keys, direct, shape, cleanup);
        }
        let keys = (format!("TENON{}", random_key()), random_key());
        let signing = SigningProxy::start(endpoint, &keys.0, runtime)?;
        let endpoint = Self::proxied(&signing.url(), region, keys, direct, shape, cleanup)?;
        Ok(Self { _signing: Some(signing), ..endpoint })
    }

    /// Starts the proxy in front of a server on plain HTTP. It must be called inside a tokio runtime.
    fn proxied(
        url: &str,
        region: &str,
        (access_key, secret_key): (String, String),
        direct: Arc<dyn Buckets>,
        shape: Shape,
        cleanup: CleanupProcess,
    ) -> Result<Self, RunError> {
        let proxy = Proxy::start_shaped(url, shape).map_err(file_error(Path::new(url)))?;
        let proxied = s3_buckets(&proxy.endpoint(), region, (&access_key, &secret_key))?;
        Ok(Self {
            url: proxy.endpoint(),
            region: region.to_owned(),
            access_key,
            secret_key,
            direct,
            proxied: Arc::new(proxied),
            proxy: Some(proxy),
            server_group: None,
            _signing: None,
            _server: None,
            _cleanup: cleanup,
        })
    }

    /// Returns the requests and bytes so far; `None` without a proxy.
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        self.proxy.as_ref().map(Proxy::traffic)
    }

    /// Returns the CPU time of the server so far; `None` if it was not started here, or without control groups.
    pub(crate) fn server_cpu_seconds(&self) -> Option<f64> {
        self.server_group.as_ref().map(|group| group.usage().cpu.as_secs_f64())
    }

    /// Returns host and port of the URL.
    pub(crate) fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Removes a bucket with its objects; a bucket that does not exist is removed already.
    pub(crate) fn remove_bucket(&self, name: &str, runtime: &Runtime) -> Result<(), StoreError> {
        runtime.block_on(remove_bucket(self.direct.as_ref(), name))
    }
}

/// Makes the client of an endpoint that exists. It must be called inside a tokio runtime.
pub(crate) fn direct_buckets(endpoint: &S3Endpoint) -> Result<S3Buckets, RunError> {
    Ok(S3Buckets::new(endpoint.config(), Arc::new(SystemClock), Arc::new(Entropy::new(1)))?)
}

/// Removes a bucket with its objects; a bucket that does not exist is removed already.
pub(crate) async fn remove_bucket(buckets: &dyn Buckets, name: &str) -> Result<(), StoreError> {
    let removed = async {
        Bucket::open(buckets, name).await?.remove_all().await?;
        buckets.delete(name).await
    };
    match removed.await {
        Err(StoreError::NotFound(_) | StoreError::NoSuchBucket(_)) => Ok(()),
        removed => removed,
    }
}

fn start_minio(programs: &Programs, dir: &Path, cleanup: &mut CleanupProcess) -> Result<Started, RunError> {
    let program = programs.minio.clone().ok_or(RunError::NoMinio)?;
    let minio =
        Minio { program, access_key: ACCESS_KEY.into(), secret_key: random_key(), environment: Vec::new() };
    let address = free_address().map_err(file_error(Path::new("127.0.0.1")))?;
    let home = ("HOME".to_owned(), dir.display().to_string());
    let spec = ServerSpec {
        name: "MinIO".to_owned(),
        program: minio.program.clone(),
        arguments: Minio::arguments(address, dir),
        environment: minio.environment().into_iter().chain([home]).collect(),
        dir: dir.to_owned(),
        address,
        ready: Some(READY),
        groups: Vec::new(),
    };
    start_server(spec, minio.secret_key, cleanup)
}

/// Starts Tenon's endpoint for the buckets of a volume.
fn start_tenon(
    programs: &Programs,
    dir: &Path,
    volume: &str,
    cleanup: &mut CleanupProcess,
) -> Result<Started, RunError> {
    let secret_key = random_key();
    let users = dir.join("users.toml");
    let text = format!("[[user]]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{secret_key}\"\n");
    let file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&users);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(file_error(&users))?;
    let address = free_address().map_err(file_error(Path::new("127.0.0.1")))?;
    let words = ["serve", volume, "--listen", &address.to_string(), "--users", &users.display().to_string()];
    let home = ("HOME".to_owned(), dir.display().to_string());
    let spec = ServerSpec {
        name: "Tenon".to_owned(),
        program: programs.tenon.clone(),
        arguments: words.map(str::to_owned).to_vec(),
        environment: vec![home],
        dir: dir.to_owned(),
        address,
        ready: None,
        groups: Vec::new(),
    };
    start_server(spec, secret_key, cleanup)
}

/// Starts a server in a control group of its own.
fn start_server(
    spec: ServerSpec,
    secret_key: String,
    cleanup: &mut CleanupProcess,
) -> Result<Started, RunError> {
    let group = ControlGroup::create(&group_name(), cleanup)?;
    let groups: Vec<PathBuf> = group.as_ref().map(ControlGroup::members).unwrap_or_default();
    let url = format!("http://{}", spec.address);
    let server = Server::start(ServerSpec { groups, ..spec }, cleanup)?;
    Ok(Started { server, group, url, secret_key })
}

fn format_drive(programs: &Programs, drive: &Path, capacity_bytes: u64) -> Result<(), RunError> {
    let (tenon, drive) = (programs.tenon.display().to_string(), drive.display().to_string());
    let size = capacity_bytes.to_string();
    run_program(&tenon, &["drive", "format", &drive, "--size", &size], Stdio::null())?;
    Ok(())
}

/// Returns a random key of 32 hexadecimal digits.
fn random_key() -> String {
    format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2))
}
