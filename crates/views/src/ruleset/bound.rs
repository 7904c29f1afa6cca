//! Bounds on sizes and times.

use jiff::tz::TimeZone;
use jiff::{Span, Zoned, civil};
use std::fmt;
use store::Timestamp;

/// A bound on the length of an object: `>10MiB`, `<=4096`, `=0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeBound {
    comparison: Comparison,
    bytes: u64,
    /// The text from which the bound was parsed.
    written: String,
}

/// A bound on a time: `<7 days` is within the last seven days, `>2026-01-31` is after that day began (UTC).
#[derive(Debug, Clone)]
pub struct TimeBound {
    comparison: Comparison,
    reference: Reference,
    written: String,
}

/// The time that a bound compares with.
#[derive(Debug, Clone)]
enum Reference {
    /// This long before the moment of the comparison.
    Ago(Span),
    /// A fixed moment.
    At(Timestamp),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
}

impl SizeBound {
    /// Parses a number of bytes, whole or with a fraction, with no unit, `B`, `kB` to `TB` (1,000s), or `KiB` to `TiB`
    /// or `k` to `t` (1,024s), in upper or lower case, after `<`, `<=`, `>`, `>=`, `=` or nothing, which is `=`. An
    /// error is a message for the user.
    pub fn new(text: &str) -> Result<Self, String> {
        let malformed = || format!("'{text}' is not a size; write it like \">10MiB\" or \"<=4096\"");
        let (comparison, size) = Comparison::split(text);
        let bytes = parse_size(size).ok_or_else(malformed)?;
        Ok(Self {
            comparison: comparison.unwrap_or(Comparison::Equal),
            bytes,
            written: text.trim().to_owned(),
        })
    }

    /// Returns whether a length is within the bound.
    pub fn holds(&self, size_bytes: u64) -> bool {
        self.comparison.holds(size_bytes, self.bytes)
    }

    /// Returns the cut points of the bound. Each separates smaller lengths from itself and greater ones; between cut
    /// points the answer is the same.
    pub(crate) fn cuts(&self) -> [u64; 2] {
        [self.bytes, self.bytes.saturating_add(1)]
    }
}

impl TimeBound {
    /// Parses an age (`<7 days`, `>36h`, `<P1Y`) or a moment (`>=2026-01-31`, `<2026-01-31T12:00:00Z`) after `<`, `<=`,
    /// `>` or `>=`. An error is a message for the user.
    pub fn new(text: &str) -> Result<Self, String> {
        let malformed = || format!("'{text}' is not a time; write it like \"<7 days\" or \">2026-01-31\"");
        let (comparison, reference) = Comparison::split(text);
        let comparison = comparison.filter(|comparison| *comparison != Comparison::Equal);
        let comparison =
            comparison.ok_or_else(|| format!("'{text}' needs < or > before the time, as in \"<7 days\""))?;
        let reference = parse_reference(reference).ok_or_else(malformed)?;
        Ok(Self { comparison, reference, written: text.trim().to_owned() })
    }

    /// Returns whether a time is within the bound at the moment `now`. Of two times, the later one has the smaller
    /// age.
    pub fn holds(&self, time: Timestamp, now: Timestamp) -> bool {
        match &self.reference {
            Reference::At(moment) => self.comparison.holds(time, *moment),
            Reference::Ago(span) => self.comparison.holds(before(now, span), time),
        }
    }

    /// Returns the cut points of the bound at the moment `now`; between them the answer is the same.
    pub(crate) fn cuts(&self, now: Timestamp) -> [Timestamp; 2] {
        let reference = match &self.reference {
            Reference::At(moment) => *moment,
            Reference::Ago(span) => before(now, span),
        };
        [reference, Timestamp(reference.0.saturating_add(1))]
    }

    /// Returns whether the answer changes as time passes.
    pub(crate) fn is_age(&self) -> bool {
        matches!(self.reference, Reference::Ago(_))
    }
}

impl Comparison {
    /// Splits a text into the comparison with which it begins, `None` if there is none, and the rest.
    fn split(text: &str) -> (Option<Self>, &str) {
        let text = text.trim();
        let signs = [
            ("<=", Self::AtMost),
            (">=", Self::AtLeast),
            ("<", Self::Less),
            (">", Self::More),
            ("=", Self::Equal),
        ];
        let found =
            signs.into_iter().find_map(|(sign, comparison)| Some((comparison, text.strip_prefix(sign)?)));
        found.map_or((None, text), |(comparison, rest)| (Some(comparison), rest.trim()))
    }

    fn holds<T: Ord>(self, left: T, right: T) -> bool {
        match self {
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::More => left > right,
            Self::AtLeast => left >= right,
            Self::Equal => left == right,
        }
    }
}

/// Parses a number of bytes with an optional unit; `None` if it is malformed or a whole number is too large.
fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..digits].trim(), text[digits..].trim());
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    Some((number * unit as f64) as u64)
}

/// Parses a moment, a day, which begins at midnight UTC, or an age; `None` if the text is none of them or the age is
/// negative.
fn parse_reference(text: &str) -> Option<Reference> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(Reference::At(timestamp(at)));
    }
    if let Ok(day) = text.parse::<civil::Date>() {
        return Some(Reference::At(timestamp(day.to_zoned(TimeZone::UTC).ok()?.timestamp())));
    }
    let span: Span = text.parse().ok()?;
    (!span.is_negative()).then_some(Reference::Ago(span))
}

fn timestamp(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_system_time(at.into())
}

/// Subtracts a span from `now` by the calendar, in UTC. Returns the earliest timestamp if the result would be outside
/// of the calendar.
fn before(now: Timestamp, span: &Span) -> Timestamp {
    let now = jiff::Timestamp::from_nanosecond(i128::from(now.0)).map(|now| now.to_zoned(TimeZone::UTC));
    let then = now.and_then(|now: Zoned| now.checked_sub(*span));
    then.map_or(Timestamp(i64::MIN), |then| timestamp(then.timestamp()))
}

impl fmt::Display for SizeBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl fmt::Display for TimeBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}
