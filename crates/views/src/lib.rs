//! Directories that are queries: which objects a user sees in which directory.
//!
//! Owns rulesets: the syntax of a file of rulesets ([`read`]), and whether an object matches one
//! ([`Ruleset::matches`]). Owns also the event handler, which tracks the objects of all views ([`Handler`]), handlers
//! of parts of the objects ([`part`]), a handler in another process ([`remote`]), and the directories of one client
//! ([`tree`]). From `../shared/papers/delvefs.txt`, section III-D.
//!
//! Refuses: to know where hints come from; to read the time other than from the clock that it is given.
//!
//! Invariants: whether an object matches is a function of the ruleset, of the known state of the object, and of a
//! moment; [`Ruleset::explain`] and [`Ruleset::matches`] always agree.

mod changes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handler;
mod object_record;
mod packed_object;
pub mod part;
mod permitted;
pub mod remote;
mod ruleset;
pub mod tree;
mod yaml;

pub use changes::{Changes, Cursor, ObjectName, Shown, Unlisted, ViewError, ViewId, Views};
pub use handler::{
    Handler, HandlerConfig, HandlerError, HandlerParts, HandlerStats, HintCounts, HintSink, VERSIONS,
    ViewStats, stored_version,
};
pub use packed_object::PackedObject;
pub use permitted::Permitted;
pub use ruleset::bound::{SizeBound, TimeBound};
pub use ruleset::pattern::Pattern;
pub use ruleset::read::read;
pub use ruleset::write::write;
pub use ruleset::{ObjectState, Reason, Rule, Ruleset, Wanted, containers};
pub use yaml::{Place, Problem};
