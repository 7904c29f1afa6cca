//! Reports of results: an HTML page, tables for a terminal, and JSON.
//!
//! Refuses to draw figures without measured numbers. A missing number is shown with the reason why it is missing.

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

/// Name of the layer between VFS and block layer. For a raw device that layer is the kernel's code for the device file.
const FILE_SYSTEM: &str = "file system, or device file";

/// Serializes all results.
///
/// # Errors
/// None in practice: the types have no values that JSON cannot hold.
pub fn json(systems: &[SystemResult]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(systems)
}
