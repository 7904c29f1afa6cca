//! The kept inputs of every target, and blind changes of them for a moment: what broke once stays mended.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fuzz::{TARGETS, corpus};
use std::path::Path;
use std::time::Duration;
use store::{Entropy, SystemClock};

/// For each target.
const BUDGET: Duration = Duration::from_secs(2);

#[test]
fn no_kept_input_and_no_change_of_one_breaks_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    for target in TARGETS {
        let kept = corpus::read(&corpus::folder(root), target.name).unwrap();
        assert!(!kept.is_empty(), "{} has no corpus", target.name);
        let outcome = fuzz::run(target, &kept, BUDGET, &Entropy::new(7), &SystemClock);
        let told = outcome.broken.map(|(input, wrong)| format!("{wrong}, by {}", input.escape_ascii()));
        assert_eq!(told, None, "{} is broken", target.name);
    }
}
