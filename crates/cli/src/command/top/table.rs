//! Tables: rows sorted by one of their columns, with a selection, as lines of the screen.

use super::terminal::{Key, bold, fit, fit_path, reverse};
use std::cmp::Ordering;

/// Minimum width of the column that gets the remaining width.
const PATH_WIDTH_MIN: usize = 12;
/// Rows that Page Up and Page Down move.
const PAGE_ROWS: usize = 10;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Width; 0 for the remaining width.
    pub(super) width: usize,
    pub(super) is_text: bool,
}

/// Makes a column of numbers.
pub(super) const fn number(title: &'static str, width: usize) -> Column {
    Column { title, width, is_text: false }
}

/// Makes a column of texts. Width 0 is the remaining width.
pub(super) const fn text(title: &'static str, width: usize) -> Column {
    Column { title, width, is_text: true }
}

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Number to sort by; 0 for a text.
    pub(super) value: f64,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), value: 0.0 }
    }

    /// Makes a number with its text.
    pub(super) fn number(value: f64, format: impl Fn(f64) -> String) -> Self {
        Self { text: format(value), value }
    }
}

/// Rows of cells.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
}

/// The order and selection of a table, which stay when its rows change.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableState {
    /// Index of the column by which the rows are sorted.
    sorted_by: usize,
    is_reversed: bool,
    /// Index of the selected row. It may be too large until the lines are made.
    selected: usize,
    /// Index of the first row that is shown.
    first_shown: usize,
}

impl TableState {
    pub(super) fn sorted_by(column: usize) -> Self {
        Self { sorted_by: column, is_reversed: false, selected: 0, first_shown: 0 }
    }

    /// Returns the index of the selected row.
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    /// Handles a key that changes the order or the selection. `columns` is the number of columns.
    pub(super) fn handle(&mut self, key: Key, columns: usize) {
        match key {
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Down | Key::Char('j') => self.selected = self.selected.saturating_add(1),
            Key::PageUp => self.selected = self.selected.saturating_sub(PAGE_ROWS),
            Key::PageDown => self.selected = self.selected.saturating_add(PAGE_ROWS),
            Key::Home => self.selected = 0,
            Key::End => self.selected = usize::MAX,
            Key::Char('s') => {
                (self.sorted_by, self.is_reversed) = ((self.sorted_by + 1) % columns.max(1), false)
            }
            Key::Char('S') => {
                self.sorted_by = (self.sorted_by + columns.max(1) - 1) % columns.max(1);
                self.is_reversed = false;
            }
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            _ => {}
        }
    }

    /// Sorts the rows, numbers with the largest first and texts in alphabetical order, or the reverse if it is chosen. Equal rows
    /// are in the order of their first text.
    pub(super) fn sort(&self, table: &mut Table) {
        let Some(column) = table.columns.get(self.sorted_by) else { return };
        let compare = |a: &Vec<Cell>, b: &Vec<Cell>| {
            let (a, b) = (&a[self.sorted_by], &b[self.sorted_by]);
            match column.is_text {
                true => a.text.cmp(&b.text),
                false => b.value.total_cmp(&a.value),
            }
        };
        let first_text = |row: &Vec<Cell>| {
            let at = table.columns.iter().position(|column| column.is_text).unwrap_or(0);
            row[at].text.clone()
        };
        let ordered = |a: &Vec<Cell>, b: &Vec<Cell>| {
            let order = compare(a, b);
            let order = if self.is_reversed { order.reverse() } else { order };
            if order == Ordering::Equal { first_text(a).cmp(&first_text(b)) } else { order }
        };
        table.rows.sort_by(ordered);
    }

    /// Returns the lines of the title and of the rows around the selection, at most `height`.
    pub(super) fn lines(&mut self, table: &Table, width: usize, height: usize) -> Vec<String> {
        self.selected = self.selected.min(table.rows.len().saturating_sub(1));
        let shown = height.saturating_sub(1);
        self.first_shown = self.first_shown.min(self.selected);
        if shown > 0 && self.selected >= self.first_shown + shown {
            self.first_shown = self.selected + 1 - shown;
        }
        let fixed: usize = table.columns.iter().map(|column| column.width + 1).sum();
        let rest = (width + 1).saturating_sub(fixed + 1).max(PATH_WIDTH_MIN);
        let width_of = |column: &Column| if column.width == 0 { rest } else { column.width };
        let titles = table.columns.iter().enumerate().map(|(at, column)| {
            let mark = match (at == self.sorted_by, self.is_reversed) {
                (false, _) => "",
                (true, false) => "*",
                (true, true) => "~",
            };
            fit(&format!("{}{mark}", column.title), width_of(column), !column.is_text)
        });
        let title = fit(&titles.collect::<Vec<_>>().join(" "), width, false);
        let rows = table.rows.iter().enumerate().skip(self.first_shown).take(shown).map(|(at, row)| {
            let cells = table.columns.iter().zip(row).map(|(column, cell)| match column.width {
                0 => fit_path(&cell.text, rest),
                width => fit(&cell.text, width, !column.is_text),
            });
            let line = fit(&cells.collect::<Vec<_>>().join(" "), width, false);
            if at == self.selected { reverse(&line) } else { line }
        });
        [bold(&title)].into_iter().chain(rows).take(height).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[text("name", 0), number("count", 6)];

    fn table() -> Table {
        let row =
            |name: &str, value: f64| vec![Cell::text(name), Cell::number(value, |value| format!("{value}"))];
        Table { columns: COLUMNS, rows: vec![row("b", 1.0), row("a", 1.0), row("c", 7.0)] }
    }

    fn names(table: &Table) -> String {
        table.rows.iter().map(|row| row[0].text.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_keys() {
        let (mut state, mut table) = (TableState::sorted_by(1), table());
        state.sort(&mut table);
        assert_eq!(names(&table), "cab");
        state.handle(Key::Char('r'), 2);
        state.sort(&mut table);
        assert_eq!(names(&table), "abc");
        state.handle(Key::Char('s'), 2);
        state.handle(Key::Char('r'), 2);
        state.sort(&mut table);
        assert_eq!(names(&table), "cba");
    }

    #[test]
    fn the_selection_stays_visible() {
        let (mut state, table) = (TableState::sorted_by(1), table());
        let lines = state.lines(&table, 24, 10);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], bold("name             count* "));
        assert!(lines[1].contains("\x1b[7m") && !lines[2].contains("\x1b[7m"));
        state.handle(Key::End, 2);
        let lines = state.lines(&table, 24, 2);
        assert_eq!((lines.len(), state.selected()), (2, 2));
        assert!(lines[1].contains("\x1b[7mc "), "{lines:?}");
        assert!(TableState::sorted_by(0).lines(&Table::default(), 5, 3).len() <= 3);
    }
}
