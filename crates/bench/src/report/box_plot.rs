//! Box plots as inline SVG: quartiles as a box, the median as a line in it, lowest and highest as whiskers.

use crate::statistics::Spread;
use harness::format::{escape, short};
use harness::svg::frame;
use std::fmt::Write;

const WIDTH: f64 = 460.0;
const ROW: f64 = 34.0;

/// Draws a box plot for each name, to one scale that begins at zero.
pub(super) fn box_plots(spreads: &[(String, Spread)]) -> String {
    let max = spreads.iter().map(|(_, spread)| spread.peak).fold(f64::MIN_POSITIVE, f64::max);
    let x = |rate: f64| rate / max * (WIDTH - 110.0);
    let mut body = String::new();
    for (index, (label, spread)) in spreads.iter().enumerate() {
        let y = index as f64 * ROW;
        let middle = y + 21.0;
        let _ = write!(body, r#"<text class="label" x="0" y="{:.0}">{}</text>"#, y + 11.0, escape(label));
        let _ = write!(
            body,
            r#"<line class="mark" x1="{:.1}" x2="{:.1}" y1="{middle:.0}" y2="{middle:.0}"/>"#,
            x(spread.min),
            x(spread.peak)
        );
        let _ = write!(
            body,
            r#"<rect class="c0" x="{:.1}" y="{:.0}" width="{:.1}" height="12" data-median="{}"/>"#,
            x(spread.q1),
            y + 15.0,
            (x(spread.q3) - x(spread.q1)).max(1.0),
            spread.median
        );
        let _ = write!(
            body,
            r#"<line class="median" x1="{m:.1}" x2="{m:.1}" y1="{:.0}" y2="{:.0}"/>"#,
            y + 15.0,
            y + 27.0,
            m = x(spread.median)
        );
        let _ = write!(
            body,
            r#"<text class="value" x="{:.1}" y="{:.0}">{}, {} repeats</text>"#,
            x(spread.peak) + 6.0,
            y + 25.0,
            short(spread.median),
            spread.count
        );
    }
    frame(WIDTH, spreads.len() as f64 * ROW, &body)
}
