//! The console: web pages that show and change what a process of Tenon serves.
//!
//! Owns the pages, their style and script, sign-in sessions, and the figures of the last hour for plots. Pages are
//! rendered here; the script adds uploads with progress, previews while typing, and updates of live pages.
//!
//! Refuses: to access objects other than by requests to the S3 endpoint in the name of the user who signed in; to know
//! how the process works ([`Process`] is all that the pages know of it); to load anything from another server.
//!
//! Invariants: without a session only the sign-in page and the assets are shown; a request that changes something has a
//! session and its CSRF token, except for the one that signs in, and is refused if the browser says that it comes from
//! another site; text from outside is escaped by the templates; the memory for sessions, failed sign-ins and the points
//! of plots is bounded.

mod application;
mod assets;
mod display;
mod objects;
mod options;
mod pages;
mod plots;
mod process;
mod reply;
mod request;
mod router;
mod scrub_job;
mod server;
mod session;
mod sign_in_limit;

pub use options::ConsoleOptions;
pub use process::{
    Abilities, Batch, Conflict, Drive, Fact, Keep, Member, Process, RefusedChange, ScrubOutcome, Section,
    Side, Tone, View, Zone,
};
pub use server::Console;
