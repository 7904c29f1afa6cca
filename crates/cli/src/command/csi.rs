//! `tenon csi`: a driver of the Container Storage Interface.

use crate::bucket::credentials::{StoreSettings, open_accounts};
use crate::command::flags::{LogFlags, StoreFlags};
use crate::command::units;
use crate::process::context::ProcessContext;
use crate::process::signals::StopSignals;
use crate::process::{self, VERSION, environment, service_manager};
use anyhow::{Context as _, Result};
use clap::Args;
use csi::{Access, CacheRoom, Driver, MountArguments, OpenBuckets, Settings, Socket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use store::Buckets;
use store_s3::Credentials;

/// Serve volumes to Kubernetes and other orchestrators by the Container Storage Interface (CSI)
///
/// Answers the identity, controller and node services of CSI 1.x. Must run as root to mount. Each mounted volume is served by a `tenon mount`
/// of its own, which continues when the driver ends.
#[derive(Debug, Args)]
pub(crate) struct Csi {
    /// Unix socket on which to answer, with or without unix://
    #[arg(long, value_name = "PATH", default_value = "/csi/csi.sock")]
    socket: PathBuf,
    /// Name of this node (default: its host name)
    #[arg(long, value_name = "NAME")]
    node_id: Option<String>,
    /// Name of the driver, as the CSIDriver object has it
    #[arg(long, value_name = "NAME", default_value = "csi.tenon")]
    driver_name: String,
    /// Directory for the records of mounts and their access keys; should be in memory
    #[arg(long, value_name = "DIR", default_value = "/run/tenon-csi")]
    records: PathBuf,
    /// Directory for the state of volumes: cached names and pending changes (default: csi in the user's state directory)
    #[arg(long, value_name = "DIR")]
    volume_states: Option<PathBuf>,
    /// Directory on a local disk of the node for the disk caches of volumes with the attribute cacheSize
    #[arg(long, value_name = "DIR")]
    caches: Option<PathBuf>,
    /// Largest cacheSize that a volume may ask for
    #[arg(long, value_name = "SIZE", default_value = "10GiB", requires = "caches", value_parser = units::size_bytes)]
    cache_limit: u64,
    /// At the end, also end all mounts after storing what is pending; the next driver mounts them again. For containers, whose end kills them
    #[arg(long)]
    end_mounts: bool,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    log: LogFlags,
}

impl Csi {
    pub(crate) fn run(self) -> Result<ExitCode> {
        self.log.start(self.log.absolute_path()?.as_deref())?;
        let runtime = process::runtime()?;
        let outcome = runtime.block_on(self.serve());
        process::shut_down_runtime(runtime);
        outcome.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(&self) -> Result<()> {
        let mut signals = StopSignals::new()?;
        let driver =
            Driver::new(self.settings()?, open_buckets(self.store.settings(), ProcessContext::system()?))
                .with_context(|| format!("cannot use {}", self.records.display()))?;
        let driver = Arc::new(driver);
        let path = self
            .socket
            .strip_prefix("unix:")
            .map_or_else(|_| self.socket.clone(), |path| PathBuf::from("/").join(path));
        let socket = Socket::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
        tracing::info!("answering CSI requests on {}", path.display());
        service_manager::notify_ready(&format!("answering on {}", path.display()));
        let stopped = async {
            let signal = signals.wait().await;
            tracing::info!("ending after {signal}");
        };
        let served =
            driver.serve(socket, stopped).await.with_context(|| format!("cannot use {}", path.display()));
        service_manager::notify_stopping();
        if self.end_mounts {
            driver.release_mounts().await;
        }
        served
    }

    fn settings(&self) -> Result<Settings> {
        let store = self.store.arguments()?;
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let states = self.volume_states.clone().unwrap_or_else(|| environment::states_dir().join("csi"));
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).with_context(|| format!("cannot resolve {}", path.display()))
        };
        let caches = self.caches.clone().map(absolute);
        Ok(Settings {
            name: self.driver_name.clone(),
            node_id: self.node_id.clone().unwrap_or_else(host),
            program: std::env::current_exe().context("cannot find this program, which mounts")?,
            version: VERSION.to_owned(),
            records: absolute(self.records.clone())?,
            volume_states: absolute(states)?,
            mount_arguments: MountArguments {
                endpoint_url: store.endpoint_url,
                region: store.region,
                credentials: store.credentials,
                others: store.others,
                caches: caches.transpose()?.map(|dir| CacheRoom { dir, limit_bytes: self.cache_limit }),
            },
        })
    }
}

/// Returns the function by which the driver signs in: with the access that a request gives, completed by the driver's own.
fn open_buckets(own: StoreSettings, context: ProcessContext) -> OpenBuckets {
    Box::new(move |access| {
        let (own, context) = (own.clone(), context.clone());
        Box::pin(async move {
            let opened = sign_in(own, access, &context).await;
            opened.map_err(|error| format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "))
        })
    })
}

async fn sign_in(own: StoreSettings, access: Access, context: &ProcessContext) -> Result<Arc<dyn Buckets>> {
    let mut settings = StoreSettings {
        endpoint_url: access.endpoint_url.or(own.endpoint_url),
        region: access.region.or(own.region),
        ..own
    };
    if let Some(key) = access.key {
        settings.access_key = Some(Credentials::new(&key.id, &key.secret, key.session_token.as_deref())?);
        (settings.profile, settings.access_key_file, settings.is_anonymous) = (None, None, false);
    }
    open_accounts(&[None].into(), &settings, context).await
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn volumes_may_set_flags_that_mounts_have() {
        let program = crate::Cli::command();
        let mount = program.find_subcommand("mount").unwrap();
        for name in csi::accepted_names() {
            assert!(mount.get_arguments().any(|arg| arg.get_long() == Some(name)), "--{name}");
        }
    }
}
