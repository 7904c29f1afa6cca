//! Rebuilds a device of an array in the process that has the drive open and continues to serve it.

use crate::bucket::ProcessContext;
use crate::bucket::devices::Devices;
use crate::command::drive::{EXIT_DAMAGED, is_blank};
use crate::command::progress::Progress;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Rebuild, Request, from_hex};
use crate::control::server::Replies;
use crate::serving::scrub::{self, Rate};
use crate::state::registry::LiveMount;
use anyhow::{Context, Result, bail};
use drive::Drive;
use drive::device::{FileDevice, Io};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks a process to rebuild a device of an array that it has open.
pub(crate) fn request_rebuild(
    mount: &LiveMount,
    devices: &Devices,
    path: &Path,
    (force, no_scrub): (bool, bool),
    rate: Option<u64>,
) -> Result<ExitCode> {
    let absolute = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    let request = Request::Rebuild(Rebuild {
        devices: devices.paths().map(|path| path.display().to_string()).collect(),
        device_hex: store::hex(absolute.as_os_str().as_bytes()),
        force,
        no_scrub,
        bytes_per_sec: Some(rate.unwrap_or(scrub::SERVED_BYTES_PER_SEC)),
    });
    let progress = Progress::start();
    let show = |answer: &Answer| match answer {
        Answer::Rebuilding { percent } => {
            progress.show(&format!("{percent}% rebuilt"));
            true
        }
        other => scrub::show_objects(other, &progress),
    };
    let mut client = Client::connect(mount)?;
    let answer = client.request_with_progress(&request, show)?;
    drop(progress);
    let Answer::Rebuilt { scrubbed, member, rows_lost } = answer else { return client.unexpected(&answer) };
    let code = scrubbed.as_ref().map_or(ExitCode::SUCCESS, scrub::print_outcome);
    Ok(print_outcome(path, member, rows_lost, code))
}

/// Prints the outcome. Returns the exit code.
pub(crate) fn print_outcome(path: &Path, member: usize, rows_lost: u64, mut code: ExitCode) -> ExitCode {
    if rows_lost > 0 {
        println!("{rows_lost} rows could not be computed: scrub the drive to see what is damaged");
        code = ExitCode::from(EXIT_DAMAGED);
    }
    println!("{} is now member {member} of the drive", path.display());
    code
}

/// Rebuilds a device for a client of the control socket.
pub(crate) async fn serve_rebuild(drives: Vec<Drive>, wanted: Rebuild, replies: &mut Replies) -> Answer {
    match rebuild(&drives, wanted, replies).await {
        Ok(answer) => answer,
        Err(error) => Answer::Failed { reason: format!("{error:#}") },
    }
}

async fn rebuild(drives: &[Drive], wanted: Rebuild, replies: &mut Replies) -> Result<Answer> {
    let arrays = drives.iter().filter_map(|drive| Some((drive, drive.array()?)));
    let mut arrays = arrays.filter(|(_, array)| wanted.devices.iter().any(|name| array.has_member(name)));
    let (drive, array) = arrays.next().context("the process has no drive on these devices")?;
    let path = from_hex(&wanted.device_hex).context("the request has no path")?;
    let path = PathBuf::from(OsString::from_vec(path));
    let name = path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string();
    if array.has_member(&name) {
        bail!("{name} is in sync: there is nothing to rebuild");
    }
    let (device, is_blank) = tokio::task::spawn_blocking(move || {
        let device = FileDevice::open(&path)?;
        let is_blank = is_blank(&device)?;
        anyhow::Ok((Io::open(device), is_blank))
    })
    .await??;
    if !wanted.force && !is_blank && !array.was_member(&device) {
        bail!("{name} is not empty; --force rebuilds the drive on it, and its contents are lost");
    }
    let rate = Rate::new(wanted.bytes_per_sec);
    let scrubbed = match array.spare() > 0 && !wanted.no_scrub {
        true => Some(scrub::scrub_with_progress(drive, &rate, replies).await?),
        false => None,
    };
    let (percent, entropy) = (AtomicU64::new(0), ProcessContext::system()?.entropy);
    let note = |done: u64, all: u64| percent.store(done * 100 / all, Ordering::Relaxed);
    let work = array.rebuild_at(name, &device, &entropy, &rate, note);
    let progress = || Answer::Rebuilding { percent: percent.load(Ordering::Relaxed) };
    let rebuilt = scrub::send_progress_until(work, replies, progress).await??;
    Ok(Answer::Rebuilt { scrubbed, member: rebuilt.member, rows_lost: rebuilt.rows_lost })
}
