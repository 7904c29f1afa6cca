//! The process: its environment, memory, descriptors, logs, and its life in the background.

pub(crate) mod allocator;
pub(crate) mod daemon;
pub(crate) mod descriptors;
pub(crate) mod environment;
pub(crate) mod logging;
