//! Extended attributes.

use crate::boundary::{call, call_unit};
use crate::failure::{Failure, Result};
use crate::pointers::{self, Buffer};
use crate::runtime::wait;
use crate::tables::VOLUMES;
use crate::volume::Entered;
use std::ffi::{c_char, c_int, c_void};
use vfs::Ino;

/// Carries out an operation on the inode at a path.
fn on_inode<T>(
    volume: i64,
    path: &[u8],
    operation: impl AsyncFnOnce(&Entered<'_>, Ino) -> vfs::Result<T>,
) -> Result<T> {
    let volume = VOLUMES.get(volume)?;
    let entered = volume.enter()?;
    let outcome = wait(async {
        let node = entered.resolve(path, true).await?;
        Ok::<_, Failure>(operation(&entered, node.ino()).await?)
    });
    outcome.map_err(|failure| failure.at(path))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_getxattr(
    volume: i64,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the caller passes strings, and a buffer of this size.
        let (path, name, buffer) =
            unsafe { (pointers::string(path)?, pointers::string(name)?, Buffer::new(buffer, size)?) };
        let value = on_inode(volume, path, async |entered, ino| entered.fs().getxattr(ino, name).await)?;
        pointers::copy_value(buffer, &value)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_setxattr(
    volume: i64,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes strings, and a value of this size.
        let (path, name, value) =
            unsafe { (pointers::string(path)?, pointers::string(name)?, pointers::bytes(value, size)?) };
        on_inode(volume, path, async |entered, ino| {
            entered.fs().setxattr(ino, name, value, flags, |_| true).await
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_removexattr(
    volume: i64,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes strings.
        let (path, name) = unsafe { (pointers::string(path)?, pointers::string(name)?) };
        on_inode(volume, path, async |entered, ino| entered.fs().removexattr(ino, name).await)
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_listxattr(
    volume: i64,
    path: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the caller passes a string, and a buffer of this size.
        let (path, buffer) =
            unsafe { (pointers::string(path)?, Buffer::new(buffer.cast::<c_void>(), size)?) };
        let names = on_inode(volume, path, async |entered, ino| entered.fs().listxattr(ino).await)?;
        let list: Vec<u8> = names.iter().flat_map(|name| [&name[..], b"\0"].concat()).collect();
        pointers::copy_value(buffer, &list)
    })
}
