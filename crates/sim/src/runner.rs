//! How a world that tells its tale is lived through: one way for programs, for both sides, for the drive and for arrays.

use crate::trace::Trace;
use crate::{Failure, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A world of a seed.
pub(crate) trait SimulatedWorld: Sized {
    /// What kind of world it is.
    const KIND: &'static str;

    /// What there is in the beginning.
    fn create(seed: u64, trace: &Trace) -> Result<Self, String>;

    /// All that happens; an error where it is not as it must be.
    fn run(&mut self) -> Result<(), String>;

    /// How much has happened.
    fn steps(&self) -> u64;

    /// How often what happened.
    fn into_report(self) -> Report;
}

/// Lives through the world of a seed.
pub(crate) fn run_seed<W: SimulatedWorld>(seed: u64) -> Result<Report, Failure> {
    run_traced::<W>(seed, &Trace::default())
}

/// Everything that happens in the world of a seed, line by line.
pub(crate) fn trace<W: SimulatedWorld>(seed: u64) -> Vec<String> {
    let trace = Trace::default();
    // A failure is part of what is told.
    drop(run_traced::<W>(seed, &trace));
    trace.lines()
}

fn run_traced<W: SimulatedWorld>(seed: u64, trace: &Trace) -> Result<Report, Failure> {
    let fail = |step, what| Failure { world: W::KIND, seed, step, what: format!("{what}\n{}", trace.tail()) };
    let mut world = W::create(seed, trace).map_err(|what| fail(0, what))?;
    let lived = catch_unwind(AssertUnwindSafe(|| world.run()));
    match lived.unwrap_or_else(|_| Err("something panicked, see above".into())) {
        Ok(()) => Ok(world.into_report()),
        Err(what) => Err(fail(world.steps(), what)),
    }
}
