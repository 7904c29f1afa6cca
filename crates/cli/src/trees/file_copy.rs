//! Copies of single files between trees, inside the store where it can be done.
//!
//! Invariant: a target has its old content or the whole new one, however the copy ends: a file is written under a
//! temporary name first, and an object becomes visible with its last byte.

use super::entry::Entry;
use super::location::{Location, object_key};
use super::temporary_file::TemporaryFile;
use crate::bucket::stream_upload::{read_stream, store_stream};
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use store::{Attributes, CopyOptions, GetOptions, ObjectKey, ObjectRef, ObjectStore};
use tokio::task::block_in_place;

/// Permission bits that a downloaded file gets from the headers of its object: those of set-user-id and the like are not taken over.
const PERMISSION_BITS: u32 = 0o777;

/// Length of the pieces that are read from a file.
const PIECE_BYTES: usize = 1 << 20;

/// Copies a file to the path or key of `to`, and replaces a file there. `entry` describes the source. Copies a symbolic link as a
/// link, which only a path can be.
pub(crate) async fn copy_file(from: &Location, entry: &Entry, to: &Location) -> Result<()> {
    match (from, to) {
        (Location::Path(from), Location::Path(to)) => {
            let (from, to) = (from.clone(), to.clone());
            tokio::task::spawn_blocking(move || copy_local(&from, &to)).await?
        }
        (Location::Path(from), Location::Objects { store, directory, .. }) => {
            upload(store, &object_key(directory)?, from).await
        }
        (Location::Objects { store, directory, .. }, Location::Path(to)) => {
            download(store, &object_key(directory)?, entry, to).await
        }
        (
            Location::Objects { store, bucket, directory },
            Location::Objects { store: target, bucket: target_bucket, directory: target_directory },
        ) => {
            let (key, target_key) = (object_key(directory)?, object_key(target_directory)?);
            if bucket == target_bucket {
                return copy_inside(store, key, entry, &target_key).await;
            }
            copy_between(store, &key, target, &target_key).await
        }
    }
}

/// Creates a directory and those above it. A bucket needs none.
pub(crate) async fn make_directory(at: &Location) -> Result<()> {
    if let Location::Path(path) = at {
        let path = path.clone();
        tokio::task::spawn_blocking(move || {
            fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))
        })
        .await??;
    }
    Ok(())
}

/// Returns whether two files have the same bytes, by their checksums. Reads both, unless they are objects with one etag.
pub(crate) async fn has_same_content(
    from: &Location,
    entry: &Entry,
    to: &Location,
    target: &Entry,
) -> Result<bool> {
    if entry.etag.is_some() && entry.etag == target.etag {
        return Ok(true);
    }
    let (one, other) = tokio::join!(checksum(from), checksum(to));
    Ok(one? == other?)
}

/// Computes the CRC-64/NVME of a file or object, which is read as a whole.
async fn checksum(at: &Location) -> Result<u64> {
    match at {
        Location::Path(path) => {
            let path = path.clone();
            let sum = move || -> Result<u64> {
                let mut file = open(&path)?;
                let (mut digest, mut piece) = (Digest::new(CrcAlgorithm::Crc64Nvme), vec![0; PIECE_BYTES]);
                loop {
                    let read = file.read(&mut piece).with_context(|| cannot_read(&path))?;
                    if read == 0 {
                        return Ok(digest.finalize());
                    }
                    digest.update(&piece[..read]);
                }
            };
            tokio::task::spawn_blocking(sum).await?
        }
        Location::Objects { store, directory, .. } => {
            let mut object = store.get(&object_key(directory)?, GetOptions::default()).await?;
            let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
            while let Some(piece) = object.body.try_next().await? {
                digest.update(&piece);
            }
            Ok(digest.finalize())
        }
    }
}

/// Copies a file or symbolic link, with its mode and modification time. The kernel, and with it a mount, copies the
/// bytes where it can.
fn copy_local(from: &Path, to: &Path) -> Result<()> {
    let metadata = fs::symlink_metadata(from).with_context(|| cannot_read(from))?;
    let temporary = TemporaryFile::for_target(to)?;
    if metadata.is_symlink() {
        let target = fs::read_link(from).with_context(|| cannot_read(from))?;
        std::os::unix::fs::symlink(target, temporary.path()).with_context(|| cannot_write(to))?;
        return temporary.rename_to(to).with_context(|| cannot_write(to));
    }
    if !metadata.is_file() {
        bail!("{}: devices, pipes and sockets are not copied", from.display());
    }
    let (mut source, mut target) = (open(from)?, create(temporary.path())?);
    io::copy(&mut source, &mut target).with_context(|| format!("cannot copy {}", from.display()))?;
    target.set_permissions(metadata.permissions()).with_context(|| cannot_write(to))?;
    target.set_modified(metadata.modified()?).with_context(|| cannot_write(to))?;
    drop(target);
    temporary.rename_to(to).with_context(|| cannot_write(to))
}

/// Stores a file, or the one that a symbolic link leads to, as an object.
async fn upload(store: &Arc<dyn ObjectStore>, key: &ObjectKey, from: &Path) -> Result<()> {
    let metadata = fs::metadata(from).with_context(|| cannot_read(from))?;
    if !metadata.is_file() {
        bail!("{}: only files can be objects", from.display());
    }
    let body = read_stream(open(from)?, cannot_read(from));
    store_body(store, key, attributes_of(&metadata), body).await
}

/// Stores a stream as an object.
async fn store_body(
    store: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
    attributes: Attributes,
    body: impl Stream<Item = Result<Bytes>> + Unpin,
) -> Result<()> {
    let stored = store_stream(store.as_ref(), key, attributes, body).await;
    stored.map(drop).map_err(|error| error.with_store_context(|| format!("cannot store '{key}'")))
}

/// The header in which the mode of a file is stored, in octal.
const PERMISSIONS: &str = "file-permissions";

/// Returns the permissions that a downloaded file gets from the headers of its object; `None` if they contain none.
fn permissions_of(attributes: &Attributes) -> Option<fs::Permissions> {
    let mode = u32::from_str_radix(attributes.user.get(PERMISSIONS)?, 8).ok()?;
    Some(fs::Permissions::from_mode(mode & PERMISSION_BITS))
}

/// Returns the headers in which Tenon, like the AWS tools, keeps mode and modification time.
fn attributes_of(metadata: &fs::Metadata) -> Attributes {
    let mtime =
        format!("{}ns", i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()));
    let user =
        [(PERMISSIONS.to_owned(), format!("{:07o}", metadata.mode())), ("file-mtime".to_owned(), mtime)];
    Attributes { user: user.into(), ..Attributes::default() }
}

/// Writes an object to a file, with the time of the object and the permissions in its headers. Fails if the object is not that of the entry.
async fn download(store: &Arc<dyn ObjectStore>, key: &ObjectKey, entry: &Entry, to: &Path) -> Result<()> {
    let options = GetOptions { if_match: entry.etag.clone(), ..GetOptions::default() };
    let mut object = store.get(key, options).await.with_context(|| format!("cannot read '{key}'"))?;
    let (temporary, mut target) = block_in_place(|| {
        let temporary = TemporaryFile::for_target(to)?;
        let target = create(temporary.path())?;
        anyhow::Ok((temporary, target))
    })?;
    while let Some(piece) = object.body.try_next().await.with_context(|| format!("cannot read '{key}'"))? {
        block_in_place(|| target.write_all(&piece)).with_context(|| cannot_write(to))?;
    }
    let modified = object.meta.object.last_modified.or(entry.modified).map(|at| at.to_system_time());
    // Closing a file of a mount stores it.
    block_in_place(|| {
        target.set_modified(modified.unwrap_or(SystemTime::UNIX_EPOCH)).with_context(|| cannot_write(to))?;
        if let Some(permissions) = permissions_of(&object.meta.attributes) {
            target.set_permissions(permissions).with_context(|| cannot_write(to))?;
        }
        drop(target);
        temporary.rename_to(to).with_context(|| cannot_write(to))
    })
}

/// Lets the store copy an object.
async fn copy_inside(
    store: &Arc<dyn ObjectStore>,
    key: ObjectKey,
    entry: &Entry,
    to: &ObjectKey,
) -> Result<()> {
    let source = match &entry.etag {
        Some(etag) => ObjectRef::new(key, etag.clone()),
        None => store.head(&key).await.with_context(|| format!("cannot read '{key}'"))?.object,
    };
    let options = CopyOptions { size_bytes: Some(entry.size_bytes), ..CopyOptions::default() };
    store.copy(&source, to, options).await.with_context(|| format!("cannot copy '{}'", source.key))?;
    Ok(())
}

/// Copies an object to another bucket, through this process.
async fn copy_between(
    from: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
    to: &Arc<dyn ObjectStore>,
    to_key: &ObjectKey,
) -> Result<()> {
    let cannot_read = || format!("cannot read '{key}'");
    let object = from.get(key, GetOptions::default()).await.with_context(cannot_read)?;
    let body = object.body.map(|piece| piece.with_context(cannot_read));
    store_body(to, to_key, object.meta.attributes, body).await
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| cannot_read(path))
}

fn create(path: &Path) -> Result<File> {
    File::create_new(path).with_context(|| cannot_write(path))
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
