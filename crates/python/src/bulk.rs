//! Reads and writes of many files, or ranges of files, in one call, whose requests are in flight together.
//!
//! A whole file is read by one GET of its object, without a lookup of its name. Only if that fails, or the object is not a
//! regular file, the path is resolved, which follows links and finds the exact error. A volume with a disk cache opens the file instead, because only
//! reads of files use the cache.

use crate::content::Content;
use crate::failure::{Failure, Outcome, Result};
use crate::file::{self, OpenFile};
use crate::parallel::each;
use crate::parts::Parts;
use crate::paths;
use crate::tree;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{CopyOptions, GetOptions, ObjectKey, ObjectRef, Precondition, PutOptions};
use vfs::Kind;

/// Length of one read while a file is copied to the local disk.
const COPY_BYTES: usize = 8 << 20;

/// Returns the content of files.
pub(crate) async fn read_files(parts: Parts, paths: Vec<Vec<u8>>) -> Result<Vec<Outcome<Content>>> {
    Ok(each(paths, move |path| read_file(parts.clone(), path, 0, None)).await)
}

/// Returns the bytes of a file from `start` to `end`. Negative positions count from the end of the file.
pub(crate) async fn read_file(parts: Parts, path: Vec<u8>, start: i64, end: Option<i64>) -> Result<Content> {
    if let Some(content) = read_object(&parts, &path, start, end).await {
        return Ok(content);
    }
    let open = file::open(&parts.fs, &path, libc::O_RDONLY, 0).await?;
    let range = absolute_range(start, end, open.size_bytes());
    let content = read_range(&open, &range).await;
    open.close().await?;
    content.map_err(|failure| failure.at(&path))
}

/// Reads a regular file by one GET; `None` if that is not possible, or if the file is to be read by way of the disk cache.
async fn read_object(parts: &Parts, path: &[u8], start: i64, end: Option<i64>) -> Option<Content> {
    if parts.has_disk_cache {
        return None;
    }
    let range = match (u64::try_from(start).ok()?, end.map(u64::try_from).transpose().ok()?) {
        (0, None) => None,
        (start, Some(end)) if start < end => Some(start..end),
        _ => return None,
    };
    let key = ObjectKey::new(paths::as_key(path)?.to_vec()).ok()?;
    let options = GetOptions { range, ..GetOptions::default() };
    let object = parts.objects.get(&key, options).await.ok()?;
    match vfs::kind_of(&object.meta) {
        Kind::File => object.body.try_collect().await.ok().map(Content),
        _ => None,
    }
}

/// Returns ranges of files. Each file is opened once.
pub(crate) async fn read_ranges(
    parts: Parts,
    wanted: Vec<(Vec<u8>, i64, Option<i64>)>,
) -> Result<Vec<Outcome<Content>>> {
    let mut paths: Vec<Vec<u8>> = wanted.iter().map(|(path, ..)| path.clone()).collect();
    paths.sort_unstable();
    paths.dedup();
    let open = {
        let fs = parts.fs.clone();
        each(paths.clone(), move |path| {
            let fs = fs.clone();
            async move { Ok(Arc::new(file::open(&fs, &path, libc::O_RDONLY, 0).await?)) }
        })
    };
    let files: HashMap<Vec<u8>, Result<Arc<OpenFile>>> =
        paths.into_iter().zip(open.await.into_iter().map(|Outcome(outcome)| outcome)).collect();
    let files = Arc::new(files);
    let shared = files.clone();
    let read = each(wanted, move |(path, start, end)| {
        let files = shared.clone();
        async move {
            let open =
                files.get(&path).cloned().unwrap_or_else(|| Err(Failure::new(libc::EBADF, "not open")))?;
            let range = absolute_range(start, end, open.size_bytes());
            read_range(&open, &range).await.map_err(|failure| failure.at(&path))
        }
    });
    let read = read.await;
    for open in files.values().flatten() {
        open.close().await?;
    }
    Ok(read)
}

/// Returns the range that Python's `start` and `end` mean in a file of this size, as in a slice.
fn absolute_range(start: i64, end: Option<i64>, size_bytes: u64) -> Range<u64> {
    let absolute = |at: i64| match at {
        0.. => at.unsigned_abs().min(size_bytes),
        _ => size_bytes.saturating_sub(at.unsigned_abs()),
    };
    let start = absolute(start);
    start..end.map_or(size_bytes, absolute).max(start)
}

async fn read_range(open: &OpenFile, range: &Range<u64>) -> Result<Content> {
    let (mut pieces, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let wanted = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        let piece = open.read(at, wanted).await?;
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
        pieces.push(piece);
    }
    Ok(Content(pieces))
}

/// Replaces files by new content, or creates them. Returns the outcome of each.
pub(crate) async fn write_files(
    parts: Parts,
    files: Vec<(Vec<u8>, Bytes)>,
    exclusive: bool,
) -> Result<Vec<Outcome<()>>> {
    Ok(each(files, move |(path, content)| write_file(parts.clone(), path, content, exclusive)).await)
}

/// Replaces a file by new content, or creates it and the directories above; fails if it exists and `exclusive` says so. A
/// file that exists keeps its attributes. Readers see the old or the new content.
pub(crate) async fn write_file(parts: Parts, path: Vec<u8>, content: Bytes, exclusive: bool) -> Result<()> {
    let found = match paths::resolve(&parts.fs, &path, true).await {
        Ok(found) => Some(found.attr.kind),
        Err(failure) if failure.errno() == libc::ENOENT => None,
        Err(failure) => return Err(failure),
    };
    let key = paths::as_key(&path).and_then(|key| ObjectKey::new(key.to_vec()).ok());
    match (found, key) {
        (Some(Kind::Directory), _) => Err(Failure::new(libc::EISDIR, "is a directory").at(&path)),
        (Some(_), _) if exclusive => Err(Failure::new(libc::EEXIST, "the name exists already").at(&path)),
        (None, Some(key)) => {
            let precondition = if exclusive { Precondition::Absent } else { Precondition::None };
            let options = PutOptions { precondition, ..PutOptions::default() };
            match parts.objects.put(&key, [content].into_iter().collect(), options).await {
                Err(store::StoreError::PreconditionFailed(_)) if exclusive => {
                    Err(Failure::new(libc::EEXIST, "the name exists already").at(&path))
                }
                stored => stored.map(drop).map_err(|error| Failure::from(error).at(&path)),
            }
        }
        _ => {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
            let open = file::open(&parts.fs, &path, flags, file::FILE_MODE).await?;
            let written = async {
                open.write(0, &content).await?;
                open.flush().await
            };
            let written = written.await.map_err(|failure| failure.at(&path));
            open.close().await?;
            written
        }
    }
}

/// Copies files to the local disk. Returns the outcome of each.
pub(crate) async fn get_files(parts: Parts, files: Vec<(Vec<u8>, PathBuf)>) -> Result<Vec<Outcome<()>>> {
    Ok(each(files, move |(path, local)| get_file(parts.clone(), path, local)).await)
}

async fn get_file(parts: Parts, path: Vec<u8>, local: PathBuf) -> Result<()> {
    if let Some(outcome) = get_object(&parts, &path, &local).await {
        return outcome;
    }
    let open = file::open(&parts.fs, &path, libc::O_RDONLY, 0).await?;
    let copied = async {
        let target = create_local(local).await?;
        let mut at = 0;
        while at < open.size_bytes() {
            let piece = open.read(at, COPY_BYTES).await?;
            if piece.is_empty() {
                break;
            }
            let len = piece.len() as u64;
            write_local(&target, piece, at).await?;
            at += len;
        }
        Ok(())
    };
    let copied = copied.await;
    open.close().await?;
    copied
}

/// Copies a small regular file to the local disk by one GET. Returns `None` if that is not possible, for a volume with a disk cache, and for files longer than
/// [`COPY_BYTES`], for which reads in parallel are faster.
async fn get_object(parts: &Parts, path: &[u8], local: &Path) -> Option<Result<()>> {
    if parts.has_disk_cache {
        return None;
    }
    let key = ObjectKey::new(paths::as_key(path)?.to_vec()).ok()?;
    let object = parts.objects.get(&key, GetOptions::default()).await.ok()?;
    if vfs::kind_of(&object.meta) != Kind::File || object.meta.size_bytes > COPY_BYTES as u64 {
        return None;
    }
    let pieces: Vec<Bytes> = object.body.try_collect().await.ok()?;
    let local = local.to_owned();
    let written = tokio::task::spawn_blocking(move || write_pieces(&local, &pieces));
    Some(joined(written.await))
}

fn write_pieces(local: &Path, pieces: &[Bytes]) -> Result<()> {
    use std::io::Write as _;
    let mut target = std::fs::File::create(local).map_err(|error| at_local(error, local))?;
    pieces.iter().try_for_each(|piece| target.write_all(piece)).map_err(|error| at_local(error, local))
}

async fn create_local(local: PathBuf) -> Result<Arc<std::fs::File>> {
    let created = tokio::task::spawn_blocking(move || {
        std::fs::File::create(&local).map(Arc::new).map_err(|error| at_local(error, &local))
    });
    joined(created.await)
}

async fn write_local(target: &Arc<std::fs::File>, piece: Bytes, at: u64) -> Result<()> {
    let target = target.clone();
    joined(tokio::task::spawn_blocking(move || Ok(target.write_all_at(&piece, at)?)).await)
}

/// Copies local files into the volume. Returns the outcome of each.
pub(crate) async fn put_files(parts: Parts, files: Vec<(PathBuf, Vec<u8>)>) -> Result<Vec<Outcome<()>>> {
    Ok(each(files, move |(local, path)| put_file(parts.clone(), local, path)).await)
}

async fn put_file(parts: Parts, local: PathBuf, path: Vec<u8>) -> Result<()> {
    let opened = tokio::task::spawn_blocking(move || {
        let source = std::fs::File::open(&local).map_err(|error| at_local(error, &local))?;
        let size_bytes = source.metadata().map_err(|error| at_local(error, &local))?.len();
        Ok((Arc::new(source), size_bytes))
    });
    let (source, size_bytes) = joined(opened.await)?;
    if size_bytes <= COPY_BYTES as u64 {
        let content = read_local(&source, 0).await?;
        return write_file(parts, path, content, false).await;
    }
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    tree::make_directories(&parts.fs, paths::split(&path).0, tree::DIRECTORY_MODE).await?;
    let open = file::open(&parts.fs, &path, flags, file::FILE_MODE).await?;
    let written = async {
        let mut at = 0;
        loop {
            let piece = read_local(&source, at).await?;
            if piece.is_empty() {
                return open.flush().await;
            }
            open.write(at, &piece).await?;
            at += piece.len() as u64;
        }
    };
    let written = written.await.map_err(|failure| failure.at(&path));
    open.close().await?;
    written
}

/// Reads up to [`COPY_BYTES`] of a local file; nothing at its end.
async fn read_local(source: &Arc<std::fs::File>, at: u64) -> Result<Bytes> {
    let source = source.clone();
    let read = tokio::task::spawn_blocking(move || {
        use std::io::Read as _;
        let mut piece = Vec::new();
        let mut source = source.as_ref();
        std::io::Seek::seek(&mut source, std::io::SeekFrom::Start(at))?;
        source.take(COPY_BYTES as u64).read_to_end(&mut piece)?;
        Ok(Bytes::from(piece))
    });
    joined(read.await)
}

fn joined<T>(outcome: std::result::Result<Result<T>, tokio::task::JoinError>) -> Result<T> {
    outcome.unwrap_or_else(|error| Err(Failure::new(libc::EIO, error.to_string())))
}

fn at_local(error: std::io::Error, path: &Path) -> Failure {
    use std::os::unix::ffi::OsStrExt as _;
    Failure::from(error).at(path.as_os_str().as_bytes())
}

/// Copies a file inside the store, with its metadata, and creates the directories above.
pub(crate) async fn copy_file(parts: Parts, from: Vec<u8>, to: Vec<u8>) -> Result<()> {
    let source = paths::resolve(&parts.fs, &from, true).await?;
    if source.attr.kind == Kind::Directory {
        return Err(Failure::new(libc::EISDIR, "is a directory").at(&from));
    }
    if let Ok(target) = paths::resolve(&parts.fs, &to, true).await
        && target.attr.kind == Kind::Directory
    {
        return Err(Failure::new(libc::EISDIR, "is a directory").at(&to));
    }
    let key = |path: &[u8]| {
        let key = paths::as_key(path).and_then(|key| ObjectKey::new(key.to_vec()).ok());
        key.ok_or_else(|| Failure::new(libc::EINVAL, "copies need a plain path").at(path))
    };
    let (from_key, to_key) = (key(&from)?, key(&to)?);
    let meta = parts.objects.head(&from_key).await.map_err(|error| Failure::from(error).at(&from))?;
    let source = ObjectRef { key: from_key, ..meta.object };
    let options = CopyOptions { size_bytes: Some(meta.size_bytes), ..CopyOptions::default() };
    let copied = parts.objects.copy(&source, &to_key, options).await;
    copied.map(drop).map_err(|error| Failure::from(error).at(&to))
}
