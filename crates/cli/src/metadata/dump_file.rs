//! Dump files on disk. A file appears under its name complete or not at all.

use crate::metadata::now;
use anyhow::{Context, Result, bail};
use backup::About;
use backup::dump::{self, DumpReader};
use meta::Engine;
use std::fs::{self, File, OpenOptions};
use std::io::BufWriter;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Records between two updates of the progress.
const RECORDS_PER_UPDATE: u64 = 100_000;

/// Writes all records of an engine, as they are now, to a file that must not exist yet. Returns the number of records.
pub(crate) fn write(
    engine: &dyn Engine,
    about: About,
    path: &Path,
    mut on_progress: impl FnMut(u64),
) -> Result<u64> {
    if path.exists() {
        bail!("{} already exists; give another name", path.display());
    }
    let staged = staging_path(path)?;
    let write_to = |path: &Path| -> Result<u64> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let mut shown = 0;
        let records = dump::write(&*engine.snapshot()?, about, now(), BufWriter::new(&file), |records| {
            if records >= shown + RECORDS_PER_UPDATE {
                shown = records;
                on_progress(records);
            }
        })?;
        file.sync_all()?;
        Ok(records)
    };
    let written = write_to(&staged).and_then(|records| {
        // A hard link never replaces a file that was created meanwhile.
        fs::hard_link(&staged, path)?;
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())?;
        Ok(records)
    });
    let _ = fs::remove_file(&staged);
    written.with_context(|| format!("cannot write the dump {}", path.display()))
}

/// Returns the path under which a file is written until it is complete.
fn staging_path(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("the path {} has no file name", path.display()))?;
    let mut staged = std::ffi::OsString::from(".");
    staged.push(name);
    staged.push(format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(staged))
}

/// Opens a dump file.
pub(crate) fn open(path: &Path) -> Result<DumpReader<'static, File>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    DumpReader::open(file).with_context(|| format!("cannot use {}", path.display()))
}
