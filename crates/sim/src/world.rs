//! The list of worlds, and what a run of one returns: a report or a failure.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of world: its name, and the function that runs the world of a seed.
pub type World = (&'static str, fn(u64) -> Result<Report, Failure>);

/// Every kind of world.
pub const WORLDS: &[World] = &[
    ("namespace", crate::namespace::world),
    ("backup", crate::metadata_backup::world),
    ("batches", crate::batches::world),
    ("files", crate::files::world),
    ("dual", crate::dual::world),
    ("sessions", crate::sessions::world),
    ("drive", crate::drive::world),
    ("array", crate::drive::world_of_arrays),
    ("pool", crate::drive::world_of_pools),
];

/// Counts of events by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report(BTreeMap<&'static str, u64>);

impl Report {
    /// Counts an event once.
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    /// Counts an event several times.
    pub fn add_count(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// Returns the count of an event.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Report) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&counts.join(", "))
    }
}

/// A difference between a layer and its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of world.
    pub world: &'static str,
    /// The seed to run again.
    pub seed: u64,
    /// The step at which the difference was found.
    pub step: u64,
    /// The difference, and the end of the trace.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { world, seed, step, what } = self;
        write!(
            f,
            "{world} world, seed {seed}, step {step}: {what}\nto repeat: cargo run -p sim -- {world} --seed {seed}"
        )
    }
}

impl std::error::Error for Failure {}
