//! `tenon find`: lists the files of a mount, any directory, or a bucket that match.

use crate::command::flags::StoreFlags;
use crate::command::output::print_line;
use crate::command::units;
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339_system;
use crate::trees::{Entry, EntryKind, Item, Location};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use globset::{GlobBuilder, GlobMatcher};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use store::Timestamp;

/// Find files and directories that match all conditions
///
/// A path is walked; of a URL like s3://bucket/prefix, the keys are listed. Entries are in the order of their keys.
/// The exit code is 1 if something could not be read.
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Path or URL
    #[arg(value_name = "PATH|URL")]
    target: String,
    /// Pattern of the last name, like '*.csv'
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    name: Option<GlobMatcher>,
    /// Pattern of the whole path below the start; ** matches any number of directories
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    path: Option<GlobMatcher>,
    /// Kind of the entry
    #[arg(long = "type", value_name = "KIND")]
    kind: Option<Kind>,
    /// Only files of at least this size
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    larger: Option<u64>,
    /// Only files of at most this size
    #[arg(long, value_name = "SIZE", value_parser = units::size_bytes)]
    smaller: Option<u64>,
    /// Only entries that were modified within this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    newer: Option<Duration>,
    /// Only entries that were not modified within this time
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    older: Option<Duration>,
    /// Maximum depth below the start
    #[arg(long, value_name = "DEPTH")]
    max_depth: Option<usize>,
    /// End each path with a NUL instead of a line break, for xargs -0
    #[arg(long, short = '0', conflicts_with = "json")]
    print0: bool,
    /// Print one JSON object per entry
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// Kind of an entry, as find(1) names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// File
    #[value(alias = "f")]
    File,
    /// Directory
    #[value(alias = "d")]
    Directory,
    /// Symbolic link
    #[value(alias = "l")]
    Link,
}

impl Find {
    pub(crate) fn run(self) -> Result<ExitCode> {
        process::runtime()?.block_on(async {
            let context = ProcessContext::system()?;
            let location = Location::open_to_read(&self.target, &self.store.settings(), &context).await?;
            let (mut entries, now) = (location.entries(), context.clock.now());
            let mut is_complete = true;
            while let Some(item) = entries.next().await? {
                match item {
                    Item::Entry(entry) if self.matches(&entry, now) => self.print(&location, &entry)?,
                    Item::Entry(_) => {}
                    Item::Unreadable(reason) => {
                        eprintln!("tenon: {reason}");
                        is_complete = false;
                    }
                }
            }
            Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }

    fn matches(&self, entry: &Entry, now: Timestamp) -> bool {
        let text = || entry.text();
        // An entry without a time counts as modified just now.
        let is_within = |limit: Duration| {
            let age_secs = now.secs() - entry.modified.map_or(now.secs(), |at| at.secs());
            age_secs <= i64::try_from(limit.as_secs()).unwrap_or(i64::MAX)
        };
        let has_size = entry.kind == EntryKind::File;
        self.kind.is_none_or(|kind| kind.is_of(entry.kind))
            && self.max_depth.is_none_or(|depth| entry.depth() <= depth)
            && self.larger.is_none_or(|bytes| has_size && entry.size_bytes >= bytes)
            && self.smaller.is_none_or(|bytes| has_size && entry.size_bytes <= bytes)
            && self.newer.is_none_or(is_within)
            && self.older.is_none_or(|limit| !is_within(limit))
            && self.name.as_ref().is_none_or(|glob| {
                let path = text();
                glob.is_match(path.rsplit('/').next().unwrap_or_default())
            })
            && self.path.as_ref().is_none_or(|glob| glob.is_match(text()))
    }

    fn print(&self, root: &Location, entry: &Entry) -> Result<()> {
        let shown = root.join(&entry.path);
        if self.json {
            let modified = entry.modified.map(|at| at.to_system_time()).and_then(rfc3339_system);
            let line = serde_json::json!({
                "path": shown.to_string(),
                "type": entry.kind.name(),
                "size_bytes": entry.size_bytes,
                "modified": modified,
                "etag": entry.etag.as_ref().map(|etag| etag.as_str()),
            });
            return print_line(&line.to_string());
        }
        // Names need not be text.
        let end = if self.print0 { b'\0' } else { b'\n' };
        let line = [shown.as_bytes(), vec![end]].concat();
        std::io::stdout().write_all(&line).context("cannot write the output")
    }
}

impl Kind {
    fn is_of(self, kind: EntryKind) -> bool {
        let wanted = match self {
            Self::File => EntryKind::File,
            Self::Directory => EntryKind::Directory,
            Self::Link => EntryKind::Symlink,
        };
        wanted == kind
    }
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(text).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}
