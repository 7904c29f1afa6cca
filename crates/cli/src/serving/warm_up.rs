//! Fills the disk cache with a directory tree.

use crate::control::cache_messages::WarmUp;
use crate::control::protocol::Answer;
use crate::control::server::Replies;
use futures_util::stream::{self, StreamExt as _};
use std::time::Duration;
use tokio::time::Instant;
use vfs::{DirectoryEntry, Filesystem, Ino, Kind, Warmed};

/// Files read at once.
const FILES_AT_ONCE: usize = 16;
/// Entries of a directory that are read at once.
const PAGE_ENTRIES: usize = 1000;
/// Maximum number of failures that are returned as text.
const FAILURES_MAX: usize = 20;
/// Interval of progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Answers the request to warm up the files at and below a path. Returns early if the client disconnects.
pub(crate) async fn serve(fs: &Filesystem, path_hex: &str, replies: &mut Replies) -> Answer {
    let Some(path) = store::unhex(path_hex) else {
        return Answer::Failed { reason: "the path is not hexadecimal".to_owned() };
    };
    let failed =
        |error: vfs::Error| Answer::Failed { reason: format!("{}: {error}", String::from_utf8_lossy(&path)) };
    let mut walk = Walk { fs, done: WarmUp::default(), reported: Instant::now(), is_connected: true };
    match walk.start(&path, replies).await {
        Ok(()) => Answer::WarmedUp(walk.done),
        Err(error) => failed(error),
    }
}

/// A walk of a tree.
struct Walk<'a> {
    fs: &'a Filesystem,
    done: WarmUp,
    /// Time of the last progress message.
    reported: Instant,
    is_connected: bool,
}

impl Walk<'_> {
    /// Warms up the file or the directory at a path. Fails if nothing below it can be warmed up.
    async fn start(&mut self, path: &[u8], replies: &mut Replies) -> vfs::Result<()> {
        let ino = self.fs.admin().locate(path).await?.ino;
        match self.fs.getattr(ino).await?.kind {
            Kind::Directory => self.tree(ino, replies).await,
            _ => self.add(self.fs.admin().warm(ino).await?),
        }
        Ok(())
    }

    /// Warms up all files below a directory.
    async fn tree(&mut self, root: Ino, replies: &mut Replies) {
        let mut directories = vec![root];
        while let Some(directory) = directories.pop().filter(|_| self.is_connected) {
            match self.fs.opendir(directory).await {
                Ok(handle) => {
                    let listed = self.directory(handle, &mut directories, replies).await;
                    self.fs.releasedir(handle);
                    listed.unwrap_or_else(|error| self.fail(b"a directory", &error));
                }
                Err(error) => self.fail(b"a directory", &error),
            }
        }
    }

    /// Warms up the files of a directory, and adds its directories to those that are still to be visited.
    async fn directory(
        &mut self,
        handle: vfs::Handle,
        directories: &mut Vec<Ino>,
        replies: &mut Replies,
    ) -> vfs::Result<()> {
        let mut cookie = 0;
        loop {
            let page = self.fs.readdir(handle, cookie, PAGE_ENTRIES, false).await?;
            let Some(last) = page.last() else { return Ok(()) };
            cookie = last.cookie;
            let entries = self.fs.with_kinds(page).await?;
            let of_kind = |kind| {
                let is_kind = move |entry: &&DirectoryEntry| {
                    entry.kind == Some(kind) && !matches!(&*entry.name, b"." | b"..")
                };
                entries.iter().filter(is_kind)
            };
            directories.extend(of_kind(Kind::Directory).map(|entry| entry.ino));
            let fs = self.fs;
            let warm = |entry: &DirectoryEntry| {
                let (name, ino) = (entry.name.clone(), entry.ino);
                async move { (name, fs.admin().warm(ino).await) }
            };
            let files: Vec<_> = of_kind(Kind::File).map(warm).collect();
            let mut files = stream::iter(files).buffer_unordered(FILES_AT_ONCE);
            while let Some((name, outcome)) = files.next().await {
                match outcome {
                    Ok(warmed) => self.add(warmed),
                    Err(error) => self.fail(&name, &error),
                }
                if !self.report(replies).await {
                    return Ok(());
                }
            }
        }
    }

    fn add(&mut self, warmed: Warmed) {
        self.done.files += 1;
        self.done.bytes += warmed.file_bytes;
        self.done.read_bytes += warmed.read_bytes;
    }

    fn fail(&mut self, name: &[u8], error: &vfs::Error) {
        self.done.failed += 1;
        if self.done.failures.len() < FAILURES_MAX {
            self.done.failures.push(format!("{}: {error}", String::from_utf8_lossy(name)));
        }
    }

    /// Sends progress from time to time. Returns whether the client is still connected.
    async fn report(&mut self, replies: &mut Replies) -> bool {
        if self.reported.elapsed() >= PROGRESS_INTERVAL {
            self.reported = Instant::now();
            self.is_connected = replies.try_send(&Answer::WarmingUp(self.done.clone())).await;
        }
        self.is_connected
    }
}
