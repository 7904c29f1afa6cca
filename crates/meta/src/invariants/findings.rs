//! The violations that a check has found so far.

use super::Violation;
use crate::codec::DecodeError;
use std::collections::BTreeMap;

/// Violations of one invariant that are described. Further ones are only counted, so that memory is bounded.
const DESCRIBED_MAX: u64 = 1000;

/// Violations, in the order in which they were found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    violations: Vec<Violation>,
    /// Number of violations of each invariant.
    counts: BTreeMap<u32, u64>,
}

impl Findings {
    /// Adds a violation of the invariant with a number.
    pub(super) fn report(&mut self, number: u32, what: String) {
        let count = self.counts.entry(number).or_default();
        *count += 1;
        if *count <= DESCRIBED_MAX {
            self.violations.push(Violation { number, what });
        }
    }

    /// Adds a record that cannot be decoded.
    pub(super) fn report_undecodable(&mut self, key: &[u8], error: &DecodeError) {
        self.report(14, format!("the record of key {}: {error}", key.escape_ascii()));
    }

    /// Returns the violations, in the order of the invariants' numbers.
    pub(super) fn into_violations(self) -> Vec<Violation> {
        let mut violations = self.violations;
        for (number, count) in self.counts {
            if count > DESCRIBED_MAX {
                let what = format!("{} further violations", count - DESCRIBED_MAX);
                violations.push(Violation { number, what });
            }
        }
        violations.sort_by_key(|violation| violation.number);
        violations
    }
}
