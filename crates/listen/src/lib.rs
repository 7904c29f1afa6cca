//! HTTP/1.1 connections that come in: taken, bounded in number and in time, and ended in good order.
//!
//! Owns the listener, TLS, and what an idle, a slow or a deaf client may hold.
//!
//! Refuses: to know what is asked for. Callers answer requests, and bound what a body may take.

mod listener;
mod stall;

pub use listener::{Limits, ListenError, Listener};
pub use stall::Stall;
