//! Parses sizes, bandwidths, durations, rates and modes as users write them on a command line. Formats sizes and durations.

use std::time::Duration;

/// Parses a size in bytes, like `4096`, `64K`, `64KiB`, `1.5GiB` or `8MB`. `K` and `KiB` count in 1,024s, `KB` in
/// 1,000s.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("'{text}' is not a size; write it like 64MiB or 1G")),
    };
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 => Ok((number * factor as f64) as u64),
        _ => Err(format!("'{text}' is not a size; write it like 64MiB or 1G")),
    }
}

/// Parses a bandwidth into bytes per second: `1Gbit` or `100Mbit` per second, or a size like `125MB`.
pub(crate) fn bandwidth_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let bits = match unit.to_ascii_lowercase().as_str() {
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return size_bytes(text),
    };
    match number.parse::<f64>() {
        Ok(number) if number > 0.0 => Ok((number * bits / 8.0) as u64),
        _ => Err(format!("'{text}' is not a bandwidth; write it like 1Gbit or 125MB")),
    }
}

/// Parses a duration, like `5`, `5s`, `500ms`, `1.5m`, `2h` or `30d`; a bare number is seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(format!("'{text}' is not a duration; write it like 5s, 500ms or 2m")),
    };
    number
        .parse::<f64>()
        .ok()
        .and_then(|number| Duration::try_from_secs_f64(number * seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a duration; write it like 5s, 500ms or 2m"))
}

/// Parses a rate, like `1/s`, `6/m` or `100/h`, into the time between two events. `0` means never, and gives zero.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a rate; write it like 1/s, 6/m or 100/h, or 0 for never");
    let (count, seconds) = match text.split_once('/') {
        Some((count, "s")) => (count, 1.0),
        Some((count, "m" | "min")) => (count, 60.0),
        Some((count, "h")) => (count, 3600.0),
        None if text == "0" => return Ok(Duration::ZERO),
        _ => return Err(wrong()),
    };
    match count.parse::<f64>() {
        Ok(0.0) => Ok(Duration::ZERO),
        Ok(count) if count > 0.0 => Duration::try_from_secs_f64(seconds / count).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// Parses permission bits in octal, as `chmod` takes them.
pub(crate) fn mode(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("'{text}' is not a mode; write it in octal, like 644")),
    }
}

/// Formats a number of bytes with a unit, like `1.50 GiB`.
pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// Formats a duration in one unit, like `5 minutes`.
pub(crate) fn human_duration(secs: u64) -> String {
    indicatif::HumanDuration(Duration::from_secs(secs)).to_string()
}

/// Splits a text into its number and its unit.
fn split(text: &str) -> (&str, &str) {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    (text[..at].trim(), text[at..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(size_bytes("4096"), Ok(4096));
        assert_eq!(size_bytes("64K"), Ok(65_536));
        assert_eq!(size_bytes("1.5 GiB"), Ok(1_610_612_736));
        assert_eq!(size_bytes("8MB"), Ok(8_000_000));
        for wrong in ["", "x", "-1", "5 parsecs", "1e"] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bandwidths_are_in_bits_or_bytes() {
        assert_eq!(bandwidth_bytes("1Gbit"), Ok(125_000_000));
        assert_eq!(bandwidth_bytes("2.5Mbit"), Ok(312_500));
        assert_eq!(bandwidth_bytes("125MB"), Ok(125_000_000));
        assert!(bandwidth_bytes("0Gbit").is_err() && bandwidth_bytes("fast").is_err());
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "-1s", "soon", "5 days"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_become_intervals() {
        assert_eq!(interval("4/s"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("6/m"), Ok(Duration::from_secs(10)));
        assert_eq!(interval("1/h"), Ok(Duration::from_secs(3600)));
        assert_eq!((interval("0"), interval("0/s")), (Ok(Duration::ZERO), Ok(Duration::ZERO)));
        for wrong in ["", "5", "1/week", "-1/s", "x/s", "/s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(mode("0644"), Ok(0o644));
        assert!(mode("9").is_err());
        assert!(mode("17777").is_err());
    }
}
