//! Runs the worlds that record a trace: files, dual, drive, array and pool.

use crate::trace::Trace;
use crate::{Failure, Report};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A simulated world that one seed determines.
pub(crate) trait SimulatedWorld: Sized {
    /// The kind of the world, as in the command line.
    const KIND: &'static str;

    /// Creates the initial state.
    fn create(seed: u64, trace: &Trace) -> Result<Self, String>;

    /// Runs the workload to its end. Returns an error where the system differs from the model.
    fn run(&mut self) -> Result<(), String>;

    /// Returns the number of steps so far.
    fn steps(&self) -> u64;

    /// Returns how often each event happened.
    fn into_report(self) -> Report;
}

/// Runs the world of a seed.
pub(crate) fn run_seed<W: SimulatedWorld>(seed: u64) -> Result<Report, Failure> {
    run_traced::<W>(seed, &Trace::default())
}

/// Runs the world of a seed and returns its trace.
pub(crate) fn trace<W: SimulatedWorld>(seed: u64) -> Vec<String> {
    let trace = Trace::default();
    // The trace shows a failure too.
    drop(run_traced::<W>(seed, &trace));
    trace.lines()
}

fn run_traced<W: SimulatedWorld>(seed: u64, trace: &Trace) -> Result<Report, Failure> {
    let fail = |step, what| Failure { world: W::KIND, seed, step, what: format!("{what}\n{}", trace.tail()) };
    let mut world = W::create(seed, trace).map_err(|what| fail(0, what))?;
    let lived = catch_unwind(AssertUnwindSafe(|| world.run()));
    match lived.unwrap_or_else(|_| Err("panicked; the message is above".into())) {
        Ok(()) => Ok(world.into_report()),
        Err(what) => Err(fail(world.steps(), what)),
    }
}
