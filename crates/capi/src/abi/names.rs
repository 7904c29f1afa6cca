//! Names: removal, renames and links.

use crate::boundary::{call, call_unit};
use crate::failure::{Failure, Result};
use crate::pointers::{self, Buffer};
use crate::runtime::wait;
use crate::tables::VOLUMES;
use crate::volume::Entered;
use std::ffi::{c_char, c_int, c_void};
use vfs::Ino;
use vfs::paths::Node;

/// Carries out an operation on the name at the end of a path, in its directory.
pub(super) fn in_parent(
    volume: i64,
    path: &[u8],
    operation: impl AsyncFnOnce(&Entered<'_>, Ino, &[u8]) -> Result<()>,
) -> Result<()> {
    let volume = VOLUMES.get(volume)?;
    let entered = volume.enter()?;
    let outcome = wait(async {
        let (parent, name) = entered.resolve_parent(path).await?;
        operation(&entered, parent.ino(), name).await
    });
    outcome.map_err(|failure| failure.at(path))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_unlink(volume: i64, path: *const c_char) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes a string.
        let path = unsafe { pointers::string(path) }?;
        in_parent(volume, path, async |entered, parent, name| Ok(entered.fs().unlink(parent, name).await?))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_rename(
    volume: i64,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes strings.
        let (from, to) = unsafe { (pointers::string(from)?, pointers::string(to)?) };
        in_parent(volume, from, async |entered, parent, name| {
            let (new_parent, new_name) = entered.resolve_parent(to).await?;
            Ok(entered.fs().rename((parent, name), (new_parent.ino(), new_name), flags).await?)
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_link(volume: i64, from: *const c_char, to: *const c_char) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes strings.
        let (from, to) = unsafe { (pointers::string(from)?, pointers::string(to)?) };
        in_parent(volume, to, async |entered, parent, name| {
            let node = entered.resolve(from, false).await?;
            let linked = entered.fs().link(node.ino(), parent, name).await?;
            drop(Node::new(entered.fs(), linked));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_symlink(
    volume: i64,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes strings.
        let (target, path) = unsafe { (pointers::string(target)?, pointers::string(path)?) };
        in_parent(volume, path, async |entered, parent, name| {
            let made = entered.fs().symlink(entered.caller(), parent, name, target).await?;
            drop(Node::new(entered.fs(), made));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_readlink(
    volume: i64,
    path: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the caller passes a string, and a buffer of this size.
        let (path, buffer) = unsafe { (pointers::string(path)?, Buffer::new(buffer, size)?) };
        let volume = VOLUMES.get(volume)?;
        let entered = volume.enter()?;
        let target = wait(async {
            let node = entered.resolve(path, false).await?;
            Ok::<_, Failure>(entered.fs().readlink(node.ino()).await?)
        });
        pointers::copy_value(buffer, &target.map_err(|failure| failure.at(path))?)
    })
}
