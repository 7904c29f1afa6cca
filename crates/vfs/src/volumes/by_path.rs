//! A volume named by path: a change of a name is a change of objects as well.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Moment, Name, Origin};
use staging::leases::left_over;
use std::sync::Arc;
use std::time::Duration;
use store::{ObjectKey, Precondition};

use crate::base::Base;
use crate::bucket::BucketServices;
use crate::bucket::discovery::Discovery;
use crate::bucket::evict::NameEvictor;
use crate::bucket::exports::Exporter;
use crate::bucket::known_state::KnownState;
use crate::bucket::lister::BackgroundLister;
use crate::content::write::publisher::Publisher;
use crate::mount::Mount;
use crate::names::handles::Opened;
use crate::ops::entries::EntryOps;
use crate::ops::remove::Remover;
use crate::ops::rename::Renamer;
use crate::volumes::rules::{Evicted, VolumeRules};
use crate::{Attr, Error, Result};

/// Maximum length of an object on S3 and compatible servers: 5 TiB, in parts of up to 5 GiB.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

/// Rules of a volume whose keys are paths. A file is one object, including its zeros.
pub(super) const RULES: VolumeRules = VolumeRules {
    follows_bucket: true,
    can_be_shared: true,
    exports_attributes: true,
    removes_unstored_files: true,
    names_documents_by_bucket: true,
    stores_holes: true,
    file_bytes_max: OBJECT_BYTES_MAX,
    evicted: Evicted::Names,
};

/// A volume whose keys are paths.
#[derive(Debug)]
pub(crate) struct PathVolume {
    mount: Arc<Mount>,
    known: Arc<KnownState>,
    discovery: Arc<Discovery>,
    name_evictor: Arc<NameEvictor>,
    publisher: Arc<Publisher>,
    exporter: Arc<Exporter>,
    /// Finds changes of known names that events, lookups and open files missed.
    lister: Arc<BackgroundLister>,
    remover: Arc<Remover>,
    renamer: Arc<Renamer>,
}

impl PathVolume {
    pub(crate) fn new(
        base: &Base,
        services: &BucketServices,
        publisher: &Arc<Publisher>,
        entries: &EntryOps,
    ) -> Self {
        Self {
            mount: base.mount.clone(),
            known: services.known.clone(),
            discovery: services.discovery.clone(),
            name_evictor: services.name_evictor.clone(),
            publisher: publisher.clone(),
            exporter: services.exporter.clone(),
            lister: services.lister.clone(),
            remover: entries.remover.clone(),
            renamer: entries.renamer.clone(),
        }
    }

    pub(super) fn is_recent(&self, parent: Ino, inode: &Inode, asked_at: Moment) -> bool {
        self.known.is_recent(parent, inode, asked_at)
    }

    pub(super) fn refuse_unnamed(&self) -> Result<(Attr, Opened)> {
        Err(Error::new(
            libc::EOPNOTSUPP,
            "files without a name (O_TMPFILE) are not possible in a volume named by path",
        ))
    }

    pub(super) fn refuse_quotas(&self) -> Result<()> {
        Err(Error::new(
            libc::EOPNOTSUPP,
            "a volume named by path has no quotas, because other clients store objects in it",
        ))
    }

    pub(super) async fn unlink(&self, parent: Ino, name: &Name) -> Result<()> {
        let inode = self.discovery.must(self.discovery.find(parent, name).await?)?;
        if inode.kind == Kind::Directory {
            return Err(Error::IS_DIRECTORY);
        }
        self.publisher.ensure_marker(parent).await?;
        self.remover.unlink_name(Origin::FrontEnd, parent, name, inode.ino).await
    }

    pub(super) async fn rmdir(
        &self,
        origin: Origin,
        parent: Ino,
        name: Name,
        directory: &Inode,
    ) -> Result<()> {
        self.discovery.check_empty(directory).await?;
        self.publisher.ensure_marker(parent).await?;
        let removed = self.remover.delete_and_rmdir(origin, parent, name, directory).await;
        if matches!(removed, Err(Error::Namespace(_))) {
            // An entry was created in between: the directory stays, so its marker is stored again.
            self.publisher.store_new(directory, Bytes::new(), Precondition::None).await?;
        }
        removed?;
        self.known.forget_removed_directory(directory);
        Ok(())
    }

    pub(super) async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        Box::pin(self.renamer.rename_in_volume(Origin::FrontEnd, from, to, flags)).await
    }

    pub(super) async fn sync_objects(&self) -> Result<()> {
        Ok(self.mount.store.sync().await?)
    }

    pub(super) async fn complete_interrupted(&self) -> Result<()> {
        self.exporter.assemble_interrupted().await
    }

    pub(super) fn list_in_background(&self, every: Duration) {
        self.lister.start(every);
    }

    pub(super) async fn collect_leases(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        let prefix = self.mount.layout.leases_prefix();
        Ok(left_over(self.mount.store.as_ref(), &prefix, only_find).await?)
    }

    pub(super) fn forget_learned(&self) -> Result<()> {
        self.name_evictor.forget_learned()
    }
}
