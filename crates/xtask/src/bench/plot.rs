//! Figures as SVG and as tables: lines over named places.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// How values become heights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// One line: a value for each place.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// What is drawn.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The file's name, without ending.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    /// The places.
    pub(crate) x: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) scale: Scale,
}

const COLORS: [&str; 8] =
    ["#9e9e9e", "#757575", "#424242", "#000000", "#1565c0", "#2e7d32", "#c62828", "#6a1b9a"];
/// How many of the colors are greys.
const GREYS: usize = 4;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// The part inside the axes: left, top, right, bottom.
const INSIDE: (f64, f64, f64, f64) = (70.0, 40.0, 500.0, 360.0);

impl Figure {
    /// The figure as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let (left, top, right, bottom) = INSIDE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, (left, top - 15.0), "start", &format!("{}, {}", self.title, self.y_label));
        text(&mut svg, ((left + right) / 2.0, HEIGHT - 15.0), "middle", &self.x_label);
        let _ = writeln!(svg, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>");
        for value in self.ticks() {
            let y = self.y(value);
            let _ = writeln!(svg, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e0e0e0\"/>");
            text(&mut svg, (left - 6.0, y + 4.0), "end", &shown(value));
        }
        for (place, name) in self.x.iter().enumerate() {
            text(&mut svg, (self.x(place), bottom + 18.0), "middle", name);
        }
        for (line, series) in self.series.iter().enumerate() {
            let color = self.color(line);
            self.draw(&mut svg, series, color);
            let y = top + 20.0 * line as f64;
            let from = right + 15.0;
            let _ = writeln!(svg, "<path d=\"M{from} {y}h20\" stroke=\"{color}\" stroke-width=\"2\"/>");
            text(&mut svg, (from + 26.0, y + 4.0), "start", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Greys come first, for the yardstick's lines; a figure with few lines needs none.
    fn color(&self, line: usize) -> &'static str {
        let skipped = if self.series.len() <= COLORS.len() - GREYS { GREYS } else { 0 };
        COLORS[(line + skipped) % COLORS.len()]
    }

    /// The same as a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("### {}, {}\n\n| {} |", self.title, self.y_label, self.x_label);
        self.x.iter().for_each(|place| table.push_str(&format!(" {place} |")));
        table.push_str(&format!("\n|---|{}\n", "---|".repeat(self.x.len())));
        for series in &self.series {
            let values: String = series.values.iter().map(|value| format!(" {} |", shown(*value))).collect();
            table.push_str(&format!("| {} |{values}\n", series.name));
        }
        table
    }

    fn draw(&self, svg: &mut String, series: &Series, color: &str) {
        let points: Vec<(f64, f64)> =
            series.values.iter().enumerate().map(|(place, value)| (self.x(place), self.y(*value))).collect();
        let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for (x, y) in points {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
        }
    }

    fn x(&self, place: usize) -> f64 {
        let (left, _, right, _) = INSIDE;
        left + (right - left) * (place as f64 + 0.5) / self.x.len() as f64
    }

    fn y(&self, value: f64) -> f64 {
        let (_, top, _, bottom) = INSIDE;
        let (least, most) = self.range();
        let share = match self.scale {
            Scale::Linear => value / most,
            Scale::Log => (value.max(least).log10() - least.log10()) / (most.log10() - least.log10()),
        };
        bottom - (bottom - top) * share
    }

    /// The values at both ends of the axis.
    fn range(&self) -> (f64, f64) {
        let values = || self.series.iter().flat_map(|series| series.values.iter().copied());
        let most = values().fold(f64::MIN_POSITIVE, f64::max);
        let least = values().fold(f64::MAX, f64::min).max(0.001);
        match self.scale {
            Scale::Linear => (0.0, round_up(most)),
            Scale::Log => (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil())),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        let (least, most) = self.range();
        match self.scale {
            Scale::Linear => (0..=5).map(|step| most / 5.0 * f64::from(step)).collect(),
            Scale::Log => {
                let decades = (most / least).log10().round() as i32;
                (0..=decades).map(|decade| least * 10f64.powi(decade)).collect()
            }
        }
    }
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, what: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{what}</text>");
}

/// The next of 1, 2 and 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(value)
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        0.0 => "0".into(),
        value => format!("{value:.3}").trim_end_matches('0').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_the_ends_of_the_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            let figure = Figure {
                name: "f".into(),
                title: "t".into(),
                x_label: "x".into(),
                y_label: "ms".into(),
                x: vec!["1".into(), "2".into()],
                series: vec![Series { name: "a".into(), values: vec![0.04, 730.0] }],
                scale,
            };
            assert!(
                figure.y(730.0) >= INSIDE.1 && figure.y(0.04) <= INSIDE.3 && figure.y(0.04) > figure.y(730.0)
            );
            assert_eq!(figure.svg().matches("<circle").count(), 2);
            assert!(figure.table().contains("| a | 0.04 | 730 |"), "{}", figure.table());
        }
        assert_eq!((round_up(730.0), round_up(1000.0), round_up(120.0)), (1000.0, 1000.0, 200.0));
    }
}
