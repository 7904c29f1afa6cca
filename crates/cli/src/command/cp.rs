//! `tenon cp`: copies files and trees between mounts, directories and buckets, inside the store where it can.

use crate::command::output::print_line;
use crate::command::tree_work::{CopyFlags, Totals, TreeWork};
use crate::process;
use crate::process::context::ProcessContext;
use crate::trees::{EntryKind, Item, Location, TEMPORARY_PREFIX, copy_file, make_directory};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;

/// Copy files, and with -r trees, between mounts, directories and buckets
///
/// Copies inside one bucket, and inside one mount, are made by the store. A file appears at its target with its last
/// byte. The exit code is 1 if something could not be copied.
#[derive(Debug, Args)]
pub(crate) struct Cp {
    /// Source: a path, or a URL like s3://bucket/prefix
    #[arg(value_name = "FROM")]
    from: String,
    /// Target; if it is a directory or ends in /, the copy gets the source's name in it
    #[arg(value_name = "TO")]
    to: String,
    /// Copy a directory and all that is in it
    #[arg(long, short)]
    recursive: bool,
    #[command(flatten)]
    copying: CopyFlags,
}

impl Cp {
    pub(crate) fn run(self) -> Result<ExitCode> {
        process::runtime()?.block_on(async {
            let (context, store) = (ProcessContext::system()?, self.copying.store.settings());
            let from = Location::open_to_read(&self.from, &store, &context).await?;
            let to = self.target(&from, Location::open_to_write(&self.to, &store, &context).await?).await?;
            if !self.recursive && from.is_directory().await? {
                bail!("{from} is a directory; copy it and all that is in it with -r");
            }
            if from.contains(&to) {
                bail!("{to} is in {from}: a copy of a directory cannot be in itself");
            }
            let mut work = TreeWork::new(self.copying.parallel);
            self.copy(&from, &to, &mut work).await?;
            work.report(self.copying.json, self.copying.dry_run)
        })
    }

    /// Returns the place of the source's copy: in `to`, under the source's name, if `to` is a directory or was written with a
    /// `/` at its end; otherwise, or if the source has no name, `to` itself.
    async fn target(&self, from: &Location, to: Location) -> Result<Location> {
        let is_directory = self.to.ends_with('/') || to.is_directory().await?;
        match from.file_name() {
            Some(name) if is_directory => Ok(to.join(&name)),
            _ => Ok(to),
        }
    }

    async fn copy(&self, from: &Location, to: &Location, work: &mut TreeWork) -> Result<()> {
        let (mut entries, mut has_any) = (from.entries(), false);
        while let Some(item) = entries.next().await? {
            has_any = true;
            let entry = match item {
                Item::Entry(entry) => entry,
                Item::Unreadable(reason) => {
                    work.fail(&reason);
                    continue;
                }
            };
            let name = entry.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if name.starts_with(TEMPORARY_PREFIX.as_bytes()) {
                continue;
            }
            let (source, target) = (from.join(&entry.path), to.join(&entry.path));
            let copied = Totals { copied: 1, bytes: entry.size_bytes, ..Totals::default() };
            match entry.kind {
                EntryKind::Directory if !self.copying.dry_run => make_directory(&target).await?,
                EntryKind::Directory => {}
                _ if self.copying.dry_run => {
                    work.add(copied);
                    print_line(&format!("copy {source} to {target}"))?;
                }
                _ => {
                    work.start(async move {
                        copy_file(&source, &entry, &target).await?;
                        Ok(copied)
                    })
                    .await;
                }
            }
        }
        if !has_any {
            bail!("there is no {from}");
        }
        work.finish().await;
        Ok(())
    }
}
