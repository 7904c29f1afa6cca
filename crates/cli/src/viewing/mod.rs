//! Views in a mount: who knows which objects match (`views`), joined with the directories that show them (`vfs`).
//!
//! Owns what belongs to one mount: its tree of views, the event handler in this process, what that is fed with, and telling both
//! at once what was done through the mount.

mod following;
mod lister;
mod reach;
mod shown;
mod telling;

pub(crate) use reach::{Reach, accounts, containers};

use crate::bucket::World;
use crate::control::protocol;
use crate::flags::{StoreFlags, ViewFlags};
use crate::handling::{self, Handling};
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use events::Sink;
use following::Following;
use lister::Lister;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Clock, ObjectKey, ObjectMeta, ObjectStore, StoreError, Tags};
use views::tree::{Tree, TreeParts, ViewStatus};
use views::{ObjectName, Permitted, Ruleset, Shown, Unlisted, Views};

/// What a file of rulesets has at most: nobody writes more, and a device file has no end.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A mount of nothing but a few views begins when these are known, if that takes no longer: who mounts them looks at them next.
const READY_WITHIN: Duration = Duration::from_millis(100);
const READY_VIEWS_MAX: usize = 8;

/// How changes that others make come to be known.
#[derive(Debug, Clone, Copy)]
enum Hearing {
    /// By themselves.
    OfAll,
    /// By who looks, after such a time.
    WhenAsked(Duration),
}

/// Memory of an object in each view that shows it, in bytes: its path in the view, and what its handler said of it. Measured with
/// 400,000 keys of 60 bytes.
const SHOWN_BYTES: u64 = 800;

/// The views of a mount.
#[derive(Debug)]
pub(crate) struct Viewing {
    tree: Tree,
    /// The handler of this process, where there is one.
    handling: Option<Handling>,
    reach: Reach,
    rulesets: Vec<Ruleset>,
    /// For how long what is known is recent, where a ruleset does not say it.
    recency: Duration,
    hearing: Hearing,
    /// Who keeps what it finds.
    kernel: Following,
    clock: Arc<dyn Clock>,
    /// Where nobody says what happens: containers are listed again, this long after they were.
    lister: Option<Lister>,
}

/// What a mount needs for its views.
pub(crate) struct ViewingParts<'p> {
    pub(crate) volume: &'p Volume,
    /// Its bucket, or all of them.
    pub(crate) buckets: Arc<dyn Buckets>,
    /// Where the state of views is kept.
    pub(crate) dir: PathBuf,
    pub(crate) store: &'p StoreFlags,
    /// Who hears what the handler of this process hears.
    pub(crate) also: Option<Arc<dyn Sink>>,
    /// For how long what was listed is recent.
    pub(crate) metadata_ttl: Duration,
    pub(crate) world: &'p World,
}

impl Viewing {
    /// Opens the views that a file of rulesets says.
    pub(crate) async fn start(
        flags: &ViewFlags,
        rulesets: Vec<Ruleset>,
        parts: ViewingParts<'_>,
    ) -> Result<Arc<Self>> {
        let reach = Reach::of(parts.volume);
        rulesets.iter().try_for_each(|ruleset| must_be_here(ruleset, &reach))?;
        let clock = Arc::clone(&parts.world.clock);
        let handling = match flags.handler.handler.is_empty() {
            true => {
                let (buckets, dir) = (Arc::clone(&parts.buckets), parts.dir.join("handler"));
                let (flags, also) = (&flags.events, parts.also);
                Some(Handling::start(buckets, dir, flags, parts.store, also, parts.world).await?)
            }
            false => None,
        };
        let views: Arc<dyn Views> = match &handling {
            Some(handling) => handling.handler.clone(),
            None => {
                let (views, buckets) = (handling::elsewhere(&flags.handler)?, Arc::clone(&parts.buckets));
                Arc::new(Permitted::new(views, buckets, Arc::clone(&clock)))
            }
        };
        let recency = if handling.is_some() { Duration::ZERO } else { parts.metadata_ttl };
        let tree = Tree::start(TreeParts {
            views,
            rulesets: rulesets.clone(),
            recency,
            clock: Arc::clone(&clock),
            buckets: Arc::clone(&parts.buckets),
            handler: handling.as_ref().map(|handling| handling.handler.clone() as Arc<dyn Sink>),
            dir: Some(parts.dir.join("tree")),
        });
        let tree = tree.await.context("cannot keep the directories of views")?;
        let lists = handling.is_some() && flags.events.events.is_empty();
        let has_feeds = handling.is_some() && !lists;
        let hearing = if has_feeds { Hearing::OfAll } else { Hearing::WhenAsked(parts.metadata_ttl) };
        let lister = lists.then(|| Lister::new(parts.metadata_ttl, clock.now()));
        let kernel = Following::default();
        if matches!(parts.volume, Volume::Buckets { .. }) && rulesets.len() <= READY_VIEWS_MAX {
            // What takes longer goes on while it is mounted.
            let _is_ready = tokio::time::timeout(READY_WITHIN, tree.look_at_all()).await;
        }
        Ok(Arc::new(Self { tree, handling, reach, rulesets, recency, hearing, kernel, clock, lister }))
    }

    /// The mount ends.
    pub(crate) async fn stop(&self) {
        self.kernel.stop();
        if let Some(handling) = &self.handling {
            handling.stop().await;
        }
    }

    /// A store whose changes the views hear of.
    pub(crate) fn watch(self: &Arc<Self>, store: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        telling::watched(store, Arc::clone(self))
    }

    /// An object was stored.
    async fn stored(&self, object: ObjectName, meta: ObjectMeta, tags: Option<Tags>) {
        let ObjectMeta { object: at, size_bytes, attributes, .. } = meta;
        let (container, key) = (Arc::clone(&object.container), object.key.clone());
        self.tree.told_stored(Shown {
            name: object,
            size_bytes,
            etag: at.etag,
            modified: at.last_modified.unwrap_or_else(|| self.clock.now()),
            content_type: attributes.content_type,
            properties: Some(attributes.user),
            tags,
        });
        self.say_stale();
        self.look_again(&container, &key).await;
    }

    /// An object was removed.
    async fn removed(&self, object: &ObjectName) {
        self.tree.told_removed(object);
        self.say_stale();
        self.look_again(&object.container, &object.key).await;
    }

    /// The handler in this process looks for itself; another hears of it by its own ways.
    async fn look_again(&self, container: &str, key: &ObjectKey) {
        if let Some(handling) = &self.handling {
            handling.handler.look_again(container, key.as_bytes()).await;
        }
    }

    /// How the views stand.
    pub(crate) fn status(&self) -> Vec<protocol::View> {
        let views = self.tree.status().into_iter();
        let view = |view: ViewStatus| protocol::View {
            name: view.name,
            objects: view.objects as u64,
            lost: view.lost.map(|lost| lost.why),
            unlisted: view.unlisted.iter().map(Unlisted::to_string).collect(),
        };
        views.map(view).collect()
    }

    /// About the memory that the objects of all views take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let handled = self.handling.as_ref().map_or(0, |handling| handling.handler.stats().memory_bytes);
        let shown: usize = self.tree.status().iter().map(|view| view.objects).sum();
        handled as u64 + shown as u64 * SHOWN_BYTES
    }

    /// Objects that the store refuses to move with their directory, each with the reason.
    pub(crate) fn moves_refused(&self) -> Vec<String> {
        let line =
            |(object, why): &(ObjectName, String)| format!("{}/{}: {why}", object.container, object.key);
        self.tree.refused().iter().map(line).collect()
    }

    /// Whether what happens is heard by a handler of this process.
    pub(crate) fn hears(&self) -> bool {
        self.handling.is_some()
    }

    /// How the sources of events do.
    pub(crate) fn sources(&self) -> Vec<protocol::EventSource> {
        self.handling.iter().flat_map(|handling| handling.report().feeds).map(Into::into).collect()
    }

    /// Somebody looks: where nobody says what happens, that is when to find out.
    async fn is_looked_at(&self) {
        let (Some(lister), Some(handling)) = (&self.lister, &self.handling) else { return };
        let handler = Arc::clone(&handling.handler);
        let list = || async move { handler.list_all_again().await };
        lister.look(self.clock.now(), list).await;
    }
}

/// The rulesets of a file; what is wrong with it goes to standard error, a line each.
pub(crate) fn read(file: &Path) -> Result<Vec<Ruleset>> {
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

/// An error for a ruleset that a mount cannot show.
fn must_be_here(ruleset: &Ruleset, reach: &Reach) -> Result<()> {
    let name = &ruleset.name;
    let Reach::Bucket { name: bucket, .. } = reach else { return Ok(()) };
    match views::containers(&ruleset.rules).any(|pattern| pattern.names(bucket)) {
        true => Ok(()),
        false => Err(anyhow!(
            "'{name}' shows nothing of the bucket '{bucket}', which is mounted; name that as its container, or mount --views without a volume"
        )),
    }
}

/// A volume's bucket, as the only one there is.
#[derive(Debug)]
pub(crate) struct OnlyBucket {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn ObjectStore>,
}

#[async_trait::async_trait]
impl Buckets for OnlyBucket {
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
