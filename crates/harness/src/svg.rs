//! Charts as inline SVG: bars, stacked bars, curves, heat maps.
//!
//! Colours are CSS classes of the page (`c0` to `c7`, `grey`), so the page controls light and dark mode. A colour has one meaning on the page
//! and never carries information alone: bars also show their number, curves their name.

use super::format::{escape, percent};
use crate::model::Heatmap;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Width of a chart in a column, in units of its view box.
const WIDTH: f64 = 460.0;

/// A horizontal bar. Without a value, `note` tells why.
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: Option<f64>,
    pub(super) note: String,
    pub(super) colour: String,
}

/// Draws horizontal bars that start at zero.
pub(super) fn bars(bars: &[Bar]) -> String {
    const ROW: f64 = 34.0;
    let max = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let max_length = WIDTH - 110.0;
    let mut body = String::new();
    for (index, bar) in bars.iter().enumerate() {
        let y = index as f64 * ROW;
        let _ =
            write!(body, r#"<text class="label" x="0" y="{:.0}">{}</text>"#, y + 11.0, escape(&bar.label));
        match bar.value {
            Some(value) => {
                let length = if max > 0.0 { (value / max * max_length).max(1.0) } else { 1.0 };
                let _ = write!(
                    body,
                    r#"<rect class="{}" x="0" y="{:.0}" width="{length:.1}" height="12" rx="2"/><text class="value" x="{:.1}" y="{:.0}">{}</text>"#,
                    bar.colour,
                    y + 15.0,
                    length + 6.0,
                    y + 25.0,
                    escape(&bar.note)
                );
            }
            None => {
                let _ = write!(
                    body,
                    r#"<text class="none" x="0" y="{:.0}">{}</text>"#,
                    y + 25.0,
                    escape(&bar.note)
                );
            }
        }
    }
    frame(WIDTH, bars.len() as f64 * ROW, &body)
}

/// A stacked bar.
pub(super) struct Stack {
    pub(super) label: String,
    /// (CSS class, name, value)
    pub(super) parts: Vec<(String, String, f64)>,
    pub(super) note: String,
}

/// Draws stacked bars: all of the same length (`is_normalized`), or to one scale.
pub(super) fn stacks(stacks: &[Stack], is_normalized: bool) -> String {
    const ROW: f64 = 40.0;
    const GAP: f64 = 2.0;
    let total = |stack: &Stack| stack.parts.iter().map(|(_, _, value)| value).sum::<f64>();
    let max = stacks.iter().map(total).fold(0.0, f64::max);
    let max_length = if is_normalized { WIDTH * 1.6 } else { WIDTH * 1.6 - 110.0 };
    let mut body = String::new();
    for (index, stack) in stacks.iter().enumerate() {
        let y = index as f64 * ROW;
        let whole = if is_normalized { total(stack) } else { max };
        let _ =
            write!(body, r#"<text class="label" x="0" y="{:.0}">{}</text>"#, y + 11.0, escape(&stack.label));
        let mut x = 0.0;
        for (class, name, value) in &stack.parts {
            let width = if whole > 0.0 { value / whole * max_length } else { 0.0 };
            if width < 0.05 {
                continue;
            }
            let share = value / total(stack);
            let _ = write!(
                body,
                r#"<rect class="{class}" x="{x:.1}" y="{:.0}" width="{:.1}" height="16"><title>{}: {}</title></rect>"#,
                y + 15.0,
                (width - GAP).max(0.5),
                escape(name),
                percent(share)
            );
            if width > 52.0 {
                let _ = write!(
                    body,
                    r#"<text class="inside" x="{:.1}" y="{:.0}">{}</text>"#,
                    x + 5.0,
                    y + 27.0,
                    percent(share)
                );
            }
            x += width;
        }
        let (note_x, anchor) = if is_normalized { (max_length, "end") } else { (x + 6.0, "start") };
        let note_y = if is_normalized { y + 11.0 } else { y + 27.0 };
        let _ = write!(
            body,
            r#"<text class="value" text-anchor="{anchor}" x="{note_x:.1}" y="{note_y:.0}">{}</text>"#,
            escape(&stack.note)
        );
    }
    frame(WIDTH * 1.6, stacks.len() as f64 * ROW, &body)
}

/// A curve, with its points ordered by x.
pub(super) struct Curve {
    pub(super) label: String,
    pub(super) colour: String,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Axes of [`curves`]. The x axis is logarithmic with base 2.
pub(super) struct Axes {
    /// The y value at the top; 1 for shares.
    pub(super) top: f64,
    pub(super) x_label: fn(f64) -> String,
    pub(super) y_label: fn(f64) -> String,
    /// Whether points are joined by steps, as in a cumulative distribution.
    pub(super) steps: bool,
    /// A vertical line at this x, with its name.
    pub(super) mark: Option<(f64, &'static str)>,
}

/// Draws curves over a logarithmic x axis.
pub(super) fn curves(curves: &[Curve], axes: &Axes) -> String {
    const HEIGHT: f64 = 220.0;
    const LEFT: f64 = 74.0;
    const BOTTOM: f64 = 190.0;
    const TOP: f64 = 14.0;
    let xs = || {
        curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).chain(axes.mark.map(|(x, _)| x))
    };
    let low = xs().fold(f64::INFINITY, f64::min).max(1.0).log2().floor();
    let high = xs().fold(1.0, f64::max).log2().ceil().max(low + 1.0);
    let x_of = |x: f64| LEFT + (x.max(1.0).log2() - low) / (high - low) * (WIDTH - LEFT - 24.0);
    let y_of = |y: f64| BOTTOM - y / axes.top * (BOTTOM - TOP);
    let mut body = String::new();
    for quarter in 0..=4 {
        let value = axes.top * f64::from(quarter) / 4.0;
        let _ = write!(
            body,
            r#"<line class="grid" x1="{LEFT}" x2="{:.0}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" text-anchor="end" x="{:.0}" y="{:.1}">{}</text>"#,
            WIDTH - 24.0,
            LEFT - 6.0,
            y_of(value) + 3.5,
            escape(&(axes.y_label)(value)),
            y = y_of(value),
        );
    }
    let tick_step = ((high - low) / 6.0).ceil().max(1.0);
    let mut exponent = low;
    while exponent <= high {
        let x = 2f64.powf(exponent);
        let _ = write!(
            body,
            r#"<text class="tick" text-anchor="middle" x="{:.1}" y="{:.0}">{}</text>"#,
            x_of(x),
            BOTTOM + 17.0,
            escape(&(axes.x_label)(x))
        );
        exponent += tick_step;
    }
    if let Some((x, name)) = axes.mark {
        let _ = write!(
            body,
            r#"<line class="mark" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{BOTTOM}"/><text class="tick" text-anchor="end" x="{:.1}" y="{:.1}">{}</text>"#,
            x_of(x) - 4.0,
            BOTTOM - 6.0,
            escape(name),
            x = x_of(x),
        );
    }
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        let dash = if curve.dashed { r#" stroke-dasharray="5 3""# } else { "" };
        let path = path(&curve.points, axes.steps, x_of, y_of);
        let _ = write!(
            body,
            r#"<path class="line {}"{dash} d="{path}"><title>{}</title></path>"#,
            curve.colour,
            escape(&curve.label)
        );
    }
    frame(WIDTH, HEIGHT, &body)
}

fn path(points: &[(f64, f64)], steps: bool, x_of: impl Fn(f64) -> f64, y_of: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let (x, y) = (x_of(*x), y_of(*y));
        let _ = match (index, steps) {
            (0, true) => write!(path, "M{x:.1} {:.1}V{y:.1}", y_of(0.0)),
            (0, false) => write!(path, "M{x:.1} {y:.1}"),
            (_, true) => write!(path, "H{x:.1}V{y:.1}"),
            (_, false) => write!(path, "L{x:.1} {y:.1}"),
        };
    }
    path
}

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

fn frame(width: f64, height: f64, body: &str) -> String {
    format!(r#"<svg viewBox="-2 -2 {:.0} {:.0}" role="img">{body}</svg>"#, width + 4.0, height + 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_cells_of_a_row_form_one_rectangle() {
        assert_eq!(cell_path(vec![(1, 4), (0, 2), (1, 3), (1, 6)]), "M2 0h1v1h-1zM3 1h2v1h-2zM6 1h1v1h-1z");
    }
}
