//! One rule: what it is about, and when it is due.

use s3s::dto;
use store::{Tags, Timestamp};

use crate::headers;

const DAY_SECS: i64 = 86_400;

/// A rule as it is acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) id: String,
    pub(super) filter: Filter,
    pub(super) expires: Option<Expiry>,
    /// Whether a deletion's mark goes that hides nothing any more.
    pub(super) removes_lone_marks: bool,
    pub(super) noncurrent: Option<Noncurrent>,
    /// Days after which an upload that nobody completes is given up.
    pub(super) aborts_after_days: Option<i64>,
}

/// When an object expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expiry {
    /// So many days after it was stored, at the midnight that follows.
    Days(i64),
    /// At a moment, whenever it was stored.
    Date(Timestamp),
}

impl Expiry {
    /// When it is due for an object that was stored then.
    pub(super) fn due(self, stored: Timestamp) -> Timestamp {
        match self {
            Self::Days(days) => after(stored, days),
            Self::Date(date) => date,
        }
    }
}

/// What happens to what was overwritten or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Noncurrent {
    /// How long it is kept.
    pub(super) days: i64,
    /// How many of the newest are kept longer.
    pub(super) newer: usize,
}

/// The midnight (UTC) that follows so many days.
pub(super) fn after(since: Timestamp, days: i64) -> Timestamp {
    let days = since.secs().div_euclid(DAY_SECS).saturating_add(days).saturating_add(1);
    Timestamp::from_secs(days.saturating_mul(DAY_SECS), 0)
}

/// Which objects a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Filter {
    pub(super) prefix: String,
    tags: Tags,
    larger_than: Option<u64>,
    smaller_than: Option<u64>,
}

impl Filter {
    pub(super) fn is_about(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix.as_bytes())
    }

    pub(super) fn needs_size(&self) -> bool {
        self.larger_than.is_some() || self.smaller_than.is_some()
    }

    pub(super) fn fits(&self, size_bytes: u64) -> bool {
        self.larger_than.is_none_or(|size| size_bytes > size)
            && self.smaller_than.is_none_or(|size| size_bytes < size)
    }

    pub(super) fn needs_tags(&self) -> bool {
        !self.tags.is_empty()
    }

    pub(super) fn has_tags(&self, tags: &Tags) -> bool {
        self.tags.iter().all(|(key, value)| tags.get(key) == Some(value))
    }

    /// Whether it is about keys alone.
    pub(super) fn is_of_keys(&self) -> bool {
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
    /// A rule that was checked when it was set, if it is enabled.
    pub(super) fn enabled(rule: &dto::LifecycleRule) -> Option<Self> {
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
            removes_lone_marks: expiration
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
        // AWS's example: stored on the 15th at 10:30, three days, expires on the 19th at 00:00.
        assert_eq!(after(at(15, 10 * 3600 + 1800), 3), at(19, 0));
        assert_eq!(after(at(15, 0), 1), at(17, 0));
        assert_eq!(after(at(15, DAY_SECS - 1), 0), at(16, 0));
        assert_eq!(after(Timestamp(i64::MAX), i64::MAX), Timestamp(i64::MAX));
    }
}
