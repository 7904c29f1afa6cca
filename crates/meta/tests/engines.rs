//! The suite of the engine seam, over the engines of this crate.

use meta::{MemoryEngine, conformance};
use std::sync::Arc;

#[test]
fn the_memory_engine_conforms() {
    conformance::run(|cap| Ok(Arc::new(MemoryEngine::new(cap)))).unwrap();
}
