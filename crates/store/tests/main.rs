//! The crate seen from outside: every implementation of the seams against `store::conformance`.

mod memory;
