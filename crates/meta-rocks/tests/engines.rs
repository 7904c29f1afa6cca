//! The suite of the engine seam, with and without a journal.

use crate::journaled::Kept;
use meta::{EngineError, conformance};
use meta_rocks::{OpenError, RocksEngine, RocksOptions};
use std::path::Path;
use std::sync::Arc;

fn conforms(open: impl Fn(&Path, RocksOptions) -> Result<RocksEngine, OpenError>) {
    let folders = tempfile::tempdir().unwrap();
    let made = std::cell::Cell::new(0);
    conformance::run(|log_cap| {
        made.set(made.get() + 1);
        let path = folders.path().join(made.get().to_string());
        let engine = open(&path, RocksOptions { log_cap, ..RocksOptions::default() });
        Ok(Arc::new(engine.map_err(|error| EngineError::Unavailable(error.to_string()))?))
    })
    .unwrap();
}

#[test]
fn the_rocksdb_engine_conforms() {
    conforms(RocksEngine::open);
}

#[test]
fn a_journaled_engine_conforms() {
    conforms(|path, options| {
        RocksEngine::open_journaled(path, options, Arc::new(Kept::default()), Vec::new())
    });
}
