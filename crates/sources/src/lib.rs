//! Clients of the brokers and queues that deliver events: beanstalkd, SQS, NATS, Redis, Kafka and AMQP.
//!
//! Owns the source of each URL scheme ([`open`], [`open_broker`]) and its settings ([`SourceAccess`], [`BrokerAccess`]).
//!
//! Refuses to know what a message says (`events::Dialect`) and how often a source is retried (`events::Feed`).

mod beanstalkd;
mod broker;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod open;
mod sqs;

pub use broker::{BrokerAccess, Login, open_broker};
pub use open::{SourceAccess, open};
