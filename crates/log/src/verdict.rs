//! The rule that tells the torn tail of a log from damage.
//!
//! A power cut tears only what no sync covered: there the log ends, because nothing behind the place was promised to
//! survive, and later records may refer to bytes that are gone. Where a sync covered the place, the disk returns
//! something else than what was written: reading goes on behind the damage, and the file is never truncated. If it is
//! not known what was synced, a whole frame behind the place makes it damage. No bytes are discarded without a copy if
//! frames are among them, or if they may have been synced.
//!
//! The decision record 0066 has the reasons. Every log of Tenon follows this rule, whatever its frames look like.

/// A place of a log at which no whole frame begins, with what is known about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPlace {
    /// Whether a sync covered the place; `None` if it is not known what was synced.
    pub is_synced: Option<bool>,
    /// Whether whole frames follow, or may follow, in this file or in a later one.
    pub is_followed: bool,
}

/// The cause of a bad place, which decides what becomes of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A power cut tore the log. The log ends here.
    Torn {
        /// Whether the bytes after the place are copied before the log is cut.
        must_be_kept: bool,
    },
    /// The disk lost what was written. Reading goes on at the next whole frame, and the file is kept as it is.
    Damaged,
}

impl BadPlace {
    /// Decides what a bad place is.
    pub fn verdict(self) -> Verdict {
        match self.is_synced.unwrap_or(self.is_followed) {
            true => Verdict::Damaged,
            false => Verdict::Torn { must_be_kept: self.is_followed || self.is_synced.is_none() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_no_sync_covered_is_cut_and_nothing_of_worth_without_a_copy() {
        let verdict = |is_synced, is_followed| BadPlace { is_synced, is_followed }.verdict();
        assert_eq!(verdict(Some(true), false), Verdict::Damaged);
        assert_eq!(verdict(Some(true), true), Verdict::Damaged);
        assert_eq!(verdict(None, true), Verdict::Damaged);
        assert_eq!(verdict(Some(false), false), Verdict::Torn { must_be_kept: false });
        assert_eq!(verdict(Some(false), true), Verdict::Torn { must_be_kept: true });
        assert_eq!(verdict(None, false), Verdict::Torn { must_be_kept: true });
    }
}
