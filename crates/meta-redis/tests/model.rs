//! Comparison with the in-memory engine as a reference model.

use crate::fixture::Volume;
use meta_remote::RemoteOptions;
use sim::namespace::engine_model::{assert_same_answers, assert_same_namespace};

#[test]
fn random_calls_have_the_same_answers() {
    for seed in 0..12 {
        let volume = Volume::new();
        assert_same_answers(
            |log_cap| volume.open(RemoteOptions { log_cap, ..RemoteOptions::default() }),
            seed,
            150,
        );
    }
}

#[test]
fn a_namespace_behaves_the_same() {
    for seed in 0..12 {
        let volume = Volume::new();
        assert_same_namespace(
            |log_cap| volume.open(RemoteOptions { log_cap, ..RemoteOptions::default() }),
            seed,
            100,
        );
    }
}
