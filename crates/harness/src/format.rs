//! Formatting of numbers and text for reports.

/// Formats a number of bytes: `1.5 GiB`, `16 KiB`.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(scaled), units[unit])
}

/// Formats a duration: `1.2 ms`, `34 s`, `1 h 5 min`.
pub fn seconds(value: f64) -> String {
    match value {
        0.0 => "0 s".into(),
        v if v < 1e-3 => format!("{} µs", short(v * 1e6)),
        v if v < 1.0 => format!("{} ms", short(v * 1e3)),
        v if v < 600.0 => format!("{} s", short(v)),
        v if v < 3600.0 => format!("{} min", short(v / 60.0)),
        v => format!("{} h {:.0} min", (v / 3600.0).floor(), (v % 3600.0 / 60.0).floor()),
    }
}

/// Formats a count: `12,345`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a share as `38 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", short(share * 100.0))
}

/// Formats a number with two decimals, from 10 on with one, from 100 on with none; without trailing zeros after the point.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Escapes text for HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_text_are_formatted() {
        assert_eq!(bytes(16384.0), "16 KiB");
        assert_eq!(bytes(1.5 * 1024.0 * 1024.0), "1.5 MiB");
        assert_eq!(seconds(0.00012), "120 µs");
        assert_eq!(seconds(3900.0), "1 h 5 min");
        assert_eq!(seconds(34.0), "34 s");
        assert_eq!(count(1234567), "1,234,567");
        assert_eq!(count(12), "12");
        assert_eq!(percent(0.3812), "38.1 %");
        assert_eq!(short(100.0), "100");
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
