//! Each target's corpus and a short run of unguided mutations: inputs that once broke a target must not break it again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fuzz::{TARGETS, corpus};
use std::path::Path;
use std::time::Duration;
use store::{Entropy, SystemClock};

/// Time budget of each target.
const BUDGET: Duration = Duration::from_secs(2);

#[test]
fn no_corpus_input_and_no_mutation_breaks_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for target in TARGETS {
        let kept = corpus::read(&corpus::folder(root), target.name).unwrap();
        assert!(!kept.is_empty(), "{} has no corpus", target.name);
        let outcome = fuzz::run(target, &kept, BUDGET, &Entropy::new(7), &SystemClock);
        let failure =
            outcome.broken.map(|(input, failure)| format!("{failure}, by {}", input.escape_ascii()));
        assert_eq!(failure, None, "{} is broken", target.name);
    }
}
