//! The driver: the three services, and their socket.

use crate::controller::{self, Controller, OpenBuckets};
use crate::grpc::Services;
use crate::message::{
    CreateVolume, DeleteVolume, Empty, ExpandVolume, GetVolumeStats, NodeInfo, PluginCapabilities,
    PluginCapability, PluginInfo, Probed, PublishVolume, Ready, ServiceCapabilities, StageVolume, Texts,
    TypeNumber, UnpublishVolume, UnstageVolume, ValidateVolumeCapabilities, Validated, VolumeCreated,
    VolumeExpanded, VolumeStats,
};
use crate::mount_arguments::MountArguments;
use crate::node::{self, Node};
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tonic::Status;

/// Pause between two checks of all mounts.
const CHECK_PAUSE: Duration = Duration::from_secs(5);

/// Settings of a driver.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the driver, as the CSIDriver object has it.
    pub name: String,
    /// Name of this node.
    pub node_id: String,
    /// The program `tenon`.
    pub program: PathBuf,
    /// Version of the program.
    pub version: String,
    /// Directory for the records of mounts.
    pub records: PathBuf,
    /// Directory for the state directories of volumes.
    pub volume_states: PathBuf,
    /// Arguments for each mount.
    pub mount_arguments: MountArguments,
}

/// A CSI driver.
#[derive(Debug)]
pub struct Driver {
    name: String,
    version: String,
    node_id: String,
    controller: Controller,
    node: Arc<Node>,
}

impl Driver {
    /// Makes a driver, which continues the mounts of an earlier one.
    ///
    /// # Errors
    /// If the directory of the records cannot be used.
    pub fn new(settings: Settings, open_buckets: OpenBuckets) -> io::Result<Self> {
        let Settings { name, node_id, program, version, records, volume_states, mount_arguments } = settings;
        let node = Arc::new(Node::new(program, &records, volume_states, mount_arguments)?);
        Ok(Self { name, version, node_id, controller: Controller::new(open_buckets), node })
    }

    /// Answers requests on a socket until `stopped` completes. Mounts whose process ends are made again.
    ///
    /// # Errors
    /// If the socket cannot be used.
    pub async fn serve(
        self: &Arc<Self>,
        socket: Socket,
        stopped: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Socket { listener, path } = socket;
        let checks = tokio::spawn(Arc::clone(self).check_mounts());
        let incoming = futures_util::stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tonic::transport::Server::builder();
        let services = Services(Arc::clone(self));
        // A graceful shutdown would wait for ever, because clients keep their connections open. So the connections are closed.
        let outcome = tokio::select! {
            served = server.serve_with_incoming(services, incoming) => served.map_err(io::Error::other),
            () = stopped => Ok(()),
        };
        checks.abort();
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => outcome,
        }
    }

    /// Ends the processes of all mounts in good order before a container ends, which would kill them. The next driver mounts the volumes again.
    pub async fn release_mounts(&self) {
        let node = Arc::clone(&self.node);
        if let Err(error) = tokio::task::spawn_blocking(move || node.release()).await {
            tracing::error!("cannot end the mounts: {error}");
        }
    }

    async fn check_mounts(self: Arc<Self>) {
        loop {
            let node = Arc::clone(&self.node);
            if let Err(error) = tokio::task::spawn_blocking(move || node.restore()).await {
                tracing::error!("cannot check the mounts: {error}");
            }
            tokio::time::sleep(CHECK_PAUSE).await;
        }
    }

    /// Runs a call of the node service on a thread that may block.
    async fn on_node<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Node) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let node = Arc::clone(&self.node);
        let called = tokio::task::spawn_blocking(move || call(&node)).await;
        called.unwrap_or_else(|error| Err(Status::internal(format!("the request failed: {error}"))))
    }
}

/// The methods of the services, by their messages.
impl Driver {
    pub(crate) async fn plugin_info(&self, _: Empty) -> Result<PluginInfo, Status> {
        Ok(PluginInfo {
            name: self.name.clone(),
            vendor_version: self.version.clone(),
            manifest: Texts::new(),
        })
    }

    pub(crate) async fn plugin_capabilities(&self, _: Empty) -> Result<PluginCapabilities, Status> {
        // CONTROLLER_SERVICE, and VolumeExpansion.ONLINE.
        let controller = PluginCapability { service: Some(TypeNumber { number: 1 }), volume_expansion: None };
        let expansion = PluginCapability { service: None, volume_expansion: Some(TypeNumber { number: 1 }) };
        Ok(PluginCapabilities { capabilities: vec![controller, expansion] })
    }

    pub(crate) async fn probe(&self, _: Empty) -> Result<Probed, Status> {
        Ok(Probed { ready: Some(Ready { value: true }) })
    }

    pub(crate) async fn controller_capabilities(&self, _: Empty) -> Result<ServiceCapabilities, Status> {
        Ok(ServiceCapabilities::of(&controller::CAPABILITIES))
    }

    pub(crate) async fn create_volume(&self, request: CreateVolume) -> Result<VolumeCreated, Status> {
        self.controller.create(request).await
    }

    pub(crate) async fn delete_volume(&self, request: DeleteVolume) -> Result<Empty, Status> {
        self.controller.delete(request).await
    }

    pub(crate) async fn validate_volume_capabilities(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validated, Status> {
        self.controller.validate(request).await
    }

    pub(crate) async fn expand_volume(&self, request: ExpandVolume) -> Result<VolumeExpanded, Status> {
        self.controller.expand(request).await
    }

    pub(crate) async fn node_capabilities(&self, _: Empty) -> Result<ServiceCapabilities, Status> {
        Ok(ServiceCapabilities::of(&node::CAPABILITIES))
    }

    pub(crate) async fn node_info(&self, _: Empty) -> Result<NodeInfo, Status> {
        Ok(NodeInfo { node_id: self.node_id.clone() })
    }

    pub(crate) async fn stage_volume(&self, request: StageVolume) -> Result<Empty, Status> {
        self.on_node(move |node| node.stage(&request)).await
    }

    pub(crate) async fn unstage_volume(&self, request: UnstageVolume) -> Result<Empty, Status> {
        self.on_node(move |node| node.unstage(&request)).await
    }

    pub(crate) async fn publish_volume(&self, request: PublishVolume) -> Result<Empty, Status> {
        self.on_node(move |node| node.publish(&request)).await
    }

    pub(crate) async fn unpublish_volume(&self, request: UnpublishVolume) -> Result<Empty, Status> {
        let target = PathBuf::from(&request.target_path);
        if let Some(scratch) = self.on_node(move |node| node.unpublish(&request)).await? {
            self.controller.remove_scratch(scratch.place, scratch.access).await?;
            self.on_node(move |node| node.forget_at(&target)).await?;
        }
        Ok(Empty {})
    }

    pub(crate) async fn volume_stats(&self, request: GetVolumeStats) -> Result<VolumeStats, Status> {
        self.on_node(move |node| node.stats(&request)).await
    }
}

/// A unix socket for requests, which only the driver's user may use.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens on a path, at which an earlier driver may have left its socket.
    ///
    /// # Errors
    /// If the path cannot be used, for example because it is another file.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path: path.to_owned() })
    }
}
