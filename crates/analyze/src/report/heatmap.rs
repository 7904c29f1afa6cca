//! The heat map of a device: which addresses were read and written when.

use crate::model::Heatmap;
use harness::svg::frame;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Draws a heat map: reads and writes in two colours, with an opacity that grows with the bytes. There are thousands of cells, so all cells
/// of one colour and opacity form one path.
pub(super) fn heatmap(map: &Heatmap) -> String {
    const CELL_WIDTH: f64 = 4.4;
    const CELL_HEIGHT: f64 = 4.0;
    const OPACITY_STEPS: f64 = 12.0;
    let (width, height) = (map.columns as f64 * CELL_WIDTH, map.rows as f64 * CELL_HEIGHT);
    let max =
        map.cells.iter().map(|cell| cell.read_bytes + cell.written_bytes).max().unwrap_or(1).max(2) as f64;
    let mut cells_by_look: BTreeMap<(&str, u32), Vec<(u32, u32)>> = BTreeMap::new();
    for cell in &map.cells {
        let bytes = (cell.read_bytes + cell.written_bytes) as f64;
        // At least 0.2, so that a single small request is visible.
        let opacity = 0.2 + 0.8 * (bytes.max(1.0).ln() / max.ln()).clamp(0.0, 1.0).powi(3);
        let class = if cell.read_bytes >= cell.written_bytes { "c0" } else { "c1" };
        let cells = cells_by_look.entry((class, (opacity * OPACITY_STEPS).round() as u32)).or_default();
        cells.push((map.rows as u32 - 1 - cell.row, cell.column));
    }
    let mut body = format!(r#"<rect class="field" x="0" y="0" width="{width:.1}" height="{height:.1}"/>"#);
    let _ = write!(body, r#"<g transform="scale({CELL_WIDTH} {CELL_HEIGHT})">"#);
    for ((class, step), cells) in cells_by_look {
        let opacity = f64::from(step) / OPACITY_STEPS;
        let _ = write!(body, r#"<path class="{class}" opacity="{opacity:.2}" d="{}"/>"#, cell_path(cells));
    }
    body.push_str("</g>");
    frame(width, height, &body)
}

/// Returns an SVG path around cells, given as (row, column). Adjacent cells of a row form one rectangle.
fn cell_path(mut cells: Vec<(u32, u32)>) -> String {
    cells.sort_unstable();
    let mut path = String::new();
    for row in cells.chunk_by(|one, next| one.0 == next.0 && one.1 + 1 == next.1) {
        let (y, x) = row[0];
        let _ = write!(path, "M{x} {y}h{len}v1h-{len}z", len = row.len());
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_cells_of_a_row_form_one_rectangle() {
        assert_eq!(cell_path(vec![(1, 4), (0, 2), (1, 3), (1, 6)]), "M2 0h1v1h-1zM3 1h2v1h-2zM6 1h1v1h-1z");
    }
}
