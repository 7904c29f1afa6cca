//! The C library `libtenon.so`: files and batches of volumes without a mount. `include/tenon.h` describes each function for its callers.
//!
//! Owns the handles that programs have instead of pointers, the conversion of C's values, and the text of each thread's last error. Does not
//! know how a volume is opened (`cli::library`) or how a file is stored (`vfs`).
//!
//! Invariants:
//! - no panic crosses the boundary: each function runs in [`boundary::call`];
//! - no pointer of a caller is used after the call has returned;
//! - no number of a handle is used twice, so a closed handle is EBADF for ever;
//! - the file system of a volume is used only inside [`volume::Volume::enter`], so nothing uses it once the volume is closed.

mod abi;
mod boundary;
mod closing;
mod failure;
mod handles;
mod open_directory;
mod open_file;
mod pointers;
mod records;
mod runtime;
mod tables;
mod volume;
