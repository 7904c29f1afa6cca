//! `tenon views list` and `watch`: what views show, asked of a handler elsewhere, or of one made for the purpose.

use crate::bucket::{self, World};
use crate::command::object::print_line;
use crate::flags::{HandlerFlags, StoreFlags};
use crate::handling;
use crate::viewing;
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
    Changes, Cursor, Handler, HandlerConfig, HandlerParts, ObjectName, Ruleset, Shown, Unlisted, ViewId,
    Views,
};

/// Objects asked for at once.
const PAGE: usize = 8192;

/// Who is asked.
#[derive(Debug, Args)]
pub(crate) struct Asked {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    handler: HandlerFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// Whoever knows.
struct Knower {
    views: Arc<dyn Views>,
    /// One of this process's own, which nobody tells anything: it lists again.
    own: Option<Arc<Handler>>,
}

impl Asked {
    async fn start(&self, rulesets: &[Ruleset]) -> Result<Knower> {
        if !self.handler.handler.is_empty() {
            return Ok(Knower { views: handling::elsewhere(&self.handler)?, own: None });
        }
        let world = World::real()?;
        let handler = Handler::start(HandlerParts {
            buckets: bucket::all(&viewing::accounts(rulesets), &self.store, &world).await?,
            clock: Arc::clone(&world.clock),
            entropy: Entropy::new(world.entropy.next_u64()),
            dir: None,
            config: HandlerConfig::default(),
        });
        let handler = handler.await?;
        Ok(Knower { views: handler.clone(), own: Some(handler) })
    }
}

/// Prints how many objects each view has.
pub(crate) async fn list(rulesets: &[Ruleset], asked: &Asked) -> Result<ExitCode> {
    let knower = asked.start(rulesets).await?;
    for ruleset in rulesets {
        let mut view = Watched::open(&*knower.views, ruleset).await?;
        view.ask(&*knower.views, &mut |_, _| Ok(())).await?;
        let bytes = view.known.values().map(|shown| shown.size_bytes).sum();
        print_line(&counted(&Count { view: &ruleset.name, objects: view.known.len(), bytes }, asked.json)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what enters, changes and leaves, until it is stopped.
pub(crate) async fn watch(rulesets: &[Ruleset], interval: Duration, asked: &Asked) -> Result<ExitCode> {
    let knower = asked.start(rulesets).await?;
    let mut views = Vec::new();
    for ruleset in rulesets {
        views.push(Watched::open(&*knower.views, ruleset).await?);
    }
    let mut fails = false;
    loop {
        for view in &mut views {
            let name = view.name.clone();
            let mut print =
                |step: Step, object: &ObjectName| print_line(&stepped(&name, step, object, asked.json)?);
            match view.ask(&*knower.views, &mut print).await {
                Ok(()) => fails = false,
                Err(Trouble::Print(error)) => return Err(error),
                Err(Trouble::View(error)) => {
                    if !fails {
                        eprintln!("tenon: {error}; it is asked again");
                    }
                    fails = true;
                }
            }
        }
        tokio::time::sleep(interval).await;
        if let Some(own) = &knower.own {
            own.lost(None).await;
        }
    }
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Step {
    Enters,
    Changes,
    Leaves,
}

/// Why a view is not shown.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    View(#[from] views::ViewError),
    #[error(transparent)]
    Print(anyhow::Error),
}

/// A view, and what is known of it.
struct Watched {
    name: String,
    view: ViewId,
    ruleset: Ruleset,
    cursor: Option<Cursor>,
    known: HashMap<ObjectName, Arc<Shown>>,
    unlisted: Vec<Unlisted>,
}

type Told<'t> = &'t mut (dyn FnMut(Step, &ObjectName) -> Result<()> + Send);

impl Watched {
    async fn open(views: &dyn Views, ruleset: &Ruleset) -> Result<Self> {
        let view = views.open(ruleset).await.with_context(|| format!("view '{}'", ruleset.name))?;
        let (name, ruleset) = (ruleset.name.clone(), ruleset.clone());
        Ok(Self { name, view, ruleset, cursor: None, known: HashMap::new(), unlisted: Vec::new() })
    }

    /// Asks to the end, and tells what is new.
    async fn ask(&mut self, views: &dyn Views, tell: Told<'_>) -> Result<(), Trouble> {
        // What a new beginning does not say again has left.
        let mut before: Option<HashMap<ObjectName, Arc<Shown>>> = None;
        loop {
            let changes = match views.changes(self.view, self.cursor.as_ref(), PAGE).await {
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
            self.take(changes, before.as_mut(), tell).map_err(Trouble::Print)?;
            if !has_more {
                break;
            }
        }
        let left = before.unwrap_or_default();
        left.keys().try_for_each(|object| tell(Step::Leaves, object)).map_err(Trouble::Print)
    }

    fn take(
        &mut self,
        changes: Changes,
        mut before: Option<&mut HashMap<ObjectName, Arc<Shown>>>,
        tell: Told<'_>,
    ) -> Result<()> {
        for object in &changes.gone {
            let was_before = before.as_mut().and_then(|before| before.remove(object));
            if self.known.remove(object).or(was_before).is_some() {
                tell(Step::Leaves, object)?;
            }
        }
        for shown in changes.shown {
            let was_before = before.as_mut().and_then(|before| before.remove(&shown.name));
            match self.known.insert(shown.name.clone(), Arc::clone(&shown)).or(was_before) {
                None => tell(Step::Enters, &shown.name)?,
                Some(old) if old != shown => tell(Step::Changes, &shown.name)?,
                Some(_) => {}
            }
        }
        for one in changes.unlisted.iter().filter(|one| !self.unlisted.contains(one)) {
            eprintln!("tenon: view '{}': {one}", self.name);
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

fn counted(count: &Count<'_>, json: bool) -> Result<String> {
    if json {
        return Ok(serde_json::to_string(count)?);
    }
    Ok(format!("{}: {} objects, {} bytes", count.view, count.objects, count.bytes))
}

#[derive(Serialize)]
struct Stepped<'s> {
    view: &'s str,
    step: Step,
    container: &'s str,
    /// What is no UTF-8 is shown as a sign that stands for it.
    key: String,
}

fn stepped(view: &str, step: Step, object: &ObjectName, json: bool) -> Result<String> {
    let key = String::from_utf8_lossy(object.key.as_bytes()).into_owned();
    let container = &*object.container;
    if json {
        return Ok(serde_json::to_string(&Stepped { view, step, container, key })?);
    }
    let sign = match step {
        Step::Enters => '+',
        Step::Changes => '~',
        Step::Leaves => '-',
    };
    Ok(format!("{sign} {view} s3://{container}/{key}"))
}
