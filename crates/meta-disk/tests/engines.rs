//! The conformance suite for engines, with and without a journal.

use crate::fixture::layer;
use crate::journaled::MemoryJournal;
use meta::{EngineError, conformance};
use meta_disk::{DiskEngine, EngineOptions, OpenError};
use std::path::Path;
use std::sync::Arc;

on_each_layer! {
    an_engine_conforms
    a_journaled_engine_conforms
}

fn assert_conforms(open: impl Fn(&Path, EngineOptions) -> Result<DiskEngine, OpenError>) {
    let folders = tempfile::tempdir().unwrap();
    let engines = std::cell::Cell::new(0);
    conformance::run(|log_cap| {
        engines.set(engines.get() + 1);
        let path = folders.path().join(engines.get().to_string());
        let engine = open(&path, EngineOptions { log_cap, layer: layer(), ..EngineOptions::default() });
        Ok(Arc::new(engine.map_err(|error| EngineError::Unavailable(error.to_string()))?))
    })
    .unwrap();
}

fn an_engine_conforms() {
    assert_conforms(DiskEngine::open);
}

fn a_journaled_engine_conforms() {
    assert_conforms(|path, options| {
        DiskEngine::open_journaled(path, options, Arc::new(MemoryJournal::default()), Vec::new())
    });
}
