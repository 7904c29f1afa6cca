//! What was measured, for people and for programs.
//!
//! Refuses: to draw what was not measured. A figure without numbers says why there are none.

mod figures;
mod format;
mod html;
mod svg;
mod tables;
mod terminal;

pub(crate) use format::{count, escape};
pub use html::html;
pub use terminal::terminal;

use crate::model::SystemResult;

/// The layer between the VFS and the block layer: of a raw device that is the kernel's file of the device.
const FILE_SYSTEM: &str = "file system, or device file";

/// Everything, for programs.
///
/// # Errors
/// Never, for numbers that are numbers.
pub fn json(systems: &[SystemResult]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(systems)
}
