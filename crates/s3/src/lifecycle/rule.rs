//! A lifecycle rule: which objects it matches, and when it is due.

use s3s::dto;
use store::{Tags, Timestamp};

use crate::headers;

const DAY_SECS: i64 = 86_400;

/// An enabled rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) filter: Filter,
    pub(super) expires: Option<Expiry>,
    /// Whether the rule removes expired object delete markers: markers that are a key's only version.
    pub(super) removes_orphan_markers: bool,
    pub(super) noncurrent: Option<Noncurrent>,
    /// Days after which an incomplete multipart upload is aborted.
    pub(super) aborts_after_days: Option<i64>,
}

/// The time at which an object expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// This many days after the object was stored, rounded up to the next midnight (UTC).
    Days(i64),
    /// At this time, no matter when the object was stored.
    Date(Timestamp),
}

impl Expiry {
    /// Returns when an object stored at `stored` is due.
    pub(super) fn due_at(self, stored: Timestamp) -> Timestamp {
        match self {
            Self::Days(days) => midnight_after(stored, days),
            Self::Date(date) => date,
        }
    }
}

/// The expiration of noncurrent versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noncurrent {
    /// Days for which a version is kept after it became noncurrent.
    pub(super) days: i64,
    /// The number of newest noncurrent versions that are kept however old they are.
    pub(super) newer: usize,
}

/// Returns the midnight (UTC) after the given number of days has passed.
pub(super) fn midnight_after(since: Timestamp, days: i64) -> Timestamp {
    let days = since.secs().div_euclid(DAY_SECS).saturating_add(days).saturating_add(1);
    Timestamp::from_secs(days.saturating_mul(DAY_SECS), 0)
}

/// The filter of a rule. An object matches if it meets all parts: sizes are in bytes, and the bounds are exclusive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Filter {
    pub(super) prefix: String,
    tags: Tags,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
}

impl Filter {
    pub(super) fn matches_key(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix.as_bytes())
    }

    pub(super) fn needs_size(&self) -> bool {
        self.larger_than.is_some() || self.smaller_than.is_some()
    }

    pub(super) fn matches_size(&self, size_bytes: u64) -> bool {
        self.larger_than.is_none_or(|size| size_bytes > size)
            && self.smaller_than.is_none_or(|size| size_bytes < size)
    }

    pub(super) fn needs_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    pub(super) fn matches_tags(&self, tags: &Tags) -> bool {
        self.tags.iter().all(|(key, value)| tags.get(key) == Some(value))
    }

    /// Returns whether the filter depends on keys alone.
    pub(super) fn is_by_key_only(&self) -> bool {
        !self.needs_size() && !self.needs_tags()
    }

    fn of(rule: &dto::LifecycleRule) -> Self {
        let Some(given) = &rule.filter else {
            return Self { prefix: rule.prefix.clone().unwrap_or_default(), ..Self::default() };
        };
        let and = given.and.as_ref();
        let prefix = given.prefix.as_ref().or(and.and_then(|and| and.prefix.as_ref()));
        let several = and.and_then(|and| and.tags.as_ref()).into_iter().flatten();
        let tags = given.tag.iter().chain(several);
        let size = |size: Option<i64>| size.and_then(|size| u64::try_from(size).ok());
        let larger = given.object_size_greater_than.or(and.and_then(|and| and.object_size_greater_than));
        let smaller = given.object_size_less_than.or(and.and_then(|and| and.object_size_less_than));
        Self {
            prefix: prefix.cloned().unwrap_or_default(),
            tags: tags.filter_map(|tag| Some((tag.key.clone()?, tag.value.clone()?))).collect(),
            larger_than: size(larger),
            smaller_than: size(smaller),
        }
    }
}

impl Rule {
    /// Converts a validated rule; `None` if it is disabled.
    pub(super) fn from_enabled(rule: &dto::LifecycleRule) -> Option<Self> {
        if rule.status.as_str() != dto::ExpirationStatus::ENABLED {
            return None;
        }
        let expiration = rule.expiration.as_ref();
        let days = expiration.and_then(|expiration| expiration.days);
        let date = expiration.and_then(|expiration| expiration.date.as_ref());
        let date = date.map(|date| Expiry::Date(Timestamp::from_secs(headers::secs(date), 0)));
        let noncurrent = rule.noncurrent_version_expiration.as_ref();
        let noncurrent = noncurrent.and_then(|noncurrent| {
            let newer = usize::try_from(noncurrent.newer_noncurrent_versions.unwrap_or(0)).ok()?;
            Some(Noncurrent { days: noncurrent.noncurrent_days?.into(), newer })
        });
        let abort = rule.abort_incomplete_multipart_upload.as_ref();
        Some(Self {
            id: rule.id.clone().unwrap_or_default(),
            filter: Filter::of(rule),
            expires: days.map(|days| Expiry::Days(days.into())).or(date),
            removes_orphan_markers: expiration
                .and_then(|expiration| expiration.expired_object_delete_marker)
                .unwrap_or(false),
            noncurrent,
            aborts_after_days: abort.and_then(|abort| abort.days_after_initiation).map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_end_at_the_midnight_that_follows() {
        let at = |days: i64, secs: i64| Timestamp::from_secs(days * DAY_SECS + secs, 0);
        // AWS's example: an object stored on the 15th at 10:30 for three days expires on the 19th at 00:00.
        assert_eq!(midnight_after(at(15, 10 * 3600 + 1800), 3), at(19, 0));
        assert_eq!(midnight_after(at(15, 0), 1), at(17, 0));
        assert_eq!(midnight_after(at(15, DAY_SECS - 1), 0), at(16, 0));
        assert_eq!(midnight_after(Timestamp(i64::MAX), i64::MAX), Timestamp(i64::MAX));
    }
}
