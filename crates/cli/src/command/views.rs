//! `tenon views`: files of rulesets, checked and explained.

use crate::bucket::{Bucket, World};
use crate::command::object::print_line;
use crate::command::watching::{self, Asked};
use crate::flags::StoreFlags;
use crate::target::split_key;
use crate::units;
use crate::viewing::read;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use store::Timestamp;
use views::{ObjectState, Ruleset};

/// Check rulesets, and see why an object is shown or not.
///
/// A ruleset is a directory's name and the rules that an object must keep, all of them, to be a file there; see docs/views.md.
#[derive(Debug, Args)]
pub(crate) struct Views {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Read a file of rulesets, and show what is wrong with it or what it says
    Check {
        /// YAML
        file: PathBuf,
    },
    /// Show which rules of which rulesets an object keeps
    Explain {
        /// YAML
        file: PathBuf,
        /// The object
        #[arg(value_name = "VOLUME/KEY")]
        target: String,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Show how many objects each view has
    List {
        /// YAML
        file: PathBuf,
        #[command(flatten)]
        asked: Asked,
    },
    /// Show objects as they enter views (+), change (~) and leave (-), beginning with those that are there
    Watch {
        /// YAML
        file: PathBuf,
        /// Only the view of this name
        name: Option<String>,
        /// How often to ask
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
        interval: Duration,
        #[command(flatten)]
        asked: Asked,
    },
}

impl Views {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Check { file } => check(&file),
            Action::Explain { file, target, store } => {
                let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
                runtime.block_on(explain(&read(&file)?, &target, &store))
            }
            Action::List { file, asked } => {
                let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
                runtime.block_on(watching::list(&read(&file)?, &asked))
            }
            Action::Watch { file, name, interval, asked } => {
                let mut rulesets = read(&file)?;
                rulesets.retain(|ruleset| name.as_ref().is_none_or(|name| ruleset.name == *name));
                if rulesets.is_empty() {
                    bail!("{} has no ruleset '{}'", file.display(), name.unwrap_or_default());
                }
                let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
                runtime.block_on(watching::watch(&rulesets, interval, &asked))
            }
        }
    }
}

fn check(file: &Path) -> Result<ExitCode> {
    for ruleset in read(file)? {
        print_line(&ruleset.name)?;
        ruleset.rules.iter().try_for_each(|rule| print_line(&format!("  {rule}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn explain(rulesets: &[Ruleset], target: &str, store: &StoreFlags) -> Result<ExitCode> {
    let (volume, key) = split_key(target)?;
    let world = World::real()?;
    let bucket = Bucket::reach(&volume, store, true, &world).await?;
    let meta = bucket.store.head(&key).await?;
    let tags = bucket.store.tags(&key).await?;
    let object = ObjectState {
        container: &volume.bucket_name(),
        key: key.as_bytes(),
        size_bytes: meta.size_bytes,
        modified: meta.object.last_modified.unwrap_or_default(),
        accessed: None,
        content_type: meta.attributes.content_type.as_deref(),
        properties: &meta.attributes.user,
        tags: &tags,
    };
    rulesets.iter().try_for_each(|ruleset| print_reasons(ruleset, &object, world.clock.now()))?;
    Ok(ExitCode::SUCCESS)
}

fn print_reasons(ruleset: &Ruleset, object: &ObjectState<'_>, now: Timestamp) -> Result<()> {
    let is_shown = if ruleset.matches(object, now) { "shown" } else { "not shown" };
    print_line(&format!("{}: {is_shown}", ruleset.name))?;
    ruleset.explain(object, now).iter().try_for_each(|reason| {
        let (holds, but) = if reason.holds {
            ("yes", String::new())
        } else {
            ("no", format!(", but it is {}", reason.found))
        };
        print_line(&format!("  {holds:<3} {}{but}", reason.rule))
    })
}
