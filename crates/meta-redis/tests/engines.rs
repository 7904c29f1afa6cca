//! The conformance suite for engines.

use crate::fixture::Volume;
use meta::{EngineError, conformance};
use meta_remote::RemoteOptions;
use std::sync::Arc;

#[test]
fn an_engine_conforms() {
    conformance::run(|log_cap| {
        let engine = Volume::new().try_open(RemoteOptions { log_cap, ..RemoteOptions::default() });
        Ok(Arc::new(engine.map_err(|error| EngineError::Unavailable(error.to_string()))?))
    })
    .unwrap();
}

/// All cases hold while other sessions may commit, too.
#[test]
fn an_engine_conforms_without_exclusive_access() {
    conformance::run(|log_cap| {
        let options = RemoteOptions { log_cap, is_exclusive: false, ..RemoteOptions::default() };
        let engine = Volume::new().try_open(options);
        Ok(Arc::new(engine.map_err(|error| EngineError::Unavailable(error.to_string()))?))
    })
    .unwrap();
}
