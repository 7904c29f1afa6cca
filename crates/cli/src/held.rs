//! Objects of a volume on a drive that another process has mounted or serves: one process has a drive open, so whoever else wants
//! objects asks that process's endpoint.

use crate::bucket::World;
use crate::control::client::Client;
use crate::devices::Devices;
use crate::embedded;
use crate::registry::Mount;
use crate::state::Holder;
use crate::volume::Volume;
use crate::{environment, users};
use anyhow::{Context, Result, anyhow, bail};
use std::sync::Arc;
use store::s3::{Addressing, Credentials, CredentialsSource, S3Buckets, S3Config};
use store::{Buckets, ObjectStore};

/// The process that has a volume mounted or serves it, if there is one and nobody else can open the volume meanwhile.
pub(crate) fn holder(volume: &Volume) -> Option<Mount> {
    if !volume.is_on_drive() {
        return None;
    }
    let url = volume.url();
    environment::registry().mounts().into_iter().find(|mount| mount.holder.volume == url)
}

/// The process that has a drive open, if it says so.
pub(crate) fn holder_of(devices: &Devices) -> Option<Mount> {
    let has = |mount: &Mount| match Volume::parse_unchecked(&mount.holder.volume) {
        Ok(Volume::Drive { drives }) => drives.paths().any(|path| devices.paths().any(|other| other == path)),
        Ok(Volume::Embedded { root }) => {
            let drive = embedded::drive_of(&root);
            devices.paths().any(|path| path == drive)
        }
        _ => false,
    };
    environment::registry().mounts().into_iter().find(has)
}

/// A drive that another process has open: which process, and how to ask it. `None` if nobody says.
pub(crate) fn who_has(devices: &Devices) -> Option<String> {
    let mount = holder_of(devices)?;
    let Holder { pid, mount_point, volume, .. } = &mount.holder;
    let (does, at) = (if mount.holder.is_served() { "serves" } else { "mounts" }, mount_point.display());
    Some(format!(
        "process {pid} {does} {volume} at {at}: `tenon status {volume}` asks it, and for more it has to end first"
    ))
}

/// The objects by the endpoint of the process that has the volume.
pub(crate) async fn reach(mount: &Mount, world: &World) -> Result<Arc<dyn ObjectStore>> {
    let volume = &mount.holder.volume;
    let Some(url) = Client::connect(mount)?.status()?.endpoint else {
        let at = mount.holder.mount_point.display();
        bail!(
            "{volume} is mounted at {at} without an endpoint: mount it with --serve 127.0.0.1:0, or unmount it"
        );
    };
    let keys = users::own_keys(&mount.state);
    let (access_key, secret_key) = keys.with_context(|| {
        format!("{volume} is in use, and is to be asked at {url} with a key of its users")
    })?;
    let credentials = Credentials::new(&access_key, &secret_key, None)?;
    let config = S3Config {
        endpoint: Some(url.clone()),
        credentials: CredentialsSource::Fixed(Arc::new(credentials)),
        addressing: Some(Addressing::Path),
        ..S3Config::default()
    };
    let buckets = S3Buckets::new(config, world.clock.clone(), world.entropy.clone())?;
    let opened = async {
        let name = buckets.list().await?.into_iter().next();
        let name = name.ok_or_else(|| anyhow!("it serves no bucket"))?;
        Ok::<_, anyhow::Error>(buckets.open(&name).await?)
    };
    opened.await.with_context(|| format!("cannot ask {url}, which has {volume},"))
}
