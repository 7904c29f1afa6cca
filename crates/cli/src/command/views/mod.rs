//! `tenon views`: checks and explains files of rulesets, and lists and watches their views.

mod watch;

use crate::bucket::Bucket;
use crate::command::flags::StoreFlags;
use crate::command::output::print_line;
use crate::command::units;
use crate::command::views::watch::ViewSourceFlags;
use crate::mounted_views::read_rulesets;
use crate::process;
use crate::process::context::ProcessContext;
use crate::volume::target::split_key;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use store::Timestamp;
use views::{ObjectState, Ruleset};

/// Check rulesets, and show which objects match them.
///
/// A ruleset is the name of a directory and a list of rules; an object is shown there if it matches all of them. See
/// docs/views.md.
#[derive(Debug, Args)]
pub(crate) struct Views {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Check a file of rulesets, and print its problems or its rules
    Check {
        /// YAML file of rulesets
        file: PathBuf,
    },
    /// Show which rules of which rulesets an object matches
    Explain {
        /// YAML file of rulesets
        file: PathBuf,
        /// The object
        #[arg(value_name = "VOLUME/KEY")]
        target: String,
        #[command(flatten)]
        store: StoreFlags,
    },
    /// Show how many objects each view has
    List {
        /// YAML file of rulesets
        file: PathBuf,
        #[command(flatten)]
        flags: ViewSourceFlags,
    },
    /// Show objects as they enter views (+), change (~) and leave (-), starting with the present ones
    Watch {
        /// YAML file of rulesets
        file: PathBuf,
        /// Only the view of this name
        name: Option<String>,
        /// Polling interval
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = units::duration)]
        interval: Duration,
        #[command(flatten)]
        flags: ViewSourceFlags,
    },
}

impl Views {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::Check { file } => check(&file),
            Action::Explain { file, target, store } => {
                let runtime = process::runtime()?;
                runtime.block_on(explain(&read_rulesets(&file)?, &target, &store))
            }
            Action::List { file, flags } => {
                let runtime = process::runtime()?;
                runtime.block_on(watch::list(&read_rulesets(&file)?, &flags))
            }
            Action::Watch { file, name, interval, flags } => {
                let mut rulesets = read_rulesets(&file)?;
                rulesets.retain(|ruleset| name.as_ref().is_none_or(|name| ruleset.name == *name));
                if rulesets.is_empty() {
                    bail!(
                        "{} has no ruleset '{}'; `tenon views check` lists its rulesets",
                        file.display(),
                        name.unwrap_or_default()
                    );
                }
                let runtime = process::runtime()?;
                runtime.block_on(watch::watch(&rulesets, interval, &flags))
            }
        }
    }
}

/// Prints the rulesets of a file, or its problems.
fn check(file: &Path) -> Result<ExitCode> {
    for ruleset in read_rulesets(file)? {
        print_line(&ruleset.name)?;
        ruleset.rules.iter().try_for_each(|rule| print_line(&format!("  {rule}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn explain(rulesets: &[Ruleset], target: &str, store: &StoreFlags) -> Result<ExitCode> {
    let (volume, key) = split_key(target)?;
    let context = ProcessContext::system()?;
    let bucket = Bucket::open_or_connect(&volume, &store.settings(), true, &context).await?;
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
    rulesets.iter().try_for_each(|ruleset| print_reasons(ruleset, &object, context.clock.now()))?;
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
