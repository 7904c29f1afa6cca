//! `tenon fsck`: checks a volume, and this machine's state for it.
//!
//! Repairs only what is safe to repair: removes what a mount that died left on this machine, its leases, and content
//! that no file refers to. Objects kept for open files are removed only with `--remove-orphans`.

use crate::bucket::Bucket;
use crate::command::output::Progress;
use crate::command::unmounted::{UnmountedFlags, UnmountedVolume};
use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, Request};
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339;
use crate::serving::metadata_backup;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use futures_util::stream::{self, StreamExt};
use staging::leases::left_over;
use std::path::PathBuf;
use std::process::ExitCode;
use store::{ListRequest, ObjectKey, ObjectMeta, Pages, Precondition, StoreError};

/// Exit code if problems were left (fsck(8)).
const EXIT_UNREPAIRED: u8 = 4;
/// Exit code if all problems were repaired.
const EXIT_REPAIRED: u8 = 1;
const PAGE_ENTRIES: usize = 1000;
/// Maximum number of HEAD requests in flight.
const HEADS_IN_FLIGHT: usize = 32;

/// Check a volume, and clean up after a mount that died.
///
/// Exit code: 0 clean, 1 problems repaired, 4 problems left.
#[derive(Debug, Args)]
pub(crate) struct Fsck {
    /// A volume, or its mount point
    #[arg(value_name = "VOLUME|DIR")]
    target: String,
    /// Report problems, but repair nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Check the headers of every object too (one request per object)
    #[arg(long)]
    headers: bool,
    /// Read and verify the backup of the metadata too
    #[arg(long)]
    backup: bool,
    /// Remove objects kept for open files of mounts that died; no other mount may be using them
    #[arg(long)]
    remove_orphans: bool,
    /// Print one JSON object per problem
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: UnmountedFlags,
}

/// Problems found so far.
#[derive(Debug, Default)]
struct Findings {
    /// Number of problems repaired, and of those left.
    fixed: usize,
    left: usize,
    json: bool,
}

impl Fsck {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut findings = Findings { json: self.json, ..Findings::default() };
        let mount = Registry::of_user().find(&self.target).ok();
        let volume = match &mount {
            Some(mount) => Volume::parse(&mount.holder.volume)?,
            None => Volume::parse(&self.target)?,
        };
        match &mount {
            Some(mount) => check_mounted(mount, &mut findings)?,
            None => self.check_state(&volume, &mut findings)?,
        }
        let runtime = process::runtime()?;
        runtime.block_on(self.check_objects(&volume, mount.is_some(), &mut findings))?;
        Ok(findings.conclude(&volume))
    }

    fn state_root(&self, volume: &Volume) -> PathBuf {
        self.access.state_root(volume)
    }

    /// Removes what a mount that died left: its socket, and cache files, whose bytes were never acknowledged.
    fn check_state(&self, volume: &Volume, findings: &mut Findings) -> Result<()> {
        let root = &self.state_root(volume);
        if !root.is_dir() {
            return Ok(());
        }
        let _lock = state::lock_for_command(root, volume)?;
        for leftover in state::leftovers(root) {
            let what = format!("left by a mount that died: {}", leftover.display());
            match self.dry_run || std::fs::remove_file(&leftover).is_err() {
                true => findings.left(&what),
                false => findings.fixed(&what),
            }
        }
        Ok(())
    }

    /// Checks what the bucket has of the volume: objects kept for open files, leases, and as the flags say headers and the backup. Checks
    /// the metadata and the content of a volume that is not mounted.
    async fn check_objects(&self, volume: &Volume, is_mounted: bool, findings: &mut Findings) -> Result<()> {
        let context = ProcessContext::system()?;
        let bucket = Bucket::open_or_connect(volume, &self.access.store(), self.dry_run, &context).await?;
        let progress = Progress::start();
        let own = format!("{}{}/orphans/", volume.prefix(), vfs::RESERVED);
        for key in list_keys(&bucket, own.into_bytes()).await? {
            // Orphans of a live mount belong to files that programs have open.
            if is_mounted {
                continue;
            }
            let what = format!("kept for a file that was open: {key}");
            match self.remove_orphans && !self.dry_run {
                true => {
                    bucket.store.delete(&key, Precondition::None).await?;
                    findings.fixed(&what);
                }
                false => findings.left(&format!("{what} (--remove-orphans removes it)")),
            }
        }
        for key in
            left_over(bucket.store.as_ref(), &vfs::leases(volume.prefix().as_bytes()), self.dry_run).await?
        {
            let what = format!("the lease of a mount that died: {key}");
            match self.dry_run {
                true => findings.left(&what),
                false => findings.fixed(&what),
            }
        }
        if self.headers {
            self.check_headers(volume, &bucket, &progress, findings).await?;
        }
        if self.backup {
            check_backup(volume, &bucket, findings).await?;
        }
        if !is_mounted {
            let opened = self.access.with_bucket(volume, bucket, context).await?;
            self.check_content(volume, &opened, findings).await?;
        }
        Ok(())
    }

    /// Checks that the metadata is consistent, and that the bucket has the content that it refers to. Deletes content
    /// that no file refers to, unless `dry_run` is set.
    async fn check_content(
        &self,
        volume: &Volume,
        opened: &UnmountedVolume,
        findings: &mut Findings,
    ) -> Result<()> {
        let (store, prefix) = (opened.store(), opened.prefix());
        if !opened.has_metadata() {
            let has_content = match &opened.record {
                Some(record) if opened.is_by_inode() && self.state_root(volume).is_dir() => {
                    record.has_content(store, prefix).await?
                }
                _ => false,
            };
            if !has_content {
                // Nothing was ever written from this machine; the first mount makes the metadata.
                return Ok(());
            }
        }
        let _lock = opened.lock_state()?;
        let engine = opened.open_metadata().await?.engine();
        let audit = vfs::Audit::make(engine.as_ref(), store, opened.key_space()).await?;
        audit.violations.iter().for_each(|violation| findings.left(violation));
        for (ino, key) in audit.missing {
            let file = match meta::namespace::read_path(engine.as_ref(), ino) {
                Ok(names) => names.iter().map(|name| format!("/{name}")).collect(),
                Err(_) => format!("inode {ino}, which has no name"),
            };
            findings.left(&format!("the content of {file} is lost: {key}"));
        }
        for key in audit.unused {
            let what = format!("content that no file refers to: {key}");
            match self.dry_run {
                false => {
                    store.delete(&key, Precondition::None).await?;
                    findings.fixed(&what);
                }
                true => findings.left(&what),
            }
        }
        Ok(())
    }

    /// Checks the attribute headers of all objects of the volume.
    async fn check_headers(
        &self,
        volume: &Volume,
        bucket: &Bucket,
        progress: &Progress,
        findings: &mut Findings,
    ) -> Result<()> {
        let keys = list_keys(bucket, volume.prefix().as_bytes().to_vec()).await?;
        let heads = keys.into_iter().map(|key| async move { bucket.store.head(&key).await });
        let mut heads = stream::iter(heads).buffered(HEADS_IN_FLIGHT);
        let mut looked_at = 0;
        while let Some(head) = heads.next().await {
            match head {
                Ok(meta) => malformed_headers(&meta).iter().for_each(|what| findings.left(what)),
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error.into()),
            }
            looked_at += 1;
            if looked_at % PAGE_ENTRIES == 0 {
                progress.show(&format!("{looked_at} objects"));
            }
        }
        Ok(())
    }
}

impl Findings {
    /// Prints and counts a problem that was repaired.
    fn fixed(&mut self, what: &str) {
        self.fixed += 1;
        self.print(what, "fixed");
    }

    /// Prints and counts a problem that was left.
    fn left(&mut self, what: &str) {
        self.left += 1;
        self.print(what, "left");
    }

    fn print(&self, what: &str, outcome: &str) {
        match self.json {
            true => println!("{}", serde_json::json!({ "found": what, "outcome": outcome })),
            false => println!("{what}: {outcome}"),
        }
    }

    /// Prints the totals. Returns the exit code.
    fn conclude(&self, volume: &Volume) -> ExitCode {
        if !self.json {
            match (self.fixed, self.left) {
                (0, 0) => println!("{} is clean", volume.url()),
                (fixed, left) => println!("{}: {fixed} problems repaired, {left} left", volume.url()),
            }
        }
        match (self.fixed, self.left) {
            (0, 0) => ExitCode::SUCCESS,
            (_, 0) => ExitCode::from(EXIT_REPAIRED),
            _ => ExitCode::from(EXIT_UNREPAIRED),
        }
    }
}

/// Asks a mount to check its own metadata.
fn check_mounted(mount: &LiveMount, findings: &mut Findings) -> Result<()> {
    let mut client = Client::connect(mount)?;
    match client.ask(&Request::Check, |_| {})? {
        Answer::Checked { violations } => violations.iter().for_each(|violation| findings.left(violation)),
        other => client.unexpected(&other)?,
    }
    Ok(())
}

/// Verifies all backups of the volume's metadata, and prints what each contains.
async fn check_backup(volume: &Volume, bucket: &Bucket, findings: &mut Findings) -> Result<()> {
    let (store, keys) = (bucket.store.as_ref(), metadata_backup::keys(volume));
    let lineages = backup::lineages(store, &keys).await?;
    if lineages.is_empty() {
        findings.left("there is no backup of the metadata");
    }
    for lineage in lineages {
        let verified = backup::verify(store, &keys, lineage).await?;
        verified.problems.iter().for_each(|problem| findings.left(&format!("backup {lineage}: {problem}")));
        if !findings.json {
            let moment = verified.moment.map_or("never".to_owned(), rfc3339);
            println!(
                "backup {lineage}: {} snapshots, {} records in the newest, {} changes in the log, complete as of {moment}",
                verified.snapshots, verified.records, verified.ops
            );
        }
    }
    Ok(())
}

async fn list_keys(bucket: &Bucket, prefix: Vec<u8>) -> Result<Vec<ObjectKey>> {
    let request = ListRequest { prefix: Bytes::from(prefix), limit: PAGE_ENTRIES, ..ListRequest::default() };
    let entries = Pages::new(bucket.store.as_ref(), request).collect().await?;
    Ok(entries.into_iter().filter_map(|entry| Some(entry.into_object()?.0.key)).collect())
}

/// Describes malformed attribute headers, for which a mount uses defaults.
fn malformed_headers(meta: &ObjectMeta) -> Vec<String> {
    let wrong = meta.attributes.user.iter().filter(|(name, value)| !is_well_formed(name, value));
    wrong.map(|(name, value)| format!("{}: header {name} is '{value}'", meta.object.key)).collect()
}

/// Returns whether a header is well-formed in the AWS `file-*` dialect, which Tenon writes. Headers outside this dialect count as well-formed.
fn is_well_formed(name: &str, value: &str) -> bool {
    match name {
        "file-permissions" => u32::from_str_radix(value, 8).is_ok(),
        "file-owner" | "file-group" => value.parse::<u32>().is_ok(),
        "file-mtime" | "file-atime" => value.strip_suffix("ns").unwrap_or(value).parse::<i64>().is_ok(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_dialect_are_checked_and_others_are_not() {
        for (name, value) in
            [("file-permissions", "0100644"), ("file-mtime", "1500000000000000000ns"), ("color", "blue")]
        {
            assert!(is_well_formed(name, value), "{name}");
        }
        for (name, value) in [("file-permissions", "rwx"), ("file-owner", "-1"), ("file-atime", "yesterday")]
        {
            assert!(!is_well_formed(name, value), "{name}");
        }
    }
}
