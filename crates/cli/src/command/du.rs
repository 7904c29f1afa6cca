//! `tenon du`: sums up files and bytes by directory, of a mount, any directory, or a bucket.

use crate::command::flags::StoreFlags;
use crate::command::output::{Progress, print_line};
use crate::command::units::human_bytes;
use crate::process;
use crate::process::context::ProcessContext;
use crate::trees::{Entry, EntryKind, Item, Location};
use anyhow::Result;
use clap::Args;
use std::collections::HashSet;
use std::process::ExitCode;

/// Entries between two lines of progress.
const PROGRESS_ENTRIES: u64 = 20_000;

/// Sum up files and bytes by directory
///
/// A path is walked; of a URL like s3://bucket/prefix, the keys are listed. A file with several names counts once.
/// The exit code is 1 if something could not be read.
#[derive(Debug, Args)]
pub(crate) struct Du {
    /// Paths or URLs
    #[arg(value_name = "PATH|URL", required = true)]
    targets: Vec<String>,
    /// Depth of the directories to show; 0 shows only totals
    #[arg(long, short, value_name = "DEPTH", default_value = "1")]
    depth: usize,
    /// Show sizes in bytes
    #[arg(long, short)]
    bytes: bool,
    /// Print one JSON object per directory
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// Totals of a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Totals {
    files: u64,
    directories: u64,
    bytes: u64,
}

impl Totals {
    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes += other.bytes;
    }
}

impl Du {
    pub(crate) fn run(self) -> Result<ExitCode> {
        process::runtime()?.block_on(async {
            let mut is_complete = true;
            for target in &self.targets {
                is_complete &= self.sum_up(target).await?;
            }
            Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        })
    }

    /// Prints the directories of a tree. Returns whether all of it could be read.
    async fn sum_up(&self, target: &str) -> Result<bool> {
        let location =
            Location::open_to_read(target, &self.store.settings(), &ProcessContext::system()?).await?;
        let mut entries = location.entries();
        let (mut sums, mut is_complete, mut seen) = (DirectorySums::default(), true, 0_u64);
        let progress = Progress::start_on_terminal();
        while let Some(item) = entries.next().await? {
            match item {
                Item::Entry(entry) => {
                    for (path, totals) in sums.add(&entry) {
                        self.print(&location, &path, totals)?;
                    }
                }
                Item::Unreadable(reason) => {
                    eprintln!("tenon: {reason}");
                    is_complete = false;
                }
            }
            seen += 1;
            if seen.is_multiple_of(PROGRESS_ENTRIES) {
                progress.show(&format!("{seen} entries"));
            }
        }
        drop(progress);
        for (path, totals) in sums.finish() {
            self.print(&location, &path, totals)?;
        }
        Ok(is_complete)
    }

    fn print(&self, root: &Location, path: &[u8], totals: Totals) -> Result<()> {
        let depth = if path.is_empty() { 0 } else { path.split(|byte| *byte == b'/').count() };
        if depth > self.depth {
            return Ok(());
        }
        let shown = root.join(path).to_string();
        let Totals { files, directories, bytes } = totals;
        if self.json {
            let line = serde_json::json!({
                "path": shown, "bytes": bytes, "files": files, "directories": directories,
            });
            return print_line(&line.to_string());
        }
        let size = if self.bytes { bytes.to_string() } else { human_bytes(bytes) };
        print_line(&format!("{size:>12}  {files:>9} files  {directories:>8} directories  {shown}"))
    }
}

/// Sums of the directories on the way to the present entry.
#[derive(Debug, Default)]
struct DirectorySums {
    /// The names on the way from the root, and the sums below each; the first is the root's.
    open: Vec<(Vec<u8>, Totals)>,
    /// Files with several names that were counted already, by device and inode.
    counted: HashSet<(u64, u64)>,
}

impl DirectorySums {
    /// Adds the next entry of a walk. Returns the directories that are complete now.
    fn add(&mut self, entry: &Entry) -> Vec<(Vec<u8>, Totals)> {
        if self.open.is_empty() {
            self.open.push((Vec::new(), Totals::default()));
        }
        let mut names: Vec<&[u8]> = entry.path.split(|byte| *byte == b'/').collect();
        if !entry.is_directory() || entry.path.is_empty() {
            names.pop();
        }
        let open = self.open[1..].iter().map(|(name, _)| name.as_slice());
        let common = open.zip(&names).take_while(|(one, other)| one == *other).count();
        let complete = self.close(common + 1);
        for name in &names[common..] {
            self.open.push((name.to_vec(), Totals::default()));
            // Counted by its name on the way, and not by an entry of its own, which a directory in a bucket does not have.
            self.add_to_last(Totals { directories: 1, ..Totals::default() });
        }
        let is_new = entry.shared_inode.is_none_or(|inode| self.counted.insert(inode));
        if !entry.is_directory() && is_new {
            let bytes = if entry.kind == EntryKind::File { entry.size_bytes } else { 0 };
            self.add_to_last(Totals { files: 1, directories: 0, bytes });
        }
        complete
    }

    /// Ends the walk. Returns the remaining directories.
    fn finish(mut self) -> Vec<(Vec<u8>, Totals)> {
        if self.open.is_empty() {
            return vec![(Vec::new(), Totals::default())];
        }
        self.close(0)
    }

    fn add_to_last(&mut self, totals: Totals) {
        if let Some((_, last)) = self.open.last_mut() {
            last.add(totals);
        }
    }

    /// Completes the directories beyond the first `keep`, and adds each to the one above it.
    fn close(&mut self, keep: usize) -> Vec<(Vec<u8>, Totals)> {
        let mut complete = Vec::new();
        while self.open.len() > keep {
            let names: Vec<&[u8]> = self.open.iter().skip(1).map(|(name, _)| name.as_slice()).collect();
            let path = names.join(&b'/');
            let Some((_, totals)) = self.open.pop() else { break };
            self.add_to_last(totals);
            complete.push((path, totals));
        }
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> Entry {
        let path = path.as_bytes().into();
        Entry { path, kind, size_bytes: 10, modified: None, etag: None, shared_inode: None }
    }

    fn sums(entries: &[Entry]) -> Vec<(String, u64, u64, u64)> {
        let mut sums = DirectorySums::default();
        let mut all: Vec<_> = entries.iter().flat_map(|entry| sums.add(entry)).collect();
        all.extend(sums.finish());
        all.into_iter()
            .map(|(path, t)| (String::from_utf8(path).unwrap(), t.files, t.directories, t.bytes))
            .collect()
    }

    #[test]
    fn directories_contain_those_below() {
        let (dir, file) = (EntryKind::Directory, EntryKind::File);
        let in_directory = [
            entry("", dir),
            entry("a", dir),
            entry("a/b", dir),
            entry("a/b/f", file),
            entry("a/g", file),
            entry("z", file),
        ];
        let expected =
            [("a/b", 1, 1, 10), ("a", 2, 2, 20), ("", 3, 2, 30)].map(|(p, f, d, b)| (p.to_owned(), f, d, b));
        assert_eq!(sums(&in_directory), expected);
        let in_bucket = [entry("a/b/f", file), entry("a/g", file), entry("z", file)];
        assert_eq!(sums(&in_bucket), expected);
        assert_eq!(sums(&[]), [(String::new(), 0, 0, 0)]);
        assert_eq!(sums(&[entry("", file)]), [(String::new(), 1, 0, 10)]);
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let named = |path| Entry { shared_inode: Some((1, 7)), ..entry(path, EntryKind::File) };
        assert_eq!(sums(&[named("a"), named("b")]), [(String::new(), 1, 0, 10)]);
    }
}
