//! The version of one format, compared with those that this build reads and writes.

use serde::Serialize;
use std::fmt;
use std::ops::RangeInclusive;

/// A format whose versions are compared.
#[derive(Debug, Clone)]
pub(super) struct Format {
    pub(super) name: &'static str,
    /// Versions that this build reads.
    pub(super) reads: RangeInclusive<u32>,
    /// Whether the next mount brings earlier versions to the newest one. Otherwise data keeps its version.
    pub(super) is_upgraded: bool,
    /// First versions that builds without an ability refuse, each with the ability.
    pub(super) abilities: &'static [(u32, &'static str)],
}

/// The consequence of a format for this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// This build uses the data as it is.
    Unchanged,
    /// The next mount with this build brings the data to a newer version.
    Upgraded,
    /// The format could not be examined.
    Unknown,
    /// This build cannot read the data.
    Refused,
}

/// A format at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) format: &'static str,
    /// Path, key or URL of the data.
    pub(super) place: String,
    /// Version of the data; `None` if it could not be examined.
    pub(super) found: Option<u32>,
    /// Oldest and newest version that this build reads.
    pub(super) reads: (u32, u32),
    pub(super) verdict: Verdict,
    /// Effect of the next mount with this build, and of earlier builds afterwards.
    pub(super) effect: String,
}

impl Format {
    /// Returns the finding for data of a version.
    pub(super) fn found(&self, place: impl Into<String>, found: u32) -> Finding {
        let (oldest, newest) = (*self.reads.start(), *self.reads.end());
        let (verdict, effect) = match found {
            found if found > newest => {
                let text = format!("this build cannot open it: use a build that reads version {found}");
                (Verdict::Refused, text)
            }
            found if found < oldest => {
                let text = "this build cannot open it: copy the data with the build that wrote it, to new data of this build";
                (Verdict::Refused, text.to_owned())
            }
            found if self.is_upgraded && found < newest => {
                let text = format!(
                    "the next mount makes it version {newest}; builds that read only version {found} refuse it then"
                );
                (Verdict::Upgraded, text)
            }
            found => (Verdict::Unchanged, self.downgrade(found)),
        };
        Finding {
            format: self.name,
            place: place.into(),
            found: Some(found),
            reads: (oldest, newest),
            verdict,
            effect,
        }
    }

    /// Returns the finding for what was read of the version at a place; `None` if there is no data.
    pub(super) fn examined(
        &self,
        place: impl Into<String>,
        version: Result<Option<u32>, impl fmt::Display>,
    ) -> Option<Finding> {
        match version {
            Ok(version) => version.map(|version| self.found(place, version)),
            Err(error) => Some(self.unknown(place, error)),
        }
    }

    /// Returns the finding for data that cannot be examined.
    pub(super) fn unknown(&self, place: impl Into<String>, reason: impl fmt::Display) -> Finding {
        Finding {
            format: self.name,
            place: place.into(),
            found: None,
            reads: (*self.reads.start(), *self.reads.end()),
            verdict: Verdict::Unknown,
            effect: format!("cannot be examined: {reason:#}"),
        }
    }

    /// Says what earlier builds do with data of a version that stays as it is.
    fn downgrade(&self, found: u32) -> String {
        let needed = self.abilities.iter().rev().find(|(since, _)| found >= *since);
        needed.map_or_else(
            || "unchanged".to_owned(),
            |(_, ability)| format!("unchanged; builds without {ability} refuse it"),
        )
    }
}

/// Shows the finding on one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found.map_or_else(|| "?".to_owned(), |found| found.to_string());
        let (oldest, newest) = self.reads;
        let reads = if oldest == newest { oldest.to_string() } else { format!("{oldest}-{newest}") };
        write!(f, "{:<20} {found:>5}  {reads:<5}  {}: {}", self.format, self.place, self.effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_decide_what_a_mount_does() {
        let format = |is_upgraded| Format {
            name: "tables",
            reads: 2..=4,
            is_upgraded,
            abilities: &[(3, "locks"), (4, "leases")],
        };
        let verdict = |found, is_upgraded| format(is_upgraded).found("there", found).verdict;
        assert_eq!(
            [1, 2, 4, 5].map(|found| verdict(found, false)),
            [Verdict::Refused, Verdict::Unchanged, Verdict::Unchanged, Verdict::Refused]
        );
        assert_eq!((verdict(2, true), verdict(4, true)), (Verdict::Upgraded, Verdict::Unchanged));
        assert_eq!(format(false).found("there", 2).effect, "unchanged");
        assert_eq!(format(false).found("there", 3).effect, "unchanged; builds without locks refuse it");
        let upgraded = format(true).found("there", 2).to_string();
        assert_eq!(
            upgraded,
            "tables                   2  2-4    there: the next mount makes it version 4; builds that read only version 2 refuse it then"
        );
    }
}
