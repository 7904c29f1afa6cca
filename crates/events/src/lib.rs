//! Events about objects: published to subscribers and webhooks, and received from sources.
//!
//! Owns [`ObjectEvent`], the order of a key's events ([`Sequencer`]), AWS's event format ([`aws`]), and two ways of
//! publishing: subscribers in this process ([`Channel`]) and receivers behind a URL ([`Webhook`]). For receiving it
//! owns the trait of sources ([`Source`]) and the source to which others post ([`WebhookSource`]), how messages are
//! parsed ([`Dialect`]), what they say ([`Hint`]), how hints reach their consumers ([`Feed`], [`Sink`]), and the
//! messages that were given up ([`DeadLetter`]). Clients of brokers and queues are in the crate `sources`.
//!
//! Refuses to know who makes events or which destination wants them, and to wait for a subscriber or a receiver.
//!
//! Invariants: an event is a hint, which may arrive late or twice; only the object itself is the truth. A later event of a key has a
//! greater [`Sequence`]. A subscriber that lost events is told so. Every queue is bounded.

pub mod aws;
mod channel;
mod dead_letter;
mod dialect;
mod event;
mod feed;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod hint;
mod sequence;
mod source;
mod webhook;

pub use channel::{Channel, ChannelItem, Subscription};
pub use dead_letter::{DeadLetter, NotADeadLetter};
pub use dialect::{Dialect, DialectError};
pub use event::{Described, EventKind, ObjectEvent};
pub use feed::{Feed, FeedCounts, FeedStatus, Filter, Sink, SinkError, Wanted};
pub use hint::{ChangeKind, Hint, ObjectDescription, Order};
pub use sequence::{Sequence, Sequencer};
pub use source::{Message, Source, SourceError};
pub use webhook::{
    Authorization, Notice, Outcome, Post, Webhook, WebhookConfig, WebhookCounts, WebhookError, WebhookSource,
};
