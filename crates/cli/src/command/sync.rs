//! `tenon sync`: makes a tree equal to another. Both are walked in the order of keys and merged, so that neither is held
//! in memory; a run that is interrupted continues where the trees still differ.

use crate::command::output::print_line;
use crate::command::tree_work::{CopyFlags, Totals, TreeWork};
use crate::metadata;
use crate::process;
use crate::process::context::ProcessContext;
use crate::trees::{
    Entry, EntryKind, EntryStream, Item, Location, TEMPORARY_PREFIX, copy_file, has_same_content,
    is_abandoned, make_directory, remove_entry,
};
use anyhow::{Result, bail};
use clap::Args;
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::cmp::Ordering;
use std::path::Path;
use std::process::ExitCode;

/// Make a directory or bucket equal to another one
///
/// Copies files that are missing in the target, that have another size, or that are newer in the source; with
/// --checksum, those with other bytes. Run it again after an interruption: it copies what is left. The exit code is 1
/// if something could not be copied.
#[derive(Debug, Args)]
pub(crate) struct Sync {
    /// Source: a directory, or a URL like s3://bucket/prefix
    #[arg(value_name = "FROM")]
    from: String,
    /// Target: a directory or a URL
    #[arg(value_name = "TO")]
    to: String,
    /// Remove from the target what the source does not have
    #[arg(long)]
    delete: bool,
    /// Compare the bytes of files of equal size by their checksums, instead of their times
    #[arg(long)]
    checksum: bool,
    /// Leave out paths that match, like '*.tmp' or 'cache/**' (repeatable)
    #[arg(long, value_name = "GLOB", value_parser = Glob::new)]
    exclude: Vec<Glob>,
    #[command(flatten)]
    copying: CopyFlags,
}

/// Two trees that are being made equal.
struct Run<'a> {
    flags: &'a Sync,
    excluded: GlobSet,
    from: Location,
    to: Location,
    work: TreeWork,
    /// Directories to remove from the target, in the order of the walk.
    surplus: Vec<Entry>,
}

impl Sync {
    pub(crate) fn run(self) -> Result<ExitCode> {
        process::runtime()?.block_on(async {
            let (context, store) = (ProcessContext::system()?, self.copying.store.settings());
            let from = Location::open_to_read(&self.from, &store, &context).await?;
            let to = Location::open_to_write(&self.to, &store, &context).await?;
            if !from.is_directory().await? {
                bail!("{from} is not a directory; copy a single file with `tenon cp`");
            }
            if from.contains(&to) || to.contains(&from) {
                bail!("one of {from} and {to} contains the other: choose trees that do not overlap");
            }
            make_target(&to, self.copying.dry_run).await?;
            let mut excluded = GlobSetBuilder::new();
            for glob in &self.exclude {
                excluded.add(glob.clone());
            }
            let (excluded, work) = (excluded.build()?, TreeWork::new(self.copying.parallel));
            let mut run = Run { flags: &self, excluded, from, to, work, surplus: Vec::new() };
            run.merge().await?;
            let surplus = std::mem::take(&mut run.surplus);
            run.work.remove_directories(&run.to, surplus, self.copying.dry_run).await?;
            run.work.report(self.copying.json, self.copying.dry_run)
        })
    }
}

/// Creates the target directory, except in a dry run. Fails if the target is a file.
async fn make_target(to: &Location, is_dry_run: bool) -> Result<()> {
    if let Location::Path(path) = to
        && path.exists()
        && !path.is_dir()
    {
        bail!("{to} is not a directory");
    }
    if is_dry_run { Ok(()) } else { make_directory(to).await }
}

impl Run<'_> {
    /// Walks both trees at once, in the order of keys, and copies and removes what differs.
    async fn merge(&mut self) -> Result<()> {
        let mut sources = self.from.entries();
        // A missing directory has no entries.
        let mut targets = match &self.to {
            Location::Path(path) if !path.exists() => None,
            to => Some(to.entries()),
        };
        let mut source = self.next_source(&mut sources).await?;
        let mut target = self.next_target(&mut targets).await?;
        loop {
            let order = match (&source, &target) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(source), Some(target)) => source.compare(target),
            };
            if order != Ordering::Greater
                && let Some(entry) = source.take()
            {
                let found = if order == Ordering::Equal { target.take() } else { None };
                self.update(entry, found).await?;
                source = self.next_source(&mut sources).await?;
            } else if let Some(entry) = target.take() {
                self.remove_if_wanted(entry, source.as_ref()).await?;
            }
            if target.is_none() {
                target = self.next_target(&mut targets).await?;
            }
        }
        self.work.finish().await;
        Ok(())
    }

    /// Returns the next entry of the source. What cannot be read must not be removed from the target, so it ends a run
    /// with `--delete`.
    async fn next_source(&mut self, entries: &mut EntryStream) -> Result<Option<Entry>> {
        while let Some(item) = entries.next().await? {
            match item {
                Item::Entry(entry) if self.is_left_out(&entry) => {}
                Item::Entry(entry) => return Ok(Some(entry)),
                Item::Unreadable(reason) if self.flags.delete => {
                    bail!("{reason}; the rest was not compared, so that --delete removes nothing that exists")
                }
                Item::Unreadable(reason) => self.work.fail(&reason),
            }
        }
        Ok(None)
    }

    /// Returns the next entry of the target. Removes the temporary files that killed copies left there, except in a dry run.
    async fn next_target(&mut self, entries: &mut Option<EntryStream>) -> Result<Option<Entry>> {
        let Some(entries) = entries else { return Ok(None) };
        while let Some(item) = entries.next().await? {
            match item {
                Item::Entry(entry) if !self.flags.copying.dry_run && is_left_over(&entry) => {
                    remove_entry(&self.to, &entry).await?;
                }
                Item::Entry(entry) if self.is_left_out(&entry) => {}
                Item::Entry(entry) => return Ok(Some(entry)),
                Item::Unreadable(reason) => self.work.fail(&reason),
            }
        }
        Ok(None)
    }

    /// Returns whether an entry is not compared: the root, a temporary file, or what `--exclude` names.
    fn is_left_out(&self, entry: &Entry) -> bool {
        entry.path.is_empty() || is_temporary(entry) || self.excluded.is_match(Path::new(&entry.text()))
    }

    /// Copies an entry of the source, unless the target has it.
    async fn update(&mut self, entry: Entry, found: Option<Entry>) -> Result<()> {
        let (source, target) = (self.from.join(&entry.path), self.to.join(&entry.path));
        if entry.is_directory() {
            return if self.flags.copying.dry_run || found.is_some() {
                Ok(())
            } else {
                make_directory(&target).await
            };
        }
        let copied = Totals { copied: 1, bytes: entry.size_bytes, ..Totals::default() };
        let unchanged = Totals { unchanged: 1, ..Totals::default() };
        let is_candidate = found
            .as_ref()
            .is_some_and(|found| found.kind == entry.kind && found.size_bytes == entry.size_bytes);
        let needs_bytes = self.flags.checksum && entry.kind == EntryKind::File;
        if is_candidate && !needs_bytes && found.as_ref().is_some_and(|found| !is_newer(&entry, found)) {
            self.work.add(unchanged);
            return Ok(());
        }
        let (is_dry_run, compares) = (self.flags.copying.dry_run, is_candidate && needs_bytes);
        self.work
            .start(async move {
                if let Some(found) = &found
                    && compares
                    && has_same_content(&source, &entry, &target, found).await?
                {
                    return Ok(unchanged);
                }
                match is_dry_run {
                    true => print_line(&format!("copy {source} to {target}"))?,
                    false => copy_file(&source, &entry, &target).await?,
                }
                Ok(copied)
            })
            .await;
        Ok(())
    }

    /// Removes an entry that only the target has, if that is wanted. Directories are removed at the end. `next` is the
    /// next entry of the source. A directory of the target that contains it stays: a bucket has no entries for its directories.
    async fn remove_if_wanted(&mut self, entry: Entry, next: Option<&Entry>) -> Result<()> {
        if !self.flags.delete || next.is_some_and(|next| entry.contains(next)) {
            return Ok(());
        }
        if entry.is_directory() {
            self.surplus.push(entry);
            return Ok(());
        }
        self.work.remove(&self.to, entry, self.flags.copying.dry_run).await
    }
}

/// Returns whether the source was modified after the target was written, in whole seconds. True if a time is not known.
fn is_newer(source: &Entry, target: &Entry) -> bool {
    match (source.modified, target.modified) {
        // S3 has times in seconds.
        (Some(source), Some(target)) => source.secs() > target.secs(),
        _ => true,
    }
}

/// Returns whether this is a file of a copy that is not complete.
fn is_temporary(entry: &Entry) -> bool {
    let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(TEMPORARY_PREFIX.as_bytes())
}

/// Returns whether this is the temporary file of a copy that was killed.
fn is_left_over(entry: &Entry) -> bool {
    let text = entry.text();
    let modified = entry.modified.map(|at| at.to_system_time());
    text.rsplit('/').next().is_some_and(|name| is_abandoned(name, modified, metadata::now().to_system_time()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Timestamp;

    fn entry(path: &str, secs: Option<i64>) -> Entry {
        let modified = secs.map(|secs| Timestamp::from_secs(secs, 7));
        let path = path.as_bytes().into();
        Entry { path, kind: EntryKind::File, size_bytes: 1, modified, etag: None, shared_inode: None }
    }

    #[test]
    fn a_file_is_copied_if_it_is_newer() {
        assert!(is_newer(&entry("a", Some(2)), &entry("a", Some(1))));
        assert!(!is_newer(&entry("a", Some(1)), &entry("a", Some(1))));
        assert!(is_newer(&entry("a", Some(1)), &entry("a", None)));
    }
}
