//! The whole chain of events with real parts: an S3 server that notifies a broker of changes in its buckets, event
//! handlers in processes of their own, and their clients, including mounts.
//!
//! Processes die, connections are cut, and events are repeated and reordered. In the end every view must show what
//! its rules select from a listing. `TENON_SEEDS` is the number of seeds that each test runs.

mod chain_test;
mod clients;
mod post_relay;
mod rules;
pub(crate) mod tcp_proxy;
mod transport;

use chain_test::{ChainTest, Setting, run_seed};
use transport::Kind;

#[expect(clippy::disallowed_methods, reason = "TENON_SEEDS says how long the tests may take")]
fn run_seeds(setting: &Setting) {
    let count: u64 = std::env::var("TENON_SEEDS").map_or(1, |count| count.parse().unwrap());
    (0..count).for_each(|seed| run_seed(setting, seed));
}

const ONE: &[&str] = &[""];
const TWO: &[&str] = &["", ""];
const HALVES: &[&str] = &["1/2", "2/2"];

#[test]
fn s279_through_jetstream() {
    run_seeds(&Setting { transport: Kind::JetStream, handlers: TWO, mounts: 1, phases: 1, steps: 160 });
}

#[test]
fn s279_through_lists_of_redis() {
    run_seeds(&Setting { transport: Kind::RedisList, handlers: TWO, mounts: 0, phases: 1, steps: 160 });
}

#[test]
fn s279_through_a_stream_of_redis() {
    run_seeds(&Setting { transport: Kind::RedisStream, handlers: HALVES, mounts: 1, phases: 1, steps: 160 });
}

#[test]
fn s279_through_amqp() {
    run_seeds(&Setting { transport: Kind::Amqp, handlers: TWO, mounts: 1, phases: 1, steps: 160 });
}

#[test]
fn s279_through_kafka() {
    run_seeds(&Setting { transport: Kind::Kafka, handlers: ONE, mounts: 0, phases: 2, steps: 100 });
}

#[test]
fn s279_through_beanstalkd() {
    run_seeds(&Setting { transport: Kind::Beanstalkd, handlers: HALVES, mounts: 1, phases: 2, steps: 100 });
}

#[test]
fn s279_through_webhooks() {
    run_seeds(&Setting { transport: Kind::Webhook, handlers: TWO, mounts: 1, phases: 2, steps: 100 });
}

/// boto3 changes objects under load while one handler dies. The remaining handlers must receive all events.
fn lose_a_handler_under_load(setting: &Setting, lost: usize) {
    let mut test = ChainTest::new(setting, 7);
    let load = test.load(400);
    (0..20).for_each(|_| test.update_clients());
    test.lose_handler(lost);
    load.join().unwrap();
    test.settle();
    test.end();
}

#[test]
fn s280_one_of_three_handlers_of_all_objects_dies_under_load() {
    let handlers = &["", "", ""];
    let setting = Setting { transport: Kind::JetStream, handlers, mounts: 1, phases: 1, steps: 0 };
    lose_a_handler_under_load(&setting, 0);
}

#[test]
fn s280_one_of_two_handlers_of_a_third_dies_under_load() {
    let handlers = &["1/3", "2/3", "3/3", "1/3", "2/3", "3/3"];
    let setting = Setting { transport: Kind::RedisStream, handlers, mounts: 1, phases: 1, steps: 0 };
    lose_a_handler_under_load(&setting, 1);
}
