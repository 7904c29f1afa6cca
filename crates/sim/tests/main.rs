//! Worlds by the hundred; `cargo run --release -p sim` lives through thousands in seconds.

use sim::{Report, WORLDS};

/// Also the proof that the faults happen: a simulator that never crashes proves nothing.
#[test]
fn namespace_worlds_agree_with_their_models() {
    let mut all = Report::default();
    for seed in 0..400 {
        match sim::namespace::world(seed) {
            Ok(report) => all.add(&report),
            Err(failure) => panic!("{failure}"),
        }
    }
    for what in
        ["ops", "ops in vain", "crashes", "lost replies", "lost commits", "refused commits", "checkpoints"]
    {
        assert!(all.of(what) > 150, "{what}: {all}");
    }
}

#[test]
fn one_seed_is_one_world() {
    for (name, world) in WORLDS {
        assert_eq!(world(42), world(42), "{name}");
    }
}
