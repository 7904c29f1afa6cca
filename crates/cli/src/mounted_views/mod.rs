//! Views of a mount: joins the handler that knows which objects match (`views`) with the directories that show them
//! (`vfs`).
//!
//! Owns the views of one mount: their tree, the event handler in this process with its feeds, and the notification of
//! both of changes that are made through the mount.

mod directories;
mod kernel_invalidation;
mod memory_reservation;
mod notifying_store;
mod object_scope;
mod relister;

pub(crate) use object_scope::{ObjectScope, accounts, containers};

use crate::bucket::credentials::StoreSettings;
use crate::control::protocol;
use crate::event_handler::remote::{self, RemoteHandlerSettings};
use crate::event_handler::{EventHandler, HandlerSettings};
use crate::process::context::ProcessContext;
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use events::Sink;
use kernel_invalidation::KernelInvalidation;
use relister::Relister;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, ObjectKey, ObjectMeta, ObjectStore, StoreError, Tags};
use views::tree::{Tree, TreeParts, ViewStatus};
use views::{ObjectName, Permitted, Ruleset, Shown, Unlisted, Views};

/// Maximum length of a file of rulesets. No real file is longer, and a device file has no end.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Maximum wait of a mount of several buckets until the objects of its views are known: its user will look at them next.
const READY_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum number of views for which a mount waits.
const READY_VIEWS_MAX: usize = 8;

/// How a mount learns of changes that others make.
#[derive(Debug, Clone, Copy)]
enum ChangeDetection {
    /// From events.
    Events,
    /// By asking when a view is read and what is known is older than this.
    Polling(Duration),
}

/// Eighths of the memory limit for the objects that the handler of this process knows. Without a handler in this process they are for the
/// names in the views, too.
const HANDLER_EIGHTHS: u64 = 3;
/// Eighths of the memory limit for the names of these objects in the views.
const TREE_EIGHTHS: u64 = 1;

/// The views of a mount.
#[derive(Debug)]
pub(crate) struct MountedViews {
    tree: Tree,
    /// The event handler of this process, if there is one.
    handler: Option<EventHandler>,
    scope: ObjectScope,
    rulesets: Vec<Ruleset>,
    /// How long what is known counts as recent, unless a ruleset says otherwise.
    recency: Duration,
    detection: ChangeDetection,
    /// Reports to the kernel, which caches what it found.
    kernel: KernelInvalidation,
    clock: Arc<dyn Clock>,
    /// Lists buckets again, if no event source reports changes.
    relister: Option<Relister>,
}

/// The event handler that fills the views.
#[derive(Debug, Clone)]
pub(crate) enum HandlerChoice {
    /// A handler in this process.
    Own(HandlerSettings),
    Remote(RemoteHandlerSettings),
}

/// Parameters of [`MountedViews::start`].
pub(crate) struct MountedViewsParts<'p> {
    pub(crate) volume: &'p Volume,
    /// The bucket of the volume, or all of its buckets.
    pub(crate) buckets: Arc<dyn Buckets>,
    /// Directory for the state of views.
    pub(crate) dir: PathBuf,
    pub(crate) store: &'p StoreSettings,
    /// A sink that receives the hints of the event sources too, if the handler is in this process.
    pub(crate) further_sink: Option<Arc<dyn Sink>>,
    /// How long what was listed counts as recent.
    pub(crate) metadata_ttl: Duration,
    /// The mount's memory limit, of which the views have a share.
    pub(crate) memory_limit_bytes: u64,
    pub(crate) context: &'p ProcessContext,
}

impl MountedViews {
    /// Returns the rulesets of the views.
    pub(crate) fn rulesets(&self) -> &[Ruleset] {
        &self.rulesets
    }

    /// Opens the views of rulesets. Refuses a ruleset that shows nothing of the mounted bucket.
    pub(crate) async fn start(
        choice: &HandlerChoice,
        rulesets: Vec<Ruleset>,
        parts: MountedViewsParts<'_>,
    ) -> Result<Arc<Self>> {
        let scope = ObjectScope::of(parts.volume);
        rulesets.iter().try_for_each(|ruleset| check_ruleset(ruleset, &scope))?;
        let clock = Arc::clone(&parts.context.clock);
        let buckets = Arc::clone(&parts.buckets);
        let share = |eighths: u64| usize::try_from(parts.memory_limit_bytes / 8 * eighths).ok();
        let (handler, views): (Option<EventHandler>, Arc<dyn Views>) = match choice {
            HandlerChoice::Own(settings) => {
                let (dir, further_sink) = (parts.dir.join("handler"), parts.further_sink);
                let settings =
                    HandlerSettings { memory_max_bytes: share(HANDLER_EIGHTHS), ..settings.clone() };
                let handler =
                    EventHandler::start(buckets, dir, &settings, parts.store, further_sink, parts.context)
                        .await?;
                let views = handler.handler.clone();
                (Some(handler), views)
            }
            HandlerChoice::Remote(settings) => {
                let views = remote::views(settings)?;
                (None, Arc::new(Permitted::new(views, buckets, Arc::clone(&clock))))
            }
        };
        let recency = if handler.is_some() { Duration::ZERO } else { parts.metadata_ttl };
        let tree = Tree::start(TreeParts {
            views,
            rulesets: rulesets.clone(),
            recency,
            clock: Arc::clone(&clock),
            buckets: Arc::clone(&parts.buckets),
            handler: handler.as_ref().map(|handler| handler.handler.clone() as Arc<dyn Sink>),
            dir: Some(parts.dir.join("tree")),
            memory_max_bytes: match &handler {
                Some(_) => share(TREE_EIGHTHS),
                None => share(HANDLER_EIGHTHS + TREE_EIGHTHS),
            },
        });
        let tree = tree.await.context("cannot open the journal of directory renames in views")?;
        let relists = matches!(choice, HandlerChoice::Own(settings) if settings.feeds.sources.is_empty());
        let has_feeds = handler.is_some() && !relists;
        let detection =
            if has_feeds { ChangeDetection::Events } else { ChangeDetection::Polling(parts.metadata_ttl) };
        let relister = relists.then(|| Relister::new(parts.metadata_ttl, clock.now()));
        let kernel = KernelInvalidation::default();
        if matches!(parts.volume, Volume::Buckets { .. }) && rulesets.len() <= READY_VIEWS_MAX {
            // A listing that takes longer continues after the mount has started.
            let _is_ready = tokio::time::timeout(READY_TIMEOUT, tree.refresh_all()).await;
        }
        Ok(Arc::new(Self { tree, handler, scope, rulesets, recency, detection, kernel, clock, relister }))
    }

    /// Stops the handler and the reports to the kernel, at the end of the mount.
    pub(crate) async fn stop(&self) {
        self.kernel.stop();
        if let Some(handler) = &self.handler {
            handler.stop().await;
        }
    }

    /// Wraps a store, so that the views are notified of changes that are made through it.
    pub(crate) fn wrap_store(self: &Arc<Self>, store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        notifying_store::wrap(store, Arc::clone(self))
    }

    /// Notifies the views that an object was stored, and has the handler of this process examine the object.
    async fn notify_stored(&self, object: ObjectName, meta: ObjectMeta, tags: Option<Tags>) {
        let ObjectMeta { object: at, size_bytes, attributes, .. } = meta;
        let (container, key) = (Arc::clone(&object.container), object.key.clone());
        self.tree.notify_stored(Shown {
            name: object,
            size_bytes,
            etag: at.etag,
            modified: at.last_modified.unwrap_or_else(|| self.clock.now()),
            content_type: attributes.content_type,
            properties: Some(attributes.user),
            tags,
        });
        self.report_stale();
        self.verify_object(&container, &key).await;
    }

    /// Notifies the views that an object was removed, and has the handler of this process examine the object.
    async fn notify_removed(&self, object: &ObjectName) {
        self.tree.notify_removed(object);
        self.report_stale();
        self.verify_object(&object.container, &object.key).await;
    }

    /// Has the handler of this process examine the object. A remote handler learns of changes by its own sources.
    async fn verify_object(&self, container: &str, key: &ObjectKey) {
        if let Some(handler) = &self.handler {
            handler.handler.verify_object(container, key.as_bytes()).await;
        }
    }

    /// Returns the state of the views.
    pub(crate) fn status(&self) -> Vec<protocol::View> {
        let views = self.tree.status().into_iter();
        let view = |view: ViewStatus| protocol::View {
            name: view.name,
            objects: view.objects as u64,
            lost: view.outage.map(|outage| outage.why),
            unlisted: view.unlisted.iter().map(Unlisted::to_string).collect(),
        };
        views.map(view).collect()
    }

    /// Returns the memory for the objects of all views, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let handler_bytes = self.handler.as_ref().map_or(0, |handler| handler.handler.memory_bytes());
        (handler_bytes + self.tree.own_memory_bytes()) as u64
    }

    /// Returns the objects that the store refuses to move with their directory, each with the reason.
    pub(crate) fn moves_refused(&self) -> Vec<String> {
        let line =
            |(object, why): &(ObjectName, String)| format!("{}/{}: {why}", object.container, object.key);
        self.tree.refused().iter().map(line).collect()
    }

    /// Returns whether the handler is in this process.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.is_some()
    }

    /// Returns the state of the event sources.
    pub(crate) fn sources(&self) -> Vec<protocol::EventSource> {
        self.handler.iter().flat_map(|handler| handler.report().feeds).map(Into::into).collect()
    }

    /// Lists buckets again before a view is read, if no event source reports changes and a listing is due.
    async fn refresh(&self) {
        let (Some(relister), Some(handler)) = (&self.relister, &self.handler) else { return };
        let handler = Arc::clone(&handler.handler);
        let list = || async move { handler.list_all_again().await };
        relister.refresh(self.clock.now(), list).await;
    }
}

/// Reads the rulesets of a file. Prints the file's problems to standard error, one line each.
pub(crate) fn read_rulesets(file: &Path) -> Result<Vec<Ruleset>> {
    let shown = file.display();
    let mut text = String::new();
    let opened = std::fs::File::open(file).with_context(|| format!("cannot read {shown}"))?;
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).with_context(|| format!("cannot read {shown}"))?;
    let problems = match views::read(&text) {
        Ok(rulesets) => return Ok(rulesets),
        Err(problems) => problems,
    };
    for problem in &problems {
        eprintln!("{shown}:{problem}");
    }
    match problems.len() {
        1 => bail!("{shown} has a problem"),
        count => bail!("{shown} has {count} problems"),
    }
}

/// Refuses a ruleset that selects no object of the mounted volume.
fn check_ruleset(ruleset: &Ruleset, scope: &ObjectScope) -> Result<()> {
    let name = &ruleset.name;
    let ObjectScope::Bucket { name: bucket, .. } = scope else { return Ok(()) };
    match views::containers(&ruleset.rules).any(|pattern| pattern.names(bucket)) {
        true => Ok(()),
        false => Err(anyhow!(
            "'{name}' shows nothing of the mounted bucket '{bucket}'; name that bucket as its container, or mount --views without a volume"
        )),
    }
}

/// A volume's bucket, as the only bucket.
#[derive(Debug)]
pub(crate) struct SingleBucket {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn ObjectStore>,
}

#[async_trait::async_trait]
impl Buckets for SingleBucket {
    async fn open(&self, name: &str) -> store::Result<Arc<dyn ObjectStore>> {
        match name == self.name {
            true => Ok(Arc::clone(&self.store)),
            false => Err(StoreError::NoSuchBucket(name.to_owned())),
        }
    }

    async fn create(&self, _name: &str) -> store::Result<()> {
        Err(StoreError::Denied(format!("only the bucket '{}' is mounted", self.name)))
    }

    async fn delete(&self, _name: &str) -> store::Result<()> {
        Err(StoreError::Denied(format!("the bucket '{}' is mounted", self.name)))
    }

    async fn list(&self) -> store::Result<Vec<String>> {
        Ok(vec![self.name.clone()])
    }
}
