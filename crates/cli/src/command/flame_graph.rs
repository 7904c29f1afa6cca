//! A flame graph as an SVG file: boxes whose widths are times, each above the one that it is a part of. It needs no script; a pointer on
//! a box shows its figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the picture and height of a box, in pixels.
const WIDTH: f64 = 1200.0;
const BOX_HEIGHT: f64 = 20.0;
const MARGIN: f64 = 10.0;
/// Space for title and subtitle.
const HEAD_HEIGHT: f64 = 50.0;
/// Width of a character, and of the narrowest box that is drawn.
const CHAR_WIDTH: f64 = 7.2;
const BOX_WIDTH_MIN: f64 = 0.5;

/// A box of the graph, with the boxes above it, which are its parts.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Total time of the operations of the box and of those above it.
    total_us: u64,
    /// Number of these operations.
    count: u64,
    /// The boxes above, by name.
    parts: BTreeMap<String, Frame>,
}

impl Frame {
    /// Adds operations to this box, and to each box on a path of names above it, the lowest first.
    pub(crate) fn add(&mut self, path: &[&str], count: u64, total_us: u64) {
        self.total_us += total_us;
        self.count += count;
        if let Some((first, rest)) = path.split_first() {
            self.parts.entry((*first).to_owned()).or_default().add(rest, count, total_us);
        }
    }

    /// Returns the number of boxes on the longest path, with this one.
    fn depth(&self) -> usize {
        1 + self.parts.values().map(Self::depth).max().unwrap_or(0)
    }

    /// Returns the picture. `name` is that of the lowest box.
    pub(crate) fn to_svg(&self, title: &str, name: &str) -> String {
        let height = HEAD_HEIGHT + self.depth() as f64 * BOX_HEIGHT + MARGIN;
        let mut svg = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <style>text{{font:12px monospace;fill:#111}}rect{{stroke:#fff;stroke-width:.5}}g:hover rect{{stroke:#000}}</style>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{MARGIN}\" y=\"22\" style=\"font-weight:bold;font-size:15px\">{}</text>\n\
             <text x=\"{MARGIN}\" y=\"40\">{}</text>\n",
            escape(title),
            escape(&self.describe(name, self.total_us))
        );
        self.draw(
            &mut svg,
            name,
            (MARGIN, height - MARGIN - BOX_HEIGHT, WIDTH - 2.0 * MARGIN),
            self.total_us,
        );
        svg.push_str("</svg>\n");
        svg
    }

    /// Draws the box at its upper left corner with its width, and the boxes above it, the widest at the left. Leaves out boxes
    /// that are too narrow. `whole_us` is the time of the lowest box, of which shares are shown.
    fn draw(&self, svg: &mut String, name: &str, (x, y, width): (f64, f64, f64), whole_us: u64) {
        if width < BOX_WIDTH_MIN {
            return;
        }
        let fits = ((width - 6.0) / CHAR_WIDTH).max(0.0) as usize;
        let label: String = match name.chars().count() <= fits {
            true => name.to_owned(),
            false if fits < 3 => String::new(),
            false => name.chars().take(fits - 2).chain("..".chars()).collect(),
        };
        let _ = write!(
            svg,
            "<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{BOX_HEIGHT}\" fill=\"{}\"/>",
            escape(&self.describe(name, whole_us)),
            color(name)
        );
        if !label.is_empty() {
            let _ = write!(svg, "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>", x + 3.0, y + 14.0, escape(&label));
        }
        svg.push_str("</g>\n");
        let mut parts: Vec<(&String, &Self)> = self.parts.iter().collect();
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.total_us));
        let mut left = x;
        for (name, part) in parts {
            let part_width = width * part.total_us as f64 / self.total_us.max(1) as f64;
            part.draw(svg, name, (left, y - BOX_HEIGHT, part_width), whole_us);
            left += part_width;
        }
    }

    /// Returns the figures of the box as text, with its share of `whole_us`.
    fn describe(&self, name: &str, whole_us: u64) -> String {
        let (total_ms, mean_ms) =
            (self.total_us as f64 / 1e3, self.total_us as f64 / 1e3 / self.count.max(1) as f64);
        let share = 100.0 * self.total_us as f64 / whole_us.max(1) as f64;
        format!("{name}: {total_ms:.1} ms in {} operations, mean {mean_ms:.3} ms, {share:.1}%", self.count)
    }
}

/// Returns a warm color that depends on the name only, so that pictures can be compared.
fn color(name: &str) -> String {
    let hash =
        name.bytes().fold(0xcbf2_9ce4_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let part = |shift: u32, range: u32| (hash >> shift) % range;
    format!("rgb({},{},{})", 205 + part(0, 50), 90 + part(8, 130), 40 + part(16, 60))
}

/// Escapes text for XML. Replaces control characters, and others that XML excludes, by `?`.
fn escape(text: &str) -> String {
    let is_illegal = |c: char| c.is_control() || c == '\u{fffe}' || c == '\u{ffff}';
    harness::format::escape(&text.replace(is_illegal, "?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_parts_of_the_whole() {
        let mut frame = Frame::default();
        frame.add(&["cat", "7 cat", "READ"], 3, 750);
        frame.add(&["<&>", "8 <&>", "OPEN"], 1, 250);
        let svg = frame.to_svg("mount", "all");
        // The whole has 1,180 pixels.
        for part in ["width=\"1180.00\"", "width=\"885.00\"", "width=\"295.00\""] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.contains("all: 1.0 ms in 4 operations, mean 0.250 ms, 100.0%"));
        assert!(svg.contains("READ: 0.8 ms in 3 operations") && svg.contains("8 &lt;&amp;&gt;"));
        assert_eq!(svg.matches("<g>").count(), 7);
        assert_eq!(color("READ"), color("READ"));
        assert!(Frame::default().to_svg("nothing", "all").ends_with("</svg>\n"));
    }
}
