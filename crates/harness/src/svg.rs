//! Charts as inline SVG: bars, stacked bars, curves.
//!
//! Colours are CSS classes of the page (`c0` to `c7`, `grey`), so the page controls light and dark mode. A colour has one meaning on the
//! page and never carries information alone: bars also show their number, curves their name.

use crate::format::{escape, percent};
use std::fmt::Write;

/// Width of a chart in a column, in units of its view box.
const WIDTH: f64 = 460.0;

/// A horizontal bar. Without a value, `note` tells why.
#[derive(Debug, Clone)]
pub struct Bar {
    /// Name before the bar.
    pub label: String,
    /// Length.
    pub value: Option<f64>,
    /// Text after the bar.
    pub note: String,
    /// CSS class.
    pub colour: String,
}

/// Draws horizontal bars that start at zero.
pub fn bars(bars: &[Bar]) -> String {
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
                    r#"<rect class="{}" x="0" y="{:.0}" width="{length:.1}" height="12" rx="2" data-value="{value}"/><text class="value" x="{:.1}" y="{:.0}">{}</text>"#,
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
#[derive(Debug, Clone)]
pub struct Stack {
    /// Name before the bar.
    pub label: String,
    /// (CSS class, name, value)
    pub parts: Vec<(String, String, f64)>,
    /// Text after the bar, or above its end if all bars have one length.
    pub note: String,
}

/// Draws stacked bars: all of the same length (`is_normalized`), or to one scale.
pub fn stacks(stacks: &[Stack], is_normalized: bool) -> String {
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
#[derive(Debug, Clone)]
pub struct Curve {
    /// Name.
    pub label: String,
    /// CSS class.
    pub colour: String,
    /// Whether the line is dashed.
    pub dashed: bool,
    /// Points (x, y).
    pub points: Vec<(f64, f64)>,
}

/// Axes of [`curves`]. The x axis is logarithmic with base 2.
#[derive(Debug, Clone)]
pub struct Axes {
    /// The y value at the top; 1 for shares.
    pub top: f64,
    /// Formats a value of the x axis.
    pub x_label: fn(f64) -> String,
    /// Formats a value of the y axis.
    pub y_label: fn(f64) -> String,
    /// Whether points are joined by steps, as in a cumulative distribution.
    pub steps: bool,
    /// A vertical line at this x, with its name.
    pub mark: Option<(f64, &'static str)>,
}

/// Draws curves over a logarithmic x axis.
pub fn curves(curves: &[Curve], axes: &Axes) -> String {
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

/// Wraps the body of a chart of this size in an `svg` element.
pub fn frame(width: f64, height: f64, body: &str) -> String {
    format!(r#"<svg viewBox="-2 -2 {:.0} {:.0}" role="img">{body}</svg>"#, width + 4.0, height + 4.0)
}
