//! What was measured, for people and for programs.
//!
//! Refuses: to draw what was not measured. A figure without numbers says why there are none.

mod figures;
mod html;
mod svg;
mod tables;
mod terminal;
mod text;

pub use html::html;
pub use terminal::terminal;

use crate::model::SystemResult;

/// Everything, for programs.
///
/// # Errors
/// Never, for numbers that are numbers.
pub fn json(systems: &[SystemResult]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(systems)
}
