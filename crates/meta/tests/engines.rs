//! The conformance suite for engines, run on the in-memory engine.

use meta::{MemoryEngine, conformance};
use std::sync::Arc;

#[test]
fn the_memory_engine_conforms() {
    conformance::run(|cap| Ok(Arc::new(MemoryEngine::new(cap)))).unwrap();
}
