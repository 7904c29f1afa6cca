//! Figures as SVG and as Markdown tables: lines over named categories.

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The scale of the y axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// A line with a value for each category.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// A figure.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// File name without extension.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) x_label: String,
    pub(crate) y_label: String,
    /// Names of the categories.
    pub(crate) x: Vec<String>,
    pub(crate) series: Vec<Series>,
    pub(crate) scale: Scale,
}

const COLORS: [&str; 8] =
    ["#9e9e9e", "#757575", "#424242", "#000000", "#1565c0", "#2e7d32", "#c62828", "#6a1b9a"];
/// Number of greys at the beginning of `COLORS`.
const GREYS: usize = 4;
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// The area inside the axes: left, top, right, bottom.
const PLOT_AREA: (f64, f64, f64, f64) = (70.0, 40.0, 500.0, 360.0);

impl Figure {
    /// Renders the figure as an SVG document.
    pub(crate) fn svg(&self) -> String {
        let (left, top, right, bottom) = PLOT_AREA;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        write_text(&mut svg, (left, top - 15.0), "start", &format!("{}, {}", self.title, self.y_label));
        write_text(&mut svg, ((left + right) / 2.0, HEIGHT - 15.0), "middle", &self.x_label);
        let _ = writeln!(svg, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>");
        for value in self.ticks() {
            let y = self.y_position(value);
            let _ = writeln!(svg, "<path d=\"M{left} {y:.1}H{right}\" stroke=\"#e0e0e0\"/>");
            write_text(&mut svg, (left - 6.0, y + 4.0), "end", &format_value(value));
        }
        for (category, name) in self.x.iter().enumerate() {
            write_text(&mut svg, (self.x_position(category), bottom + 18.0), "middle", name);
        }
        for (line, series) in self.series.iter().enumerate() {
            let color = self.color(line);
            self.draw_line(&mut svg, series, color);
            let y = top + 20.0 * line as f64;
            let from = right + 15.0;
            let _ = writeln!(svg, "<path d=\"M{from} {y}h20\" stroke=\"{color}\" stroke-width=\"2\"/>");
            write_text(&mut svg, (from + 26.0, y + 4.0), "start", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Returns the color of a line. Greys come first, for the lines of the baseline; figures with few lines have no greys.
    fn color(&self, line: usize) -> &'static str {
        let skipped = if self.series.len() <= COLORS.len() - GREYS { GREYS } else { 0 };
        COLORS[(line + skipped) % COLORS.len()]
    }

    /// Renders the figure as a Markdown table.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("### {}, {}\n\n| {} |", self.title, self.y_label, self.x_label);
        self.x.iter().for_each(|category| table.push_str(&format!(" {category} |")));
        table.push_str(&format!("\n|---|{}\n", "---|".repeat(self.x.len())));
        for series in &self.series {
            let values: String =
                series.values.iter().map(|value| format!(" {} |", format_value(*value))).collect();
            table.push_str(&format!("| {} |{values}\n", series.name));
        }
        table
    }

    fn draw_line(&self, svg: &mut String, series: &Series, color: &str) {
        let points: Vec<(f64, f64)> = series
            .values
            .iter()
            .enumerate()
            .map(|(category, value)| (self.x_position(category), self.y_position(*value)))
            .collect();
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

    fn x_position(&self, category: usize) -> f64 {
        let (left, _, right, _) = PLOT_AREA;
        left + (right - left) * (category as f64 + 0.5) / self.x.len() as f64
    }

    fn y_position(&self, value: f64) -> f64 {
        let (_, top, _, bottom) = PLOT_AREA;
        let (min, max) = self.range();
        let share = match self.scale {
            Scale::Linear => value / max,
            Scale::Log => (value.max(min).log10() - min.log10()) / (max.log10() - min.log10()),
        };
        bottom - (bottom - top) * share
    }

    /// Returns the values at both ends of the y axis.
    fn range(&self) -> (f64, f64) {
        let values = || self.series.iter().flat_map(|series| series.values.iter().copied());
        let max = values().fold(f64::MIN_POSITIVE, f64::max);
        let min = values().fold(f64::MAX, f64::min).max(0.001);
        match self.scale {
            Scale::Linear => (0.0, round_up(max)),
            Scale::Log => (10f64.powf(min.log10().floor()), 10f64.powf(max.log10().ceil())),
        }
    }

    fn ticks(&self) -> Vec<f64> {
        let (min, max) = self.range();
        match self.scale {
            Scale::Linear => (0..=5).map(|step| max / 5.0 * f64::from(step)).collect(),
            Scale::Log => {
                let decades = (max / min).log10().round() as i32;
                (0..=decades).map(|decade| min * 10f64.powi(decade)).collect()
            }
        }
    }
}

fn write_text(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// Rounds up to the next 1, 2 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(value)
}

fn format_value(value: f64) -> String {
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
                figure.y_position(730.0) >= PLOT_AREA.1
                    && figure.y_position(0.04) <= PLOT_AREA.3
                    && figure.y_position(0.04) > figure.y_position(730.0)
            );
            assert_eq!(figure.svg().matches("<circle").count(), 2);
            assert!(figure.table().contains("| a | 0.04 | 730 |"), "{}", figure.table());
        }
        assert_eq!((round_up(730.0), round_up(1000.0), round_up(120.0)), (1000.0, 1000.0, 200.0));
    }
}
