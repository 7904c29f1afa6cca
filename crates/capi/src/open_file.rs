//! Open files: reads and writes at positions.

use crate::failure::{Failure, Result};
use crate::pointers::Buffer;
use crate::runtime::wait;
use crate::volume::Volume;
use std::sync::Arc;
use vfs::paths::{self, OpenOptions};
use vfs::{Attr, Changes, Filesystem, Handle, Ino, Opened};

/// Flags of `open` that have an effect.
const FLAGS: i32 = libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_APPEND;
/// Flags of `open` that are accepted, as they have no effect here.
const FLAGS_WITHOUT_EFFECT: i32 = libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_LARGEFILE;

/// Bytes that are read or written at a time, so that one call of a program takes a bounded share of the memory limit.
const PIECE_BYTES: usize = 8 << 20;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    volume: Arc<Volume>,
    handle: Handle,
    ino: Ino,
    /// Whether the file system counts a reference to the inode for this file.
    has_reference: bool,
    flags: i32,
}

/// Opens a file; with `O_CREAT`, creates it if it is missing.
pub(crate) fn open(volume: &Arc<Volume>, path: &[u8], flags: i32, mode: u32) -> Result<Arc<OpenFile>> {
    if flags & !(FLAGS | FLAGS_WITHOUT_EFFECT) != 0 || flags & libc::O_ACCMODE == libc::O_ACCMODE {
        return Err(Failure::new(libc::EINVAL, "a flag is not supported").at(path));
    }
    let (entered, flags) = (volume.enter()?, flags & FLAGS);
    let options = OpenOptions { flags, mode: (mode & 0o7777) as u16, caller: entered.caller() };
    let opened = wait(paths::open(entered.fs(), entered.root(), path, options));
    let (node, Opened { handle, .. }) = opened.map_err(|failure| failure.at(path))?;
    let (ino, has_reference) = (node.ino(), node.into_reference().is_some());
    Ok(Arc::new(OpenFile { volume: Arc::clone(volume), handle, ino, has_reference, flags }))
}

impl OpenFile {
    pub(crate) fn is_of(&self, volume: &Arc<Volume>) -> bool {
        Arc::ptr_eq(&self.volume, volume)
    }

    /// Reads at an offset until the buffer is full or the file ends. Returns the number of bytes.
    pub(crate) fn read(&self, offset: u64, mut buffer: Buffer) -> Result<i64> {
        self.check_access(libc::O_WRONLY, "the file is open for writing only")?;
        check_range(offset, buffer.len(), libc::EINVAL)?;
        let entered = self.volume.enter()?;
        let mut done = 0;
        while done < buffer.len() {
            let len = PIECE_BYTES.min(buffer.len() - done);
            match wait(entered.fs().read(self.handle, offset + done as u64, len)) {
                Ok(bytes) => {
                    done += buffer.write(done, &bytes);
                    if bytes.len() < len {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(done as i64)
    }

    /// Writes bytes at an offset, or at the end of a file that is open for appending. Returns their number, or that of the first ones if an error
    /// prevented the rest.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<i64> {
        self.check_writable()?;
        let entered = self.volume.enter()?;
        if self.flags & libc::O_APPEND == 0 {
            check_range(offset, bytes.len(), libc::EFBIG)?;
        }
        let mut done = 0;
        for piece in bytes.chunks(PIECE_BYTES) {
            match self.write_piece(entered.fs(), offset + done as u64, piece) {
                Ok(()) => done += piece.len(),
                Err(_) if done > 0 => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(done as i64)
    }

    fn write_piece(&self, fs: &Filesystem, offset: u64, piece: &[u8]) -> Result<()> {
        if self.flags & libc::O_APPEND != 0 {
            return wait(async {
                let end = fs.getattr(self.ino).await?.size_bytes;
                fs.append(self.handle, end, piece).await
            });
        }
        wait(fs.write(self.handle, offset, piece))
    }

    /// Stores what was written, and makes content and names durable.
    pub(crate) fn sync(&self) -> Result<()> {
        let entered = self.volume.enter()?;
        wait(entered.fs().fsync(self.handle))
    }

    /// Sets the length of the file.
    pub(crate) fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.check_writable()?;
        check_range(size_bytes, 0, libc::EFBIG)?;
        let entered = self.volume.enter()?;
        let changes = Changes { size_bytes: Some(size_bytes), ..Changes::default() };
        wait(entered.fs().setattr(entered.caller(), self.ino, changes, Some(self.handle))).map(drop)
    }

    /// Returns the attributes of the file.
    pub(crate) fn attributes(&self) -> Result<Attr> {
        let entered = self.volume.enter()?;
        wait(entered.fs().getattr(self.ino))
    }

    /// Stores what was written, and closes the file. The caller has removed its handle.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        let entered = self.volume.enter()?;
        wait(self.close_in(entered.fs()))
    }

    /// Like [`OpenFile::close`], for a caller that keeps the volume open.
    pub(crate) async fn close_in(self: &Arc<Self>, fs: &Filesystem) -> Result<()> {
        let stored = fs.flush(self.handle).await;
        let released = fs.release(self.handle).await;
        if self.has_reference {
            fs.forget(self.ino, 1);
        }
        Ok(stored.and(released)?)
    }

    fn check_writable(&self) -> Result<()> {
        self.check_access(libc::O_RDONLY, "the file is open for reading only")
    }

    fn check_access(&self, refused: i32, why: &str) -> Result<()> {
        match self.flags & libc::O_ACCMODE == refused {
            true => Err(Failure::new(libc::EBADF, why)),
            false => Ok(()),
        }
    }
}

/// Fails with `errno` for a range that ends behind the largest offset of a file.
fn check_range(offset: u64, len: usize, errno: i32) -> Result<()> {
    match offset.checked_add(len as u64).is_some_and(|end| i64::try_from(end).is_ok()) {
        true => Ok(()),
        false => Err(Failure::new(errno, "the range ends behind the largest offset of a file")),
    }
}
