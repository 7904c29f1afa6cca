//! Comparison with the in-memory engine as a reference model.

use crate::fixture::options;
use meta_disk::{DiskEngine, EngineOptions};
use sim::namespace::engine_model::{assert_same_answers, assert_same_namespace};

on_each_layer! {
    random_calls_have_the_same_answers
    a_namespace_behaves_the_same
}

fn random_calls_have_the_same_answers() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let open = |log_cap| DiskEngine::open(folder.path(), EngineOptions { log_cap, ..options() }).unwrap();
        assert_same_answers(open, seed, 150);
    }
}

fn a_namespace_behaves_the_same() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let open = |log_cap| DiskEngine::open(folder.path(), EngineOptions { log_cap, ..options() }).unwrap();
        assert_same_namespace(open, seed, 100);
    }
}
