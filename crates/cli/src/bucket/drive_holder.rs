//! Access to a drive that another process has open. Only one process can open a drive, so other commands access its
//! objects through the endpoint of the process that mounts or serves it.

use crate::control::client::Client;
use crate::control::holder::{Holder, LiveMount};
use crate::process::context::ProcessContext;
use crate::state::default_user;
use crate::state::registry::Registry;
use crate::volume::device_names::Devices;
use crate::volume::{Volume, embedded};
use anyhow::{Context, Result, anyhow, bail};
use std::sync::Arc;
use store::{Buckets, ObjectStore};
use store_s3::{Addressing, Credentials, CredentialsSource, S3Buckets, S3Config};

/// Returns the process that mounts or serves a volume on a drive, which no other process can open meanwhile. Returns `None` if there is none
/// or the volume is not on a drive.
pub(crate) fn holder_of_volume(volume: &Volume) -> Option<LiveMount> {
    if !volume.is_on_drive() {
        return None;
    }
    let url = volume.url();
    Registry::of_user().mounts().into_iter().find(|mount| mount.holder.volume == url)
}

/// Returns the process that has a drive open, if it is registered.
pub(crate) fn holder_of_devices(devices: &Devices) -> Option<LiveMount> {
    let has = |mount: &LiveMount| match Volume::parse_unchecked(&mount.holder.volume) {
        Ok(Volume::Drive { drives }) => drives.paths().any(|path| devices.paths().any(|other| other == path)),
        Ok(Volume::Embedded { root }) => {
            let drive = embedded::drive_path(&root);
            devices.paths().any(|path| path == drive)
        }
        _ => false,
    };
    Registry::of_user().mounts().into_iter().find(has)
}

/// Describes which process has a drive open, and what to do. Returns `None` if the process is not registered.
pub(crate) fn describe_holder(devices: &Devices) -> Option<String> {
    let mount = holder_of_devices(devices)?;
    let Holder { pid, mount_point, volume, .. } = &mount.holder;
    let (does, at) = (if mount.holder.is_served() { "serves" } else { "mounts" }, mount_point.display());
    Some(format!(
        "process {pid} {does} {volume} at {at}: use `tenon status {volume}`, or stop that process first"
    ))
}

/// Opens the first bucket that the endpoint of the process that has the volume lists. Fails if the process has no endpoint.
pub(crate) async fn connect(mount: &LiveMount, context: &ProcessContext) -> Result<Arc<dyn ObjectStore>> {
    let volume = &mount.holder.volume;
    let Some(url) = Client::connect(mount)?.status()?.endpoint else {
        let at = mount.holder.mount_point.display();
        bail!(
            "{volume} is mounted at {at} without an endpoint: mount it with --serve 127.0.0.1:0, or unmount it"
        );
    };
    let keys = default_user::keys(&mount.state);
    let (access_key, secret_key) =
        keys.with_context(|| format!("{volume} is in use; access it at {url}, with a key of its users"))?;
    let credentials = Credentials::new(&access_key, &secret_key, None)?;
    let config = S3Config {
        endpoint: Some(url.clone()),
        credentials: CredentialsSource::Fixed(Arc::new(credentials)),
        addressing: Some(Addressing::Path),
        ..S3Config::default()
    };
    let buckets = S3Buckets::new(config, context.clock.clone(), context.entropy.clone())?;
    let opened = async {
        let name = buckets.list().await?.into_iter().next();
        let name =
            name.ok_or_else(|| anyhow!("the endpoint serves no bucket; serve the volume with --bucket"))?;
        Ok::<_, anyhow::Error>(buckets.open(&name).await?)
    };
    opened.await.with_context(|| format!("cannot access {volume} at {url}"))
}
