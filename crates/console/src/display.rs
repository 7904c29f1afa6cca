//! Values as text for people.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// ASCII characters that are percent-encoded in a query or a form: all but letters, digits and `-_.~`.
const COMPONENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Percent-encodes a value for a query, or a key for a field of a form.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, &COMPONENT).to_string()
}

/// Returns a name for display: characters that are invisible or change the direction of text are shown by their code
/// or abbreviation, as in `⟨U+202E⟩` and `⟨LF⟩`.
pub(crate) fn name(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push_str("⟨LF⟩"),
            '\r' => shown.push_str("⟨CR⟩"),
            '\t' => shown.push_str("⟨TAB⟩"),
            _ if is_invisible(character) => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(character))),
            _ => shown.push(character),
        }
    }
    shown
}

/// Returns whether a character is a control character, sets the direction of text, or has no width, except for the
/// joiners that emoji and some scripts need.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

/// Returns a length with a unit, such as `1.5 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.95 { 1 } else { 0 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Returns a number with narrow spaces between its thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// Returns a number and a noun, with an `s` unless the number is 1.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    counted_with_plural(number, noun, &format!("{noun}s"))
}

/// Returns a number and a noun, in the singular if the number is 1.
pub(crate) fn counted_with_plural(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", count(number), if number == 1 { singular } else { plural })
}

/// Returns a duration in one unit, rounded down, such as `5 minutes`; at least `1 second`.
pub(crate) fn duration(span: Duration) -> String {
    let secs = span.as_secs();
    match secs {
        0..=119 => counted(secs.max(1), "second"),
        120..=7199 => counted(secs / 60, "minute"),
        7200..=172_799 => counted(secs / 3600, "hour"),
        _ => counted(secs / 86_400, "day"),
    }
}

/// Returns the time of RFC 3339 or of an HTTP date as `2026-01-31 12:00:00`, in UTC; other texts as they are.
pub(crate) fn time(text: &str) -> String {
    let parsed = text.parse::<jiff::Timestamp>().ok();
    let parsed = parsed.or_else(|| Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp()));
    parsed.map_or_else(
        || text.to_owned(),
        |time| {
            let zoned = time.to_zoned(jiff::tz::TimeZone::UTC);
            zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(name("a\nb\u{202e}c\u{7f}ü🦀"), "a⟨LF⟩b⟨U+202E⟩c⟨U+007F⟩ü🦀");
    }

    #[test]
    fn numbers_have_units() {
        let shown = [0, 1023, 1024, 10_000, 1 << 20, 1_023 << 20, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "9.8 KiB", "1.0 MiB", "1.0 GiB", "16 EiB"]);
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(counted(1, "object"), "1 object");
        assert_eq!(duration(Duration::from_secs(150)), "2 minutes");
    }

    #[test]
    fn times_are_short() {
        assert_eq!(time("2026-01-31T12:00:00.123Z"), "2026-01-31 12:00:00");
        assert_eq!(time("Sat, 31 Jan 2026 12:00:00 GMT"), "2026-01-31 12:00:00");
        assert_eq!(time("soon"), "soon");
    }
}
