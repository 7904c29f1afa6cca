//! Receivers of what a verification produces: the records and ops of a run.

use meta::{EngineError, OpRecord, RunBuilder};

/// A receiver of the records of a run, ascending by key, and of its ops in order.
pub(crate) trait RunRows {
    /// Adds a record.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Adds the removal of a record.
    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError>;

    /// Adds an op.
    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError>;
}

/// A run of the engine that the batch is merged into.
pub(crate) struct EngineRun<'e>(pub(crate) Box<dyn RunBuilder<'e> + 'e>);

impl RunRows for EngineRun<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.0.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.0.delete(key)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        self.0.log(record)
    }
}
