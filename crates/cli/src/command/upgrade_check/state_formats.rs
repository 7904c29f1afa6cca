//! The formats of a state directory.

use crate::command::upgrade_check::finding::Finding;
use crate::command::upgrade_check::formats;
use crate::metadata;
use crate::serving::batches;
use crate::state;
use meta_disk::StoredFormat;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories of the files of event handlers in a state directory: that of a mount, and that of a handler process.
const HANDLER_DIRS: [&str; 2] = ["views/handler", "views"];

/// Returns the findings in a state directory, which need not exist.
pub(super) fn find(root: &Path) -> Vec<Finding> {
    let mut found = engine(&metadata::engine_dir(root));
    let place = |path: &Path| path.display().to_string();
    let log = state::writeback_dir(root);
    let version = staging::writeback::stored_version(&log);
    found.extend(formats::writeback_log().examined(place(&log), version));
    for dir in subdirectories(&root.join(batches::BATCHES_DIR)) {
        found.extend(formats::batch().examined(place(&dir), batch::stored_version(&dir)));
    }
    for dir in HANDLER_DIRS.map(|dir| root.join(dir)) {
        found.extend(formats::event_handler().examined(place(&dir), views::stored_version(&dir)));
    }
    found
}

/// Returns the findings about the metadata engine in a directory.
fn engine(dir: &Path) -> Vec<Finding> {
    let place = dir.display().to_string();
    match StoredFormat::read(dir) {
        Ok(Some(StoredFormat { records, tables, .. })) => {
            let records = records.map(|found| formats::engine_records().found(&place, found.into()));
            let tables = tables.map(|found| formats::engine_tables().found(&place, found));
            records.into_iter().chain(tables).collect()
        }
        Ok(None) => Vec::new(),
        Err(error) => vec![formats::engine_records().unknown(place, error)],
    }
}

/// Returns the directories in a directory; none if it cannot be read.
fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}
