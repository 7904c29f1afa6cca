//! The suite of the engine seam.

use meta::{EngineError, conformance};
use meta_rocks::{RocksEngine, RocksOptions};
use std::sync::Arc;

#[test]
fn the_rocksdb_engine_conforms() {
    let folders = tempfile::tempdir().unwrap();
    let made = std::cell::Cell::new(0);
    conformance::run(|log_cap| {
        made.set(made.get() + 1);
        let path = folders.path().join(made.get().to_string());
        let options = RocksOptions { log_cap, ..RocksOptions::default() };
        let engine =
            RocksEngine::open(&path, options).map_err(|e| EngineError::Unavailable(e.to_string()))?;
        Ok(Arc::new(engine))
    })
    .unwrap();
}
