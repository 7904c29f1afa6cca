//! Locks that protect versions of objects from removal (S3 User Guide, "Locking objects with Object Lock").
//!
//! A lock is stored as three headers of its version, which are S3's own, in one step with the bytes.

use crate::{Attributes, Timestamp};

/// Header with the mode: `GOVERNANCE` or `COMPLIANCE`.
pub const LOCK_MODE: &str = "x-amz-object-lock-mode";
/// Header with the end of the retention, as ISO 8601.
pub const LOCK_UNTIL: &str = "x-amz-object-lock-retain-until-date";
/// Header with the legal hold: `ON` or `OFF`.
pub const LOCK_HOLD: &str = "x-amz-object-lock-legal-hold";

/// The mode of a retention: who may end it before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Callers that ask to bypass the retention and have permission.
    Governance,
    /// No caller.
    Compliance,
}

/// A lock with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Decides who may end the lock earlier.
    pub mode: LockMode,
    /// End of the lock.
    pub until: Timestamp,
}

/// Protection of a version from removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lock {
    /// A lock with an end.
    pub retention: Option<Retention>,
    /// A lock without an end, which must be removed explicitly; `Some(false)` after it was cleared, `None` if it was
    /// never set.
    pub legal_hold: Option<bool>,
}

impl LockMode {
    /// Returns the mode's name in S3.
    pub fn name(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }

    /// Returns the mode with this name; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Governance, Self::Compliance].into_iter().find(|mode| mode.name() == name)
    }
}

impl Lock {
    /// Reads the lock from a version's headers.
    pub fn of(attributes: &Attributes) -> Self {
        let text = |name: &str| attributes.system.get(name).map(String::as_str);
        let mode = text(LOCK_MODE).and_then(LockMode::named);
        let until = text(LOCK_UNTIL).and_then(from_iso);
        let retention = mode.zip(until).map(|(mode, until)| Retention { mode, until });
        Self { retention, legal_hold: text(LOCK_HOLD).map(|text| text == "ON") }
    }

    /// Writes the lock into a version's headers, in place of an earlier one.
    pub fn write(self, attributes: &mut Attributes) {
        let hold = self.legal_hold.map(|is_on| if is_on { "ON" } else { "OFF" }.to_owned());
        let fields = [
            (LOCK_MODE, self.retention.map(|retention| retention.mode.name().to_owned())),
            (LOCK_UNTIL, self.retention.map(|retention| to_iso(retention.until))),
            (LOCK_HOLD, hold),
        ];
        for (name, value) in fields {
            match value {
                Some(value) => drop(attributes.system.insert(name.to_owned(), value)),
                None => drop(attributes.system.remove(name)),
            }
        }
    }

    /// Returns whether the version must not be removed now. With `bypass_governance` a governance retention does not
    /// count.
    pub fn protects(self, now: Timestamp, bypass_governance: bool) -> bool {
        let is_retained = self.retention.is_some_and(|retention| {
            retention.until > now && !(bypass_governance && retention.mode == LockMode::Governance)
        });
        is_retained || self.legal_hold == Some(true)
    }

    /// Returns whether the retention may be changed to `next` now. An expired retention may be changed to anything. A
    /// compliance retention may only become longer. A governance retention may become longer in its own mode; any
    /// other change needs the bypass.
    pub fn may_become(self, next: Option<Retention>, now: Timestamp, bypass_governance: bool) -> bool {
        let Some(old) = self.retention.filter(|old| old.until > now) else { return true };
        let is_weaker = next.is_none_or(|next| {
            next.until < old.until || next.mode == LockMode::Governance && old.mode == LockMode::Compliance
        });
        match old.mode {
            LockMode::Compliance => !is_weaker,
            LockMode::Governance => {
                bypass_governance || !is_weaker && next.is_some_and(|next| next.mode == old.mode)
            }
        }
    }
}

/// Formats a time as `2013-05-24T00:00:00Z`, with a fraction of a second if there is one.
fn to_iso(time: Timestamp) -> String {
    let (days, secs) = (time.secs().div_euclid(86_400), time.secs().rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    let fraction = match time.subsec_nanos() {
        0 => String::new(),
        nanos => format!(".{nanos:09}"),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Parses a time as [`to_iso`] formats it; `None` for any other text.
fn from_iso(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let is_time = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..61).contains(&second);
    let secs = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    (is_date && is_time).then(|| Timestamp::from_secs(secs, nanos))
}

/// Returns the Gregorian date of a day since 1970, computed with years that begin in March and eras of 400 such
/// years.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the days since 1970 of a Gregorian date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_survives_the_headers() {
        for (secs, nanos) in [(0, 0), (1_700_000_000, 5), (951_782_400, 0), (4_102_444_799, 999_999_999)] {
            let until = Timestamp::from_secs(secs, nanos);
            let retention = Some(Retention { mode: LockMode::Compliance, until });
            let lock = Lock { retention, legal_hold: Some(false) };
            let mut attributes = Attributes::default();
            lock.write(&mut attributes);
            assert_eq!(Lock::of(&attributes), lock);
            Lock::default().write(&mut attributes);
            assert_eq!(attributes, Attributes::default());
        }
        assert_eq!(to_iso(Timestamp::from_secs(951_782_400, 0)), "2000-02-29T00:00:00Z");
    }

    #[test]
    fn only_governance_is_bypassed() {
        let (now, later, latest) = (Timestamp(10), Timestamp(20), Timestamp(30));
        let lock = |mode, until| Lock { retention: Some(Retention { mode, until }), legal_hold: None };
        let to = |mode, until| Some(Retention { mode, until });
        use LockMode::{Compliance, Governance};
        assert!(lock(Governance, later).protects(now, false));
        assert!(!lock(Governance, later).protects(now, true));
        assert!(lock(Compliance, later).protects(now, true));
        assert!(!lock(Compliance, now).protects(now, false));
        assert!(Lock { retention: None, legal_hold: Some(true) }.protects(now, true));
        assert!(lock(Compliance, later).may_become(to(Compliance, latest), now, false));
        assert!(!lock(Compliance, later).may_become(to(Governance, latest), now, true));
        assert!(!lock(Compliance, latest).may_become(to(Compliance, later), now, true));
        assert!(lock(Governance, latest).may_become(to(Governance, later), now, true));
        assert!(!lock(Governance, latest).may_become(to(Governance, later), now, false));
        assert!(!lock(Governance, latest).may_become(None, now, false));
        assert!(lock(Governance, now).may_become(None, now, false));
    }
}
