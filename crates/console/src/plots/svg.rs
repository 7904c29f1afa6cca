//! Drawings of plots as SVG.

use super::history::{AllSeries, Points, SPAN};
use super::{Plot, Unit};
use crate::display;
use maud::{Markup, html};
use std::time::Duration;

/// Size of a drawing, in its own units.
const SIZE: (f64, f64) = (600.0, 180.0);
/// Room for labels: left, right, top, bottom.
const ROOM: (f64, f64, f64, f64) = (64.0, 12.0, 10.0, 22.0);
/// Maximum number of lines. The series with lower peaks are left out; the legend says how many.
const LINES_MAX: usize = 8;

/// Returns the drawing of a plot with its legend; `None` if it has no points.
pub(crate) fn figure(plot: &Plot, all: &AllSeries) -> Option<Markup> {
    let of_plot = all.iter().filter(|((title, _), _)| *title == plot.title);
    let mut series: Vec<(&str, &Points)> =
        of_plot.map(|((_, name), points)| (name.as_str(), points)).collect();
    let now = series.iter().filter_map(|(_, points)| points.back()).map(|(at, _)| *at).max()?;
    let oldest = series.iter().filter_map(|(_, points)| points.front()).map(|(at, _)| *at).min()?;
    let minutes = shown_minutes(now.saturating_sub(oldest));
    let axis = Axis { now, span: Duration::from_secs(60 * minutes) };
    series.sort_by(|one, other| peak(other.1).total_cmp(&peak(one.1)));
    let hidden = series.len().saturating_sub(LINES_MAX);
    series.truncate(LINES_MAX);
    let highest = series.first().map_or(0.0, |(_, points)| peak(points));
    let top = nice_ceiling(highest, plot.unit);
    let summary: Vec<String> = series
        .iter()
        .map(|(name, points)| format!("{name} {}", value_text(latest(points), plot.unit)))
        .collect();
    Some(html! {
        figure.card.plot {
            h2 { (plot.title) }
            svg role="img" aria-label={ (plot.title) ", now: " (summary.join(", ")) } viewBox={ "0 0 " (SIZE.0) " " (SIZE.1) } {
                @for step in 0..=2 {
                    @let value = top * f64::from(step) / 2.0;
                    @let y = y_of(value, top);
                    line.grid x1=(ROOM.0) x2=(SIZE.0 - ROOM.1) y1=(y) y2=(y) {}
                    text.axis x=(ROOM.0 - 6.0) y=(y + 4.0) text-anchor="end" { (value_text(value, plot.unit)) }
                }
                @for (share, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
                    text.axis x=(x_of_share(share)) y=(SIZE.1 - 4.0) text-anchor=(anchor) {
                        @if share == 1.0 { "now" } @else { ((minutes as f64) * (1.0 - share)) " min ago" }
                    }
                }
                // The series with the highest peak is drawn last, above the others.
                @for (at, (_, points)) in series.iter().enumerate().rev() {
                    polyline class={ "line s" (at) } points=(axis.line(points, top)) {}
                }
            }
            ul.legend {
                @for (at, (name, points)) in series.iter().enumerate() {
                    li { span class={ "swatch s" (at) } {} (display::name(name)) " " b { (value_text(latest(points), plot.unit)) } }
                }
                @if hidden > 0 { li { "and " (hidden) " smaller" } }
            }
        }
    })
}

/// Returns the highest value of a series; 0 without a positive one.
fn peak(points: &Points) -> f64 {
    points.iter().map(|(_, value)| *value).fold(0.0, f64::max)
}

fn latest(points: &Points) -> f64 {
    points.back().map_or(0.0, |(_, value)| *value)
}

/// Returns the length of the time axis in minutes: the least of 5, 15, 30 and 60 that covers a span.
fn shown_minutes(span: Duration) -> u64 {
    let all = SPAN.as_secs() / 60;
    let offered = [all / 12, all / 4, all / 2, all];
    offered.into_iter().find(|minutes| span <= Duration::from_secs(60 * minutes)).unwrap_or(all)
}

/// The time axis of a plot.
struct Axis {
    /// Time at the right end: that of the newest point.
    now: Duration,
    /// Time between both ends.
    span: Duration,
}

impl Axis {
    fn x_of(&self, at: Duration) -> f64 {
        let age = self.now.saturating_sub(at).as_secs_f64() / self.span.as_secs_f64();
        x_of_share(1.0 - age.min(1.0))
    }

    /// Returns the points of a line as SVG wants them, with one decimal. `top` is the value at the upper end.
    fn line(&self, points: &Points, top: f64) -> String {
        let shown: Vec<String> = points
            .iter()
            .map(|(at, value)| format!("{:.1},{:.1}", self.x_of(*at), y_of(*value, top)))
            .collect();
        shown.join(" ")
    }
}

/// Returns the x coordinate of a share of the time axis: 0 is its beginning, 1 is now.
fn x_of_share(share: f64) -> f64 {
    ROOM.0 + share * (SIZE.0 - ROOM.0 - ROOM.1)
}

/// Returns the y coordinate of a value. `top` is the value at the upper end.
fn y_of(value: f64, top: f64) -> f64 {
    let height = SIZE.1 - ROOM.2 - ROOM.3;
    ROOM.2 + height * (1.0 - (value / top).clamp(0.0, 1.0))
}

/// Returns the least round number that is not below a value: a power of 2 for bytes, otherwise 1, 2 or 5 times a power
/// of 10.
fn nice_ceiling(value: f64, unit: Unit) -> f64 {
    let is_binary = matches!(unit, Unit::Bytes | Unit::BytesPerSecond);
    if value <= 0.0 || !value.is_finite() {
        return if is_binary { 1024.0 } else { 1.0 };
    }
    if is_binary {
        return 2_f64.powf(value.log2().ceil());
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

/// Returns a value with its unit, as text.
fn value_text(value: f64, unit: Unit) -> String {
    let number = |value: f64| match value {
        value if value >= 100.0 => display::count(value.round() as u64),
        value if value >= 10.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    };
    match unit {
        Unit::PerSecond => format!("{}/s", number(value)),
        Unit::BytesPerSecond => format!("{}/s", display::bytes(value.round() as u64)),
        Unit::Bytes => display::bytes(value.round() as u64),
        Unit::Seconds => format!("{} s", number(value)),
        Unit::Count | Unit::Processors => number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::PLOTS;

    #[test]
    fn scales_are_round() {
        let ceiling = |value| nice_ceiling(value, Unit::PerSecond);
        assert_eq!([0.0, 0.3, 1.0, 1.5, 42.0, 99.0].map(ceiling), [1.0, 0.5, 1.0, 2.0, 50.0, 100.0]);
        assert_eq!(nice_ceiling(1500.0, Unit::Bytes), 2048.0);
    }

    #[test]
    fn a_line_spans_the_hour() {
        let plot = &PLOTS[0];
        let points: Points = [(0, 0.0), (1800, 5.0), (3600, 10.0)]
            .map(|(secs, value)| (Duration::from_secs(secs), value))
            .into_iter()
            .collect();
        let all = AllSeries::from([((plot.title, "<b>".to_owned()), points)]);
        let drawn = figure(plot, &all).unwrap().into_string();
        assert!(drawn.contains(r#"points="64.0,158.0 326.0,84.0 588.0,10.0""#), "{drawn}");
        assert!(drawn.contains("&lt;b&gt;") && !drawn.contains("<b>&lt;b"), "{drawn}");
        assert!(figure(&PLOTS[1], &all).is_none());
    }

    #[test]
    fn a_young_process_has_a_shorter_axis() {
        let minutes = |secs| shown_minutes(Duration::from_secs(secs));
        assert_eq!([0, 300, 301, 1000, 3600, 5000].map(minutes), [5, 5, 15, 30, 60, 60]);
    }
}
