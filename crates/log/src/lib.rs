//! Logs on the local disk: checksummed frames, appended, synced, and read back after a crash.
//!
//! Owns two kinds of log, [`SegmentedLog`] (numbered segments in a directory, bodies of any length that stay readable)
//! and [`FileLog`] (one file, rewritten when most of it is obsolete); the frames of files that their owner rotates
//! ([`FrameWriter`], [`FrameReader`]); the rule that tells a torn tail from damage ([`BadPlace`]), also for logs with
//! frames of their own; reading from disks with unreadable sectors ([`read_leniently`]); checksums; and the locks by
//! which one process has a file.
//!
//! Out of scope: what records mean, and which of them are obsolete.
//!
//! Invariants: a record counts as a whole or not at all; what a sync covered is never cut off; no file is cut without a
//! copy if anything of worth may be lost with it.

mod crc;
mod file_lock;
mod file_log;
mod frame;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod medium;
pub mod segmented;
mod sync_mark;
mod verdict;

pub use crc::Crc;
pub use file_lock::{hold, when_free};
pub use file_log::{FileDamage, FileLog, FileLogFormat, OpenedFileLog};
pub use frame::{Found, FrameReader, FrameWriter, NextFrame, cut_torn_tail, encode_frame};
pub use medium::{read_leniently, unused_path};
pub use segmented::{Segment, SegmentedLog, Space};
pub use verdict::{BadPlace, Verdict};
