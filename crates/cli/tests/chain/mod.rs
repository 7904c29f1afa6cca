//! The whole chain, of real parts: an S3 server that tells a broker what happens in its buckets, event handlers that are processes,
//! and their clients, mounts among them.
//!
//! Whatever dies, is cut off, comes twice or in another order, in the end every view is what its rules say of a listing.
//! `TENON_SEEDS` says how many worlds of each kind are lived through.

mod carrier;
mod clients;
pub(crate) mod line;
mod posts;
mod rules;
mod world;

use carrier::Kind;
use world::{Setting, World, live};

#[expect(clippy::disallowed_methods, reason = "a test is told how long it may take")]
fn worlds(setting: &Setting) {
    let count: u64 = std::env::var("TENON_SEEDS").map_or(1, |count| count.parse().unwrap());
    (0..count).for_each(|seed| live(setting, seed));
}

const ONE: &[&str] = &[""];
const TWO: &[&str] = &["", ""];
const HALVES: &[&str] = &["1/2", "2/2"];

#[test]
fn s279_through_jetstream() {
    worlds(&Setting { carrier: Kind::JetStream, handlers: TWO, mounts: 1, rests: 1, steps: 160 });
}

#[test]
fn s279_through_lists_of_redis() {
    worlds(&Setting { carrier: Kind::RedisList, handlers: TWO, mounts: 0, rests: 1, steps: 160 });
}

#[test]
fn s279_through_a_stream_of_redis() {
    worlds(&Setting { carrier: Kind::RedisStream, handlers: HALVES, mounts: 1, rests: 1, steps: 160 });
}

#[test]
fn s279_through_amqp() {
    worlds(&Setting { carrier: Kind::Amqp, handlers: TWO, mounts: 1, rests: 1, steps: 160 });
}

#[test]
fn s279_through_kafka() {
    worlds(&Setting { carrier: Kind::Kafka, handlers: ONE, mounts: 0, rests: 2, steps: 100 });
}

#[test]
fn s279_through_beanstalkd() {
    worlds(&Setting { carrier: Kind::Beanstalkd, handlers: HALVES, mounts: 1, rests: 2, steps: 100 });
}

#[test]
fn s279_through_webhooks() {
    worlds(&Setting { carrier: Kind::Webhook, handlers: TWO, mounts: 1, rests: 2, steps: 100 });
}

/// What boto3 does meanwhile is heard by whoever is left.
fn three_handlers_of_which_one_dies(setting: &Setting, lost: usize) {
    let mut world = World::new(setting, 7);
    let load = world.load(400);
    (0..20).for_each(|_| world.ask());
    world.lose_handler(lost);
    load.join().unwrap();
    world.rest();
    world.end();
}

#[test]
fn s280_one_of_three_handlers_of_everything_dies_under_load() {
    let handlers = &["", "", ""];
    let setting = Setting { carrier: Kind::JetStream, handlers, mounts: 1, rests: 1, steps: 0 };
    three_handlers_of_which_one_dies(&setting, 0);
}

#[test]
fn s280_one_of_two_handlers_of_a_third_dies_under_load() {
    let handlers = &["1/3", "2/3", "3/3", "1/3", "2/3", "3/3"];
    let setting = Setting { carrier: Kind::RedisStream, handlers, mounts: 1, rests: 1, steps: 0 };
    three_handlers_of_which_one_dies(&setting, 1);
}
