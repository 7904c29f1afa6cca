//! Tasks with the files of a directory.

use super::replay::replay;
use crate::content::{Content, ContentChecker, Stamp};
use crate::file_error::FileError;
use crate::workload::{JobFile, PAGE_BYTES, SyncPolicy, Task};
use harness::{Histogram, Stopwatch};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Maximum length of a read call, in bytes.
const CALL_BYTES: usize = 1 << 20;

/// Does a task. Returns whether it has recorded the durations of its operations itself.
pub(super) fn run_task(root: &Path, task: &Task, latency: &mut Histogram) -> Result<bool, FileError> {
    match task {
        Task::Write(file) => write(&root.join(&file.path), file)?,
        Task::Read(file) => read(&root.join(&file.path), file)?,
        Task::FirstByte(file) => {
            let source = File::open(root.join(&file.path)).map_err(FileError::io(&file.path))?;
            read_block(&source, file, file.middle(), &mut Content::new(file.size_bytes))?;
        }
        Task::ReadBlocks { file, offsets } => {
            read_blocks(root, file, offsets, latency)?;
            return Ok(true);
        }
        Task::WriteBlocks { file, offsets, sync } => {
            write_blocks(root, file, offsets, *sync, latency)?;
            return Ok(true);
        }
        Task::Stat(file) => {
            let metadata = fs::metadata(root.join(&file.path)).map_err(FileError::io(&file.path))?;
            FileError::check_size(&file.path, metadata.len(), file.size_bytes)?;
        }
        Task::List { folder, files } => list(root, folder, files)?,
        Task::Rename { from, to } => {
            fs::rename(root.join(&from.path), root.join(to)).map_err(FileError::io(&from.path))?;
        }
        Task::Unlink(file) => {
            fs::remove_file(root.join(&file.path)).map_err(FileError::io(&file.path))?;
        }
        Task::Replay(thread) => {
            replay(root, thread, latency)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// Creates a file, writes it in order, and closes it.
pub(super) fn write(path: &Path, file: &JobFile) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let (mut content, stamp) = (Content::new(file.size_bytes), Stamp::from(file));
    let mut target = File::create(path).map_err(&failed)?;
    let mut at = 0;
    while at < file.size_bytes {
        let block = content.block(&stamp, at, file.size_bytes - at);
        target.write_all(block).map_err(&failed)?;
        at += block.len() as u64;
    }
    // Closing uploads the file. `File` ignores errors of close, so a second client compares the bucket afterwards.
    drop(target);
    Ok(())
}

/// Reads a file in order, and compares every byte and the size.
pub(super) fn read(path: &Path, file: &JobFile) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let mut source = File::open(path).map_err(&failed)?;
    let mut checker = ContentChecker::new(Content::new(file.size_bytes), file, 0);
    let mut buffer = vec![0; CALL_BYTES.min(file.size_bytes as usize + 1)];
    loop {
        let count = source.read(&mut buffer).map_err(&failed)?;
        if count == 0 {
            break;
        }
        if !checker.check_next(&buffer[..count]) {
            return Err(FileError::WrongBytes { file: file.path.clone(), offset: checker.position() });
        }
    }
    FileError::check_size(&file.path, checker.position(), file.size_bytes)
}

fn read_blocks(
    root: &Path,
    file: &JobFile,
    offsets: &[u64],
    latency: &mut Histogram,
) -> Result<(), FileError> {
    let source = File::open(root.join(&file.path)).map_err(FileError::io(&file.path))?;
    let mut content = Content::new(file.size_bytes);
    for offset in offsets {
        let watch = Stopwatch::start();
        read_block(&source, file, *offset, &mut content)?;
        latency.record(watch.elapsed());
    }
    Ok(())
}

/// Reads one block at an offset, and compares its bytes.
fn read_block(source: &File, file: &JobFile, offset: u64, content: &mut Content) -> Result<(), FileError> {
    let len = PAGE_BYTES.min(file.size_bytes - offset) as usize;
    let mut buffer = [0; PAGE_BYTES as usize];
    source.read_exact_at(&mut buffer[..len], offset).map_err(FileError::io(&file.path))?;
    match content.block(&Stamp::from(file), offset, len as u64) == &buffer[..len] {
        true => Ok(()),
        false => Err(FileError::WrongBytes { file: file.path.clone(), offset }),
    }
}

/// Writes blocks again with other content, and syncs as `sync` says.
fn write_blocks(
    root: &Path,
    file: &JobFile,
    offsets: &[u64],
    sync: SyncPolicy,
    latency: &mut Histogram,
) -> Result<(), FileError> {
    let failed = FileError::io(&file.path);
    let target = OpenOptions::new().write(true).open(root.join(&file.path)).map_err(&failed)?;
    let (mut content, stamp) = (Content::new(file.size_bytes), Stamp::from(file).rewritten());
    for offset in offsets {
        let len = PAGE_BYTES.min(file.size_bytes - offset);
        let watch = Stopwatch::start();
        target.write_all_at(content.block(&stamp, *offset, len), *offset).map_err(&failed)?;
        if sync == SyncPolicy::Each {
            target.sync_data().map_err(&failed)?;
        }
        latency.record(watch.elapsed());
    }
    if sync == SyncPolicy::End {
        target.sync_data().map_err(&failed)?;
    }
    Ok(())
}

/// Lists a directory with the attributes of each file, and compares the sizes of the files that must be listed.
fn list(root: &Path, folder: &str, files: &[JobFile]) -> Result<(), FileError> {
    let failed = FileError::io(folder);
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(root.join(folder)).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let size_bytes = entry.metadata().map_err(&failed)?.len();
        sizes.insert(format!("{folder}/{}", entry.file_name().to_string_lossy()), size_bytes);
    }
    for file in files {
        let missing = || FileError::Missing { file: file.path.clone() };
        FileError::check_size(&file.path, *sizes.get(&file.path).ok_or_else(missing)?, file.size_bytes)?;
    }
    Ok(())
}
