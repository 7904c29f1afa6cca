//! What hints do.
