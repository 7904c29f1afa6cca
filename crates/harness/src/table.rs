//! Tables as text for a terminal.

use super::tables::{Table, tables};
use crate::model::SystemResult;

/// Maximum length of a cell that widens its column. Longer cells overrun theirs, so that one long cell does not stretch the table.
const CELL_MAX: usize = 44;

/// Formats all tables, one below the other.
pub fn terminal(systems: &[SystemResult]) -> String {
    tables(systems).iter().map(format_table).collect::<Vec<_>>().join("\n")
}

fn format_table(table: &Table) -> String {
    let widths: Vec<usize> = (0..table.heads.len()).map(|column| column_width(table, column)).collect();
    let mut text = format!("{}\n", table.title);
    text.push_str(&line(&table.heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>(), &widths));
    text.push_str(&line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>(), &widths));
    for row in &table.rows {
        text.push_str(&line(row, &widths));
    }
    text
}

fn column_width(table: &Table, column: usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(column));
    let longest =
        cells.map(|cell| cell.chars().count()).filter(|length| *length <= CELL_MAX).max().unwrap_or(0);
    longest.max(table.heads[column].chars().count())
}

/// Formats a row: numbers are aligned to the right, other cells to the left.
fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let is_number = cell.chars().next().is_some_and(|first| first.is_ascii_digit());
        match is_number {
            true => text.push_str(&format!("{cell:>width$}  ")),
            false => text.push_str(&format!("{cell:<width$}  ")),
        }
    }
    format!("{}\n", text.trim_end())
}
