//! Trials of features: one after another, each within a time limit, all within the package's budget.
//!
//! Invariant: the thread that probes makes no call on the mount itself, so that a mount that hangs cannot stop it.

use super::Finding;
use harness::Stopwatch;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Time limits of trials.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrialLimits {
    /// Maximum duration of one trial.
    pub(crate) trial: Duration,
    /// Maximum duration of all trials of a package. Trials that have not begun by then are findings without an answer.
    pub(crate) package: Duration,
}

impl TrialLimits {
    /// Returns the limits for trials of this duration. A package gets the time of six trials that hang.
    pub(crate) fn of_trial(trial: Duration) -> Self {
        Self { trial, package: trial * 6 }
    }

    /// Returns the time after which a change must be visible elsewhere, of which two waits fit into a trial.
    pub(crate) fn visibility(&self) -> Duration {
        self.trial / 3
    }
}

/// The trials of a package.
pub(crate) struct Trials<'a> {
    pub(crate) limits: TrialLimits,
    /// Measures the time since the trials began.
    watch: Stopwatch,
    observe: &'a dyn Fn(&Finding),
    findings: Vec<Finding>,
}

impl<'a> Trials<'a> {
    /// Begins the budget. `observe` sees each finding as soon as it is made.
    pub(crate) fn new(limits: TrialLimits, observe: &'a dyn Fn(&Finding)) -> Self {
        Self { limits, watch: Stopwatch::start(), observe, findings: Vec::new() }
    }

    /// Tries a feature. A trial without an answer within the limit is a feature that does not work.
    pub(crate) fn run(
        &mut self,
        feature: &str,
        trial: impl FnOnce() -> Result<String, String> + Send + 'static,
    ) {
        let left = self.limits.package.saturating_sub(self.watch.elapsed());
        let tried = match left.is_zero() {
            true => Err(format!("not tried: the package took more than {} s", self.limits.package.as_secs())),
            false => within(self.limits.trial.min(left), trial),
        };
        let finding = Finding::of(feature, tried);
        (self.observe)(&finding);
        self.findings.push(finding);
    }

    /// Returns the findings in the order of the trials.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }
}

/// Calls `trial` in a thread of its own. A thread that hangs in a system call is abandoned; it ends with the mount.
fn within(
    limit: Duration,
    trial: impl FnOnce() -> Result<String, String> + Send + 'static,
) -> Result<String, String> {
    let (sender, end) = channel();
    thread::spawn(move || {
        let _ = sender.send(trial());
    });
    end.recv_timeout(limit).unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn hang() -> Result<String, String> {
        thread::sleep(Duration::from_secs(600));
        Ok(String::new())
    }

    #[test]
    fn a_package_that_hangs_in_every_feature_ends_with_its_budget() {
        let seen = RefCell::new(Vec::new());
        let observe = |finding: &Finding| seen.borrow_mut().push(finding.clone());
        let limits = TrialLimits { trial: Duration::from_secs(1), package: Duration::from_secs(2) };
        let mut trials = Trials::new(limits, &observe);
        trials.run("works", || Ok("3 ms".to_owned()));
        for name in ["hangs", "hangs, too", "late", "last"] {
            trials.run(name, hang);
        }
        let findings = trials.into_findings();
        assert_eq!(*seen.borrow(), findings);
        let texts: Vec<String> = findings.iter().map(|finding| finding.verdict.to_string()).collect();
        assert_eq!(texts[0], "yes: 3 ms");
        assert_eq!(texts[1], "no: no answer within 1 s");
        assert_eq!(texts[4], "no: not tried: the package took more than 2 s");
    }
}
