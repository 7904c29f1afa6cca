//! `tenon rm`: removes files, and trees with many removals at once.

use crate::command::flags::StoreFlags;
use crate::command::tree_work::TreeWork;
use crate::process;
use crate::process::context::ProcessContext;
use crate::trees::{Entry, Item, Location};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;

/// Remove files or objects; with -r, whole trees, many files at once
///
/// The exit code is 1 if something could not be removed.
#[derive(Debug, Args)]
pub(crate) struct Rm {
    /// Paths, or URLs like s3://bucket/prefix
    #[arg(value_name = "PATH|URL", required = true)]
    targets: Vec<String>,
    /// Remove directories and all that is in them
    #[arg(long, short)]
    recursive: bool,
    /// Print what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Removals at once
    #[arg(long, value_name = "COUNT", default_value = "64")]
    parallel: usize,
    /// Print totals as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Rm {
    pub(crate) fn run(self) -> Result<ExitCode> {
        process::runtime()?.block_on(async {
            let mut work = TreeWork::new(self.parallel);
            for target in &self.targets {
                let context = ProcessContext::system()?;
                let location = Location::open_to_write(target, &self.store.settings(), &context).await?;
                self.remove(&location, &mut work).await?;
            }
            work.finish().await;
            work.report(self.json, self.dry_run)
        })
    }

    /// Removes a tree: its files as they are found, then its directories, the deepest first.
    async fn remove(&self, location: &Location, work: &mut TreeWork) -> Result<()> {
        // The link is removed, not the tree that it leads to.
        if location.is_link() {
            return work.remove(location, Entry::link(), self.dry_run).await;
        }
        if !self.recursive && location.is_directory().await? {
            bail!("{location} is a directory; remove it and all that is in it with -r");
        }
        if matches!(location, Location::Path(path) if path.parent().is_none()) {
            bail!("{location} is the root directory of this machine; nothing was removed");
        }
        let (mut entries, mut directories) = (location.entries(), Vec::new());
        let mut has_any = false;
        while let Some(item) = entries.next().await? {
            has_any = true;
            match item {
                Item::Unreadable(reason) => work.fail(&reason),
                Item::Entry(entry) if entry.is_directory() => directories.push(entry),
                Item::Entry(entry) => work.remove(location, entry, self.dry_run).await?,
            }
        }
        if !has_any {
            bail!("there is no {location}");
        }
        work.remove_directories(location, directories, self.dry_run).await
    }
}
