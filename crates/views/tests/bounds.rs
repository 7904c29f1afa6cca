//! Bounds on sizes and times, in the syntax of rulesets.

use store::Timestamp;
use views::{SizeBound, TimeBound};

/// 2024-03-01T00:00:00Z: the day before is the 29th of February.
const NOW: Timestamp = Timestamp(1_709_251_200_000_000_000);

#[test]
fn sizes_are_compared_as_written() {
    for (bound, within, beyond) in [
        (">10MiB", 10 << 20 | 1, 10 << 20),
        (">= 10 MiB", 10 << 20, (10 << 20) - 1),
        ("<1.5kB", 1499, 1500),
        ("<=2G", 2 << 30, (2 << 30) + 1),
        ("=0", 0, 1),
        ("4096", 4096, 4095),
        ("<18446744073709551615", u64::MAX - 1, u64::MAX),
    ] {
        let bound = SizeBound::new(bound).unwrap();
        assert!(bound.holds(within) && !bound.holds(beyond), "{bound}");
    }
    for wrong in ["", ">", "10 parsecs", "<-1", "ten", "1e999", "99999999999TiB", "<>1"] {
        assert!(SizeBound::new(wrong).unwrap_err().contains("write it like"), "{wrong}");
    }
}

#[test]
fn ages_follow_the_calendar_and_absolute_times_are_exact() {
    let ago = |secs: i64| Timestamp(NOW.0 - secs * 1_000_000_000);
    let day = 86_400;
    for (bound, within, beyond) in [
        ("<7 days", ago(7 * day - 1), ago(7 * day)),
        ("<=36h", ago(36 * 3600), ago(36 * 3600 + 1)),
        (">1 month", ago(29 * day + 1), ago(29 * day)),
        (">=P1Y", ago(366 * day), ago(366 * day - 1)),
        ("<2024-02-29", ago(day + 1), ago(day)),
        (">=2024-02-29T12:00:00Z", ago(day / 2), ago(day / 2 + 1)),
        ("<1 day", Timestamp(NOW.0 + 1), ago(day)),
        ("<9000 years", Timestamp(i64::MIN + 1), Timestamp(i64::MIN)),
    ] {
        let bound = TimeBound::new(bound).unwrap();
        assert!(bound.holds(within, NOW) && !bound.holds(beyond, NOW), "{bound}");
    }
    assert!(TimeBound::new("7 days").unwrap_err().contains("needs < or >"));
    assert!(TimeBound::new("=7 days").unwrap_err().contains("needs < or >"));
    for wrong in ["<", "<soon", "<-7 days", "<2026-02-30", ">7 elephants"] {
        assert!(TimeBound::new(wrong).unwrap_err().contains("write it like"), "{wrong}");
    }
}
