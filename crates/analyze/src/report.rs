//! What was measured, for people and for programs.

use crate::model::SystemResult;

/// A table for a terminal.
pub fn terminal(_systems: &[SystemResult]) -> String {
    String::new()
}

/// Everything, for programs.
pub fn json(systems: &[SystemResult]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(systems)
}

/// One page that needs nothing else: Figures 2 to 6 drawn for the systems compared.
pub fn html(_systems: &[SystemResult]) -> String {
    String::new()
}
