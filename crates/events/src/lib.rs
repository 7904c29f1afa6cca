//! What happened to objects: told to whoever wants to hear it, and heard from whoever tells it.
//!
//! Owns the word [`ObjectEvent`], its order per key ([`Sequencer`]), AWS's way of writing it ([`aws`]), and the ways out:
//! subscribers in this process ([`Channel`]) and receivers behind a URL ([`Webhook`]). Of the way in it owns from where messages
//! come ([`Source`], [`open`]), how they are read ([`Dialect`]), what they say ([`Hint`]), and how it gets to whoever takes it ([`Feed`],
//! [`Sink`]).
//!
//! Refuses: to know who makes events, or which of them a destination wants; to wait for a subscriber or a receiver.
//!
//! Invariants: an event is a hint, which may come twice and late, and the object is the truth; of the events of one key a
//! later one has a greater [`Sequence`]; who lost events is told so; every queue is bounded.

pub mod aws;
mod channel;
mod dialect;
mod event;
mod feed;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod hint;
mod letter;
mod sequence;
mod source;
mod webhook;

pub use channel::{Channel, Heard, Subscription};
pub use dialect::{Dialect, DialectError};
pub use event::{Described, EventKind, ObjectEvent};
pub use feed::{Feed, FeedCounts, FeedStatus, Filter, Sink, SinkError, Wanted};
pub use hint::{Hint, Order, Said, What};
pub use letter::{Letter, NoLetter};
pub use sequence::{Sequence, Sequencer};
pub use source::{
    BrokerAccess, Login, Message, Source, SourceAccess, SourceError, WebhookSource, open, open_broker,
};
pub use webhook::{
    Authorization, Notice, Outcome, Post, Webhook, WebhookConfig, WebhookCounts, WebhookError,
};
