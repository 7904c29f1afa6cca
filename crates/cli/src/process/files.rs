//! Small files that must survive a crash, or that only their owner may access.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Writes a line so that the file has the old or the new text after a crash, and the new one once this returns.
pub(crate) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    write_with_mode(path, text, 0o666)
}

/// Writes a file as [`write_durably`] does, but so that only its owner may access it.
pub(crate) fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    write_with_mode(path, text, 0o600)
}

/// Returns the text of a file that only its owner may access. Refuses a file whose permissions give its group or others any access.
pub(crate) fn read_secret(path: &Path) -> Result<String> {
    let shown = path.display();
    let mode = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.mode();
    if mode & 0o077 != 0 {
        bail!(
            "{shown} holds a secret, but its permissions allow access to others than its owner; run `chmod 600 {shown}`"
        );
    }
    fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))
}

/// Returns the first line of a file as [`read_secret`] reads it, without surrounding spaces. An empty first line is an
/// error.
pub(crate) fn read_secret_line(path: &Path) -> Result<String> {
    let text = read_secret(path)?;
    match text.lines().next().map(str::trim) {
        Some(secret) if !secret.is_empty() => Ok(secret.to_owned()),
        _ => bail!("the first line of {0} is empty; write the secret there", path.display()),
    }
}

/// Opens a file for appending. If it is missing, creates it so that only its owner may access it.
pub(crate) fn open_to_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn write_with_mode(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let staged = path.with_extension("new");
    let mut options = OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(mode).open(&staged)?;
    writeln!(file, "{}", text.trim_end())?;
    file.sync_all()?;
    fs::rename(&staged, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}
