//! The support file: a tar archive (POSIX.1-2017, pax, "ustar Interchange Format") compressed by zstd.
//!
//! The file has no secrets: no value of an environment variable, no file of credentials or users. Only the ends of logs are in it,
//! and logs never contain secrets.

use super::finding::Finding;
use super::mounts::ANSWER_TIMEOUT;
use crate::control::client::Client;
use crate::process::{VERSION, environment};
use crate::state::registry::Registry;
use anyhow::{Context as _, Result};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Number of bytes of the end of each log that are in the file.
const LOG_BYTES: u64 = 1 << 20;
/// Files that describe the machine: its kernel, memory, limits, load and distribution.
const KERNEL_FILES: [&str; 5] =
    ["/proc/version", "/proc/meminfo", "/proc/self/limits", "/proc/loadavg", "/etc/os-release"];
/// Beginnings of the names of environment variables that Tenon reads. The file has the names, and never the values.
const VARIABLE_PREFIXES: [&str; 3] = ["AWS_", "TENON_", "XDG_"];

/// Writes the file, readable by its owner only.
pub(super) fn write(path: &Path, findings: &[Finding]) -> Result<()> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    let mut archive = Archive(zstd::Encoder::new(file, 3)?);
    archive.add("version", VERSION.as_bytes())?;
    let lines: Vec<String> = findings.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    archive.add("findings.json", lines.join("\n").as_bytes())?;
    let names = environment::names();
    let known = names.iter().filter(|name| VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    archive.add("environment-names", known.cloned().collect::<Vec<_>>().join("\n").as_bytes())?;
    for source in KERNEL_FILES {
        let text = std::fs::read(source).unwrap_or_default();
        archive.add(&format!("kernel/{}", source.trim_start_matches('/').replace('/', "-")), &text)?;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let fuse: Vec<&str> = mounts.lines().filter(|line| line.contains(" - fuse")).collect();
    archive.add("kernel/mountinfo-fuse", fuse.join("\n").as_bytes())?;
    add_mounts(&mut archive)?;
    archive.finish()
}

/// Adds status, metrics and the end of the log of each mount that answers in time.
fn add_mounts(archive: &mut Archive) -> Result<()> {
    for (number, mount) in Registry::of_user().mounts().iter().enumerate() {
        // A mount that hangs is a reason to make a bundle, so it is left out after a short wait.
        let connected = Client::connect(mount).and_then(|client| client.with_timeout(ANSWER_TIMEOUT));
        let Ok(mut client) = connected else { continue };
        let Ok(status) = client.status() else { continue };
        archive.add(&format!("mounts/{number}/status.json"), &serde_json::to_vec_pretty(&status)?)?;
        let asked = client.ask(&crate::control::protocol::Request::Metrics { measure_secs: 0 }, |_| {});
        if let Ok(crate::control::protocol::Answer::Metrics { samples }) = asked {
            archive.add(&format!("mounts/{number}/metrics.json"), &serde_json::to_vec_pretty(&samples)?)?;
        }
        let log = status.log_file.as_ref().and_then(|log| end_of(Path::new(log)).ok());
        if let Some(log) = log {
            archive.add(&format!("mounts/{number}/log"), &log)?;
        }
    }
    Ok(())
}

/// Returns the last [`LOG_BYTES`] of a file, or all of a shorter one.
fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES)))?;
    let mut end = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut end)?;
    Ok(end)
}

/// An archive that is being written.
struct Archive(zstd::Encoder<'static, File>);

impl Archive {
    fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.0.write_all(&header(&format!("tenon-support/{name}"), bytes.len() as u64))?;
        self.0.write_all(bytes)?;
        self.0.write_all(&vec![0; bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len()])?;
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.0.write_all(&[0; 2 * BLOCK_BYTES])?;
        self.0.finish()?.sync_all().context("cannot write the file to the disk")
    }
}

const BLOCK_BYTES: usize = 512;

/// Returns the header of a file in a ustar archive, with a fixed time.
fn header(name: &str, len: u64) -> [u8; BLOCK_BYTES] {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{len:011o}\0"));
    put(136, "00000000000\0");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
