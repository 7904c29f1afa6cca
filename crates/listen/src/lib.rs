//! A listener for HTTP/1.1 connections, with limits on their number and on the time that clients may take, and orderly shutdown.
//!
//! Owns the listening socket, TLS, and the limits for clients that are idle, slow or do not read.
//!
//! Refuses to interpret requests. Callers answer them, and limit the size of bodies.

mod listener;
mod stall;

pub use listener::{Limits, ListenError, Listener};
pub use stall::Stall;
