//! Quotas: what the whole volume, or the tree below a directory, may hold, and what it does.

/// An amount of what quotas limit, or a difference of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Lengths of files, holes included.
    pub bytes: i64,
    /// Inodes of every kind.
    pub files: i64,
}

impl Usage {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    /// What gives nothing together with this.
    pub fn negated(self) -> Self {
        Self { bytes: self.bytes.saturating_neg(), files: self.files.saturating_neg() }
    }
}

/// What may be held; `None`: any amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of lengths of files.
    pub bytes: Option<u64>,
    /// Of inodes.
    pub files: Option<u64>,
}

/// A quota: limits and what is used of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// The limits.
    pub limits: Limits,
    /// What is there now. More than a limit where that was set later.
    pub used: Usage,
}

impl Quota {
    /// Whether `more` has room. Less of something always has.
    pub fn has_room(&self, more: Usage) -> bool {
        let fits = |limit: Option<u64>, used: i64, more: i64| {
            let limit = limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX);
            more <= 0 || used.checked_add(more).is_some_and(|sum| sum <= limit)
        };
        fits(self.limits.bytes, self.used.bytes, more.bytes)
            && fits(self.limits.files, self.used.files, more.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_what_grows_alone() {
        let quota =
            Quota { limits: Limits { bytes: Some(10), files: None }, used: Usage { bytes: 12, files: 3 } };
        assert!(
            quota.has_room(Usage { bytes: 0, files: 9 }) && quota.has_room(Usage { bytes: -1, files: 0 })
        );
        assert!(!quota.has_room(Usage { bytes: 1, files: -1 }));
        let fits = Quota { used: Usage { bytes: 4, files: 0 }, ..quota };
        assert!(fits.has_room(Usage { bytes: 6, files: 0 }) && !fits.has_room(Usage { bytes: 7, files: 0 }));
    }
}
