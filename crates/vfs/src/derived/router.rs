//! The router to the views of a volume: operations in directories that rulesets fill.

use std::sync::Arc;

use crate::base::Base;
use crate::bucket::BucketServices;
use crate::bucket::discovery::Discovery;
use crate::bucket::evict::NameEvictor;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::content::Content;
use crate::content::write::editor::FileEditor;
use crate::derived::views::Views;
use crate::mount::Mount;
use crate::names::Names;
use crate::ops::create::Creator;
use crate::ops::entries::EntryOps;
use crate::ops::remove::Remover;
use crate::ops::rename::Renamer;

/// Operations in derived directories.
#[derive(Debug)]
pub struct ViewRouter {
    pub(in crate::derived) mount: Arc<Mount>,
    pub(in crate::derived) names: Arc<Names>,
    pub(in crate::derived) content: Arc<Content>,
    pub(in crate::derived) known: Arc<KnownState>,
    pub(in crate::derived) metadata: Arc<Metadata>,
    pub(in crate::derived) discovery: Arc<Discovery>,
    pub(in crate::derived) name_evictor: Arc<NameEvictor>,
    pub(crate) derived: Arc<Views>,
    pub(in crate::derived) renamer: Arc<Renamer>,
    pub(in crate::derived) remover: Arc<Remover>,
    pub(in crate::derived) creator: Arc<Creator>,
    pub(in crate::derived) editor: Arc<FileEditor>,
}

impl ViewRouter {
    pub(crate) fn new(
        base: &Base,
        services: &BucketServices,
        entries: &EntryOps,
        editor: &Arc<FileEditor>,
        derived: &Arc<Views>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: services.known.clone(),
            metadata: services.metadata.clone(),
            discovery: services.discovery.clone(),
            name_evictor: services.name_evictor.clone(),
            derived: derived.clone(),
            renamer: entries.renamer.clone(),
            remover: entries.remover.clone(),
            creator: entries.creator.clone(),
            editor: editor.clone(),
        })
    }
}
