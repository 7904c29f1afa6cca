//! The functions of `tenon.h`, whose documentation is there. Each converts C's values and calls the library.
//!
//! The requirements on pointers are promises of callers, who read the header: strings end with NUL, buffers have the given length, places for
//! results can be written to, and nothing of it changes during the call.

mod attributes;
mod batch;
mod directory;
mod file;
mod names;
mod volume;
mod xattrs;
