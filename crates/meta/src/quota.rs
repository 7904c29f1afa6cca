//! Quotas: limits on the size of the whole volume or of the tree below a directory, and the current usage.

/// An amount of the resources that quotas limit, or the difference of two amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Sum of the lengths of files, holes included.
    pub bytes: i64,
    /// Number of inodes of every type.
    pub files: i64,
}

impl Usage {
    /// Returns the sum, saturating.
    pub fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    /// Returns the negated amount, saturating.
    pub fn negated(self) -> Self {
        Self { bytes: self.bytes.saturating_neg(), files: self.files.saturating_neg() }
    }
}

/// The limits of a quota. `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Maximum sum of the lengths of files.
    pub bytes: Option<u64>,
    /// Maximum number of inodes.
    pub files: Option<u64>,
}

/// A quota: its limits and the current usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// The limits of the tree.
    pub limits: Limits,
    /// The current usage. It may exceed a limit that was set later.
    pub used: Usage,
}

impl Quota {
    /// Returns whether the usage may grow by `growth` within the limits. A resource whose usage does not grow
    /// always fits.
    pub fn has_room(&self, growth: Usage) -> bool {
        let fits = |limit: Option<u64>, used: i64, growth: i64| {
            let limit = limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(i64::MAX);
            growth <= 0 || used.checked_add(growth).is_some_and(|sum| sum <= limit)
        };
        fits(self.limits.bytes, self.used.bytes, growth.bytes)
            && fits(self.limits.files, self.used.files, growth.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_applies_only_to_a_resource_that_grows() {
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
