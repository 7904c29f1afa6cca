//! Reports of results: an HTML page, tables for a terminal, and JSON.
//!
//! Refuses to draw figures without measured numbers. A missing number is shown with the reason why it is missing.

mod figures;
mod heatmap;
mod html;
mod tables;

pub use html::html;

use crate::model::SystemResult;

/// Name of the layer between VFS and block layer. For a raw device that layer is the kernel's code for the device file.
const FILE_SYSTEM: &str = "file system, or device file";

/// Formats all tables for a terminal, one below the other.
pub fn terminal(systems: &[SystemResult]) -> String {
    tables::tables(systems).iter().map(harness::Table::to_text).collect::<Vec<_>>().join("\n")
}

/// Serializes all results.
///
/// # Errors
/// None in practice: the types have no values that JSON cannot hold.
pub fn json(systems: &[SystemResult]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(systems)
}
