//! Directories.

use super::names::in_parent;
use crate::boundary::{call, call_int, call_unit};
use crate::open_directory;
use crate::pointers;
use crate::records::Dirent;
use crate::tables::{DIRECTORIES, VOLUMES};
use std::ffi::{c_char, c_int};
use vfs::paths::Node;

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_mkdir(volume: i64, path: *const c_char, mode: u32) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes a string.
        let path = unsafe { pointers::string(path) }?;
        in_parent(volume, path, async |entered, parent, name| {
            let made = entered.fs().mkdir(entered.caller(), parent, name, (mode & 0o7777) as u16).await?;
            drop(Node::new(entered.fs(), made));
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_rmdir(volume: i64, path: *const c_char) -> c_int {
    call_unit(|| {
        // SAFETY: the caller passes a string.
        let path = unsafe { pointers::string(path) }?;
        in_parent(volume, path, async |entered, parent, name| Ok(entered.fs().rmdir(parent, name).await?))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_opendir(volume: i64, path: *const c_char) -> i64 {
    call(|| {
        // SAFETY: the caller passes a string.
        let path = unsafe { pointers::string(path) }?;
        Ok(DIRECTORIES.add(open_directory::open(&VOLUMES.get(volume)?, path)?))
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tenon_readdir(directory: i64, result: *mut Dirent) -> c_int {
    call_int(|| match DIRECTORIES.get(directory)?.next()? {
        Some(entry) => {
            // SAFETY: the caller passes a place for the entry.
            unsafe { pointers::store(result, entry) }?;
            Ok(1)
        }
        None => Ok(0),
    })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn tenon_closedir(directory: i64) -> c_int {
    call_unit(|| DIRECTORIES.remove(directory)?.close())
}
