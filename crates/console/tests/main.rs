//! Tests of the console: in headless Chromium, and by HTTP requests that no browser sends.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accessibility;
mod fake_process;
mod fixture;
mod hostile_names;
mod http_client;
mod objects;
mod pictures;
mod process_pages;
mod roles;
mod security;
