//! Tables of text, for a terminal, an HTML page and a Markdown document.

use crate::format::escape;
use std::fmt::Write;

/// Maximum length of a cell that widens its column, in characters. Longer cells overrun theirs, so that one long cell does not stretch the
/// table.
const CELL_MAX: usize = 44;

/// A table of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Title.
    pub title: String,
    /// Column heads.
    pub heads: Vec<String>,
    /// Rows with a cell for each head.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Formats the table for a terminal.
    pub fn to_text(&self) -> String {
        let widths: Vec<usize> = (0..self.heads.len()).map(|column| self.column_width(column)).collect();
        let mut text = format!("{}\n", self.title);
        text.push_str(&line(&self.heads, &widths));
        text.push_str(&line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>(), &widths));
        for row in &self.rows {
            text.push_str(&line(row, &widths));
        }
        text
    }

    /// Formats the table as a section of a [`page`](crate::page).
    pub fn to_html(&self) -> String {
        let mut page =
            format!("<section><h2>{}</h2><div class=\"scroll\"><table><thead><tr>", escape(&self.title));
        for head in &self.heads {
            let _ = write!(page, "<th>{}</th>", escape(head));
        }
        page.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            page.push_str("<tr>");
            for cell in row {
                let class = if is_number(cell) { " class=\"n\"" } else { "" };
                let _ = write!(page, "<td{class}>{}</td>", escape(cell));
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></div></section>");
        page
    }

    /// Formats the table for a Markdown document, without its title.
    pub fn to_markdown(&self) -> String {
        let row = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = format!("|{}\n", "---|".repeat(self.heads.len()));
        let rows: String = self.rows.iter().map(|cells| row(cells)).collect();
        format!("{}{rule}{rows}", row(&self.heads))
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let longest =
            cells.map(|cell| cell.chars().count()).filter(|length| *length <= CELL_MAX).max().unwrap_or(0);
        longest.max(self.heads[column].chars().count())
    }
}

/// Returns whether a cell is shown as a number: it begins with a digit.
fn is_number(cell: &str) -> bool {
    cell.chars().next().is_some_and(|first| first.is_ascii_digit())
}

/// Formats a row: numbers are aligned to the right, other cells to the left.
fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        match is_number(cell) {
            true => text.push_str(&format!("{cell:>width$}  ")),
            false => text.push_str(&format!("{cell:<width$}  ")),
        }
    }
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_to_the_right_and_text_is_escaped() {
        let table = Table {
            title: "T".into(),
            heads: vec!["name".into(), "value".into()],
            rows: vec![vec!["<a>".into(), "7".into()]],
        };
        assert_eq!(table.to_text(), "T\nname  value\n----  -----\n<a>       7\n");
        assert_eq!(table.to_markdown(), "| name | value |\n|---|---|\n| <a> | 7 |\n");
        assert!(table.to_html().contains("<td>&lt;a&gt;</td><td class=\"n\">7</td>"));
    }
}
