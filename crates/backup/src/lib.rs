//! Copies of a volume's metadata outside of its engine: the backup in the bucket, and dump files.
//!
//! Owns the format of both (docs/format.md), the [`Exporter`] that keeps a backup current, [`restore`](restore()), the
//! verification of backups, and the fence that keeps two machines from continuing one backup. Does not decide when a pass
//! runs, does not know where content is stored, and never reads or changes content: the caller makes content durable in the
//! bucket before it exports the names of this content.
//!
//! A *lineage* is the backup of one state directory. It consists of *epochs*, each of which has snapshots of all
//! records (sorted tables and a manifest) and segments of the op log. Within an epoch all sequence numbers belong to one
//! history of commits.
//!
//! Invariants:
//! - a snapshot is complete if its manifest exists, because the manifest is written last;
//! - exported ops and snapshots contain only commits that are durable in the engine;
//! - a segment follows the previous one without a gap: `from` of each is at most `to` of the previous one;
//! - only the holder of the newest generation deletes parts of a backup.

mod document;
pub mod dump;
mod envelope;
mod error;
mod exporter;
mod fence;
mod fill;
mod identity_record;
mod keys;
mod listing;
mod manifest;
mod restore;
mod rotation;
mod segment;
mod snapshot;
mod stored_version;
mod verify;

pub use error::{Error, Result};
pub use exporter::{
    Cause, ChangeWatch, Exporter, ExporterStatus, Parts, Pass, Settings, exported_to, forget_history,
};
pub use fence::{Generation, check as check_holder, take_over};
pub use identity_record::identity_key;
pub use keys::{Epoch, Keys, Lineage};
pub use listing::{Listing, lineages, newest_lineage};
pub use manifest::About;
pub use restore::{Choice, MakeEngine, Progress, Restored, restore};
pub use stored_version::{VERSIONS, stored_versions};
pub use verify::{Verified, verify};
