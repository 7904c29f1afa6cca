//! The log: the position of its head, and a reader of its frames.
//!
//! Knows neither index nor space: it tells which frame lies where, and whether it is intact. The engine applies the changes of a frame.

mod frame_reader;
mod log_state;

pub(crate) use frame_reader::{FrameReader, LaterFrame};
pub(crate) use log_state::{FramePlace, LogState, SharedLog};
