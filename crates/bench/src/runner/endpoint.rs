//! A platform that runs: its store, the proxy in front of it, and the second client.

use super::program::group_name;
use super::run_error::RunError;
use super::run_plan::{Programs, RunPlan};
use crate::platform::{Platform, PlatformKind, S3Endpoint};
use crate::raw_client::s3_buckets;
use harness::minio::{Minio, READY, REGION};
use harness::{
    CleanupAction, CleanupProcess, ControlGroup, Proxy, Server, ServerSpec, Traffic, file_error, free_address,
};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Buckets, Entropy, SystemClock};
use store_dir::{DirBuckets, DirOptions};
use tokio::runtime::Runtime;

const ACCESS_KEY: &str = "tenon-bench";

/// A store with its proxy. Dropping it stops the server and removes its directory.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// URL for packages: that of the proxy. For a directory, its path.
    pub(super) url: String,
    pub(super) region: String,
    pub(super) access_key: String,
    pub(super) secret_key: String,
    /// Buckets past the proxy, for the second client.
    pub(super) direct: Arc<dyn Buckets>,
    /// Buckets through the proxy, for the raw client.
    pub(super) proxied: Arc<dyn Buckets>,
    proxy: Option<Proxy>,
    server_group: Option<ControlGroup>,
    _server: Option<Server>,
    // Dropped last: it removes what the other fields refer to.
    _cleanup: CleanupProcess,
}

impl Endpoint {
    /// Starts what the platform needs, with all files below `dir`.
    pub(super) fn start(
        platform: &Platform,
        plan: &RunPlan,
        programs: &Programs,
        dir: &Path,
        runtime: &Runtime,
    ) -> Result<Self, RunError> {
        let mut cleanup = CleanupProcess::new()?;
        cleanup.register(&CleanupAction::Remove(dir))?;
        fs::create_dir_all(dir).map_err(file_error(dir))?;
        match &platform.kind {
            PlatformKind::Directory => Self::directory(dir, cleanup),
            PlatformKind::S3(endpoint) => Self::s3(endpoint.clone(), plan, None, None, cleanup, runtime),
            PlatformKind::Minio => {
                let (endpoint, server, group) = start_minio(programs, dir, &mut cleanup)?;
                Self::s3(endpoint, plan, Some(server), group, cleanup, runtime)
            }
        }
    }

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
            _server: None,
            _cleanup: cleanup,
        })
    }

    fn s3(
        endpoint: S3Endpoint,
        plan: &RunPlan,
        server: Option<Server>,
        server_group: Option<ControlGroup>,
        cleanup: CleanupProcess,
        runtime: &Runtime,
    ) -> Result<Self, RunError> {
        let proxy =
            Proxy::start_shaped(&endpoint.url, plan.shape).map_err(file_error(Path::new(&endpoint.url)))?;
        let _guard = runtime.enter();
        let keys = (endpoint.access_key.as_str(), endpoint.secret_key.as_str());
        let direct = s3_buckets(&endpoint.url, &endpoint.region, keys)?;
        let proxied = s3_buckets(&proxy.endpoint(), &endpoint.region, keys)?;
        Ok(Self {
            url: proxy.endpoint(),
            region: endpoint.region.clone(),
            access_key: endpoint.access_key.clone(),
            secret_key: endpoint.secret_key.clone(),
            direct: Arc::new(direct),
            proxied: Arc::new(proxied),
            proxy: Some(proxy),
            server_group,
            _server: server,
            _cleanup: cleanup,
        })
    }

    /// Returns the requests and bytes so far; `None` without a proxy.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        self.proxy.as_ref().map(Proxy::traffic)
    }

    /// Returns the CPU time of the server so far, if it was started here.
    pub(super) fn server_cpu_seconds(&self) -> Option<f64> {
        self.server_group.as_ref().map(|group| group.usage().cpu.as_secs_f64())
    }

    /// Returns host and port of the URL.
    pub(super) fn host(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

fn start_minio(
    programs: &Programs,
    dir: &Path,
    cleanup: &mut CleanupProcess,
) -> Result<(S3Endpoint, Server, Option<ControlGroup>), RunError> {
    let program = programs.minio.clone().ok_or(RunError::NoMinio)?;
    let secret_key =
        format!("{:016x}{:016x}", RandomState::new().hash_one(1), RandomState::new().hash_one(2));
    let minio = Minio { program, access_key: ACCESS_KEY.into(), secret_key, environment: Vec::new() };
    let address = free_address().map_err(file_error(Path::new("127.0.0.1")))?;
    let group = ControlGroup::create(&group_name(), cleanup)?;
    let home = ("HOME".to_owned(), dir.display().to_string());
    let groups: Vec<PathBuf> = group.as_ref().map(ControlGroup::members).unwrap_or_default();
    let spec = ServerSpec {
        name: "MinIO".to_owned(),
        program: minio.program.clone(),
        arguments: Minio::arguments(address, dir),
        environment: minio.environment().into_iter().chain([home]).collect(),
        dir: dir.to_owned(),
        address,
        ready: Some(READY),
        groups,
    };
    let server = Server::start(spec, cleanup)?;
    let endpoint = S3Endpoint {
        url: format!("http://{address}"),
        region: REGION.to_owned(),
        access_key: minio.access_key,
        secret_key: minio.secret_key,
    };
    Ok((endpoint, server, group))
}
