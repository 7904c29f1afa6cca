//! How a world that tells its tale is lived through: one way for programs, for both sides, for the drive and for arrays.

use crate::trace::Tale;
use crate::{Failure, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A world of a seed.
pub(crate) trait Lives: Sized {
    /// What kind of world it is.
    const KIND: &'static str;

    /// What there is in the beginning.
    fn begin(seed: u64, tale: &Tale) -> Result<Self, String>;

    /// All that happens; an error where it is not as it must be.
    fn lives(&mut self) -> Result<(), String>;

    /// How much has happened.
    fn steps(&self) -> u64;

    /// How often what happened.
    fn reported(self) -> Report;
}

/// Lives through the world of a seed.
pub(crate) fn world<W: Lives>(seed: u64) -> Result<Report, Failure> {
    live::<W>(seed, &Tale::default())
}

/// Everything that happens in the world of a seed, line by line.
pub(crate) fn tale<W: Lives>(seed: u64) -> Vec<String> {
    let tale = Tale::default();
    // A failure is part of what is told.
    drop(live::<W>(seed, &tale));
    tale.whole()
}

fn live<W: Lives>(seed: u64, tale: &Tale) -> Result<Report, Failure> {
    let fail = |step, what| Failure { world: W::KIND, seed, step, what: format!("{what}\n{}", tale.end()) };
    let mut world = W::begin(seed, tale).map_err(|what| fail(0, what))?;
    let lived = catch_unwind(AssertUnwindSafe(|| world.lives()));
    match lived.unwrap_or_else(|_| Err("something panicked, see above".into())) {
        Ok(()) => Ok(world.reported()),
        Err(what) => Err(fail(world.steps(), what)),
    }
}
