//! The conformance suite for engines, with and without a journal.

use crate::journaled::MemoryJournal;
use meta::{EngineError, conformance};
use meta_rocks::{OpenError, RocksEngine, RocksOptions};
use std::path::Path;
use std::sync::Arc;

fn assert_conforms(open: impl Fn(&Path, RocksOptions) -> Result<RocksEngine, OpenError>) {
    let folders = tempfile::tempdir().unwrap();
    let engines = std::cell::Cell::new(0);
    conformance::run(|log_cap| {
        engines.set(engines.get() + 1);
        let path = folders.path().join(engines.get().to_string());
        let engine = open(&path, RocksOptions { log_cap, ..RocksOptions::default() });
        Ok(Arc::new(engine.map_err(|error| EngineError::Unavailable(error.to_string()))?))
    })
    .unwrap();
}

#[test]
fn the_rocksdb_engine_conforms() {
    assert_conforms(RocksEngine::open);
}

#[test]
fn a_journaled_engine_conforms() {
    assert_conforms(|path, options| {
        RocksEngine::open_journaled(path, options, Arc::new(MemoryJournal::default()), Vec::new())
    });
}
