//! Tests of the engine, each over both table layers.

#![expect(clippy::unwrap_used, reason = "tests")]

/// Declares tests that run over each table layer.
macro_rules! on_each_layer {
    ($($test:ident)*) => {
        #[cfg(feature = "rocksdb")]
        mod on_rocksdb {
            $(#[test]
            fn $test() {
                crate::fixture::run_on(meta_disk::TableLayer::RocksDb, super::$test);
            })*
        }

        mod on_lsm {
            $(#[test]
            fn $test() {
                crate::fixture::run_on(meta_disk::TableLayer::Lsm, super::$test);
            })*
        }
    };
}

mod concurrent;
mod crash;
mod damage;
mod engines;
mod fixture;
mod journaled;
mod memory;
mod model;
mod reopen;
