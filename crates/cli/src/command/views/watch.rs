//! `tenon views list` and `watch`: read views from a remote handler, or from a temporary handler of this process.

use crate::bucket::credentials::open_accounts;
use crate::command::flags::StoreFlags;
use crate::command::flags::views::HandlerFlags;
use crate::command::output::print_line;
use crate::event_handler::remote;
use crate::mounted_views;
use crate::process::context::ProcessContext;
use anyhow::{Context, Result};
use clap::Args;
use events::Sink;
use serde::Serialize;
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::Entropy;
use views::{
    Changes, Cursor, Handler, HandlerConfig, HandlerParts, ObjectName, PackedObject, Ruleset, Unlisted,
    ViewId, Views,
};

/// Objects requested at once.
const PAGE_OBJECTS: usize = 8192;

/// Flags for the handler to read views from.
#[derive(Debug, Args)]
pub(crate) struct ViewSourceFlags {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    handler: HandlerFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// A source of views.
struct ViewSource {
    views: Arc<dyn Views>,
    /// The temporary handler of this process, if there is one. It receives no events, so it must list buckets again.
    own: Option<Arc<Handler>>,
}

impl ViewSourceFlags {
    async fn start(&self, rulesets: &[Ruleset]) -> Result<ViewSource> {
        if !self.handler.handler.is_empty() {
            return Ok(ViewSource { views: remote::views(&self.handler.settings())?, own: None });
        }
        let context = ProcessContext::system()?;
        let accounts = mounted_views::accounts(rulesets);
        let handler = Handler::start(HandlerParts {
            buckets: open_accounts(&accounts, &self.store.settings(), &context).await?,
            clock: Arc::clone(&context.clock),
            entropy: Entropy::new(context.entropy.next_u64()),
            dir: None,
            config: HandlerConfig::default(),
        });
        let handler = handler.await?;
        Ok(ViewSource { views: handler.clone(), own: Some(handler) })
    }
}

/// Prints how many objects each view has.
pub(crate) async fn list(rulesets: &[Ruleset], flags: &ViewSourceFlags) -> Result<ExitCode> {
    let source = flags.start(rulesets).await?;
    for ruleset in rulesets {
        let mut view = WatchedView::open(&*source.views, ruleset).await?;
        view.update(&*source.views, &mut |_, _| Ok(())).await?;
        let bytes = view.known.values().map(PackedObject::size_bytes).sum();
        print_line(&count_line(
            &Count { view: &ruleset.name, objects: view.known.len(), bytes },
            flags.json,
        )?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints objects that enter, change and leave, until the process is stopped.
pub(crate) async fn watch(
    rulesets: &[Ruleset],
    interval: Duration,
    flags: &ViewSourceFlags,
) -> Result<ExitCode> {
    let source = flags.start(rulesets).await?;
    let mut views = Vec::new();
    for ruleset in rulesets {
        views.push(WatchedView::open(&*source.views, ruleset).await?);
    }
    let mut fails = false;
    loop {
        for view in &mut views {
            let name = view.name.clone();
            let mut print = |transition: Transition, object: &ObjectName| {
                print_line(&change_line(&name, transition, object, flags.json)?)
            };
            match view.update(&*source.views, &mut print).await {
                Ok(()) => fails = false,
                Err(WatchError::Print(error)) => return Err(error),
                Err(WatchError::View(error)) => {
                    if !fails {
                        eprintln!("tenon: {error}; retrying");
                    }
                    fails = true;
                }
            }
        }
        tokio::time::sleep(interval).await;
        if let Some(own) = &source.own {
            own.lost(None).await.context("cannot note that the buckets must be listed again")?;
        }
    }
}

/// A change of an object in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Transition {
    Enters,
    Changes,
    Leaves,
}

/// Why watching a view failed.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    View(#[from] views::ViewError),
    #[error(transparent)]
    Print(anyhow::Error),
}

/// A view, and its objects as last read.
struct WatchedView {
    name: String,
    view: ViewId,
    ruleset: Ruleset,
    cursor: Option<Cursor>,
    known: HashMap<ObjectName, PackedObject>,
    unlisted: Vec<Unlisted>,
}

type OnTransition<'t> = &'t mut (dyn FnMut(Transition, &ObjectName) -> Result<()> + Send);

impl WatchedView {
    async fn open(views: &dyn Views, ruleset: &Ruleset) -> Result<Self> {
        let view =
            views.open(ruleset).await.with_context(|| format!("cannot open view '{}'", ruleset.name))?;
        let (name, ruleset) = (ruleset.name.clone(), ruleset.clone());
        Ok(Self { name, view, ruleset, cursor: None, known: HashMap::new(), unlisted: Vec::new() })
    }

    /// Reads all changes, and passes each to `report`.
    async fn update(&mut self, views: &dyn Views, report: OnTransition<'_>) -> Result<(), WatchError> {
        // If the changes start over, objects that are not reported again have left.
        let mut before: Option<HashMap<ObjectName, PackedObject>> = None;
        loop {
            let changes = match views.changes(self.view, self.cursor.as_ref(), PAGE_OBJECTS).await {
                Err(views::ViewError::Unknown) => {
                    self.view = views.open(&self.ruleset).await?;
                    continue;
                }
                answer => answer?,
            };
            if changes.is_beginning {
                before = Some(std::mem::take(&mut self.known));
            }
            let has_more = changes.has_more;
            self.apply(changes, before.as_mut(), report).map_err(WatchError::Print)?;
            if !has_more {
                break;
            }
        }
        let left = before.unwrap_or_default();
        left.keys().try_for_each(|object| report(Transition::Leaves, object)).map_err(WatchError::Print)
    }

    /// Applies a page of changes. `before` has the objects from before the changes started over, without those that were reported again.
    fn apply(
        &mut self,
        changes: Changes,
        mut before: Option<&mut HashMap<ObjectName, PackedObject>>,
        report: OnTransition<'_>,
    ) -> Result<()> {
        for object in &changes.gone {
            let was_before = before.as_mut().and_then(|before| before.remove(object));
            if self.known.remove(object).or(was_before).is_some() {
                report(Transition::Leaves, object)?;
            }
        }
        for shown in changes.shown {
            let name = shown.name();
            let was_before = before.as_mut().and_then(|before| before.remove(&name));
            match self.known.insert(name.clone(), shown.clone()).or(was_before) {
                None => report(Transition::Enters, &name)?,
                Some(old) if old != shown => report(Transition::Changes, &name)?,
                Some(_) => {}
            }
        }
        for bucket in changes.unlisted.iter().filter(|bucket| !self.unlisted.contains(bucket)) {
            eprintln!("tenon: view '{}': {bucket}", self.name);
        }
        self.unlisted = changes.unlisted;
        self.cursor = Some(changes.cursor);
        Ok(())
    }
}

#[derive(Serialize)]
struct Count<'c> {
    view: &'c str,
    objects: usize,
    bytes: u64,
}

fn count_line(count: &Count<'_>, json: bool) -> Result<String> {
    if json {
        return Ok(serde_json::to_string(count)?);
    }
    Ok(format!("{}: {} objects, {} bytes", count.view, count.objects, count.bytes))
}

/// A line of JSON: an object enters a view, changes in it or leaves it.
#[derive(Serialize)]
struct ViewChange<'s> {
    view: &'s str,
    #[serde(rename = "step")]
    transition: Transition,
    container: &'s str,
    /// Bytes that are not UTF-8 are replaced.
    key: String,
}

fn change_line(view: &str, transition: Transition, object: &ObjectName, json: bool) -> Result<String> {
    let key = String::from_utf8_lossy(object.key.as_bytes()).into_owned();
    let container = &*object.container;
    if json {
        return Ok(serde_json::to_string(&ViewChange { view, transition, container, key })?);
    }
    let sign = match transition {
        Transition::Enters => '+',
        Transition::Changes => '~',
        Transition::Leaves => '-',
    };
    Ok(format!("{sign} {view} s3://{container}/{key}"))
}
