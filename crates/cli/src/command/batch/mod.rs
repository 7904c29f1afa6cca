//! `tenon batch`: puts subtrees of a mount into batch mode and merges them, lists, watches and discards batches, and serves them to clients with
//! tokens.

mod serve;
mod target;
mod token;
mod watch;

use crate::command::batch::serve::Serve;
use crate::command::batch::target::{Access, Target, is_url};
use crate::command::batch::token::Token;
use crate::command::batch::watch::Watch;
use crate::command::units;
use crate::control::batch_protocol::{BatchAnswer, BatchConflict, BatchInfo, BatchRequest, path_text};
use crate::state::registry::{Registry, resolve_mount_point};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Put a directory of a mount into batch mode: what programs change in it stays on this machine until all changes are merged in one step.
///
/// Only a volume whose objects are named by inode (`tenon format --naming inode`) can have batches. Other mounts and S3 clients see the
/// changes when the batch ends.
#[derive(Debug, Args)]
pub(crate) struct Batch {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    access: Access,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Put a directory into batch mode, or resume its open batch
    Begin {
        /// A directory in a mount, or its path in the volume behind the URL of a batch server
        #[arg(value_name = "DIR|URL")]
        dir: PathBuf,
    },
    /// Verify the changes in a directory and add them to the volume in one commit
    End {
        /// The directory, or its path in the volume behind the URL of a batch server
        #[arg(value_name = "DIR|URL")]
        dir: PathBuf,
        /// How long to wait for pending uploads
        #[arg(long, value_name = "TIME", default_value = "60s", value_parser = units::duration)]
        timeout: Duration,
        /// Return once the batch is submitted: it is verified and merged in the background, and accesses to the directory wait for this
        #[arg(long)]
        lazy: bool,
    },
    /// Serve the batches of a mount over HTTP to clients with tokens
    ///
    /// Clients put directories into batch mode, end, list, watch and discard batches by the URL of the server, each only in the directory of
    /// its token and below. Files are read and written through a mount. Runs until SIGTERM or Ctrl-C.
    ///
    /// With --primary, verifies the batches of another such server instead, so that its mount has less work when they are merged.
    Serve(Serve),
    /// Issue a token for a batch server, list the tokens, or revoke one
    Token(Token),
    /// List batches that are open, or have ended and are not discarded
    List {
        /// A volume, its mount point, or the URL of a batch server
        #[arg(value_name = "VOLUME|DIR|URL")]
        of: String,
        /// Print one JSON object per batch
        #[arg(long)]
        json: bool,
    },
    /// Show a batch
    Show {
        /// A volume, its mount point, or the URL of a batch server
        #[arg(value_name = "VOLUME|DIR|URL")]
        of: String,
        /// Id of the batch, as `list` shows it
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show the progress of a batch until it has ended: counters, and counts and sizes of its largest directories
    ///
    /// For a batch that has ended, shows what it was. The display changes in place on a terminal; elsewhere there is a line for each interval
    /// with changes.
    Watch(Watch),
    /// List the changes that a merge has refused, and the files that keep their bytes; retry or forget one
    Conflicts {
        /// A volume, its mount point, or the URL of a batch server
        #[arg(value_name = "VOLUME|DIR|URL")]
        of: String,
        /// Id of the batch, as `list` shows it
        id: String,
        /// Print one JSON object per change
        #[arg(long)]
        json: bool,
        /// Make the change with this number again; a file that was kept under another name gets the name that it should have had
        #[arg(long, value_name = "INDEX", conflicts_with = "json")]
        retry: Option<u64>,
        /// Remove the change with this number from the list; a file that was kept stays
        #[arg(long, value_name = "INDEX", conflicts_with_all = ["retry", "json"])]
        forget: Option<u64>,
    },
    /// Drop an open batch with all its changes, or forget one that has ended, with its list of refused changes
    Discard {
        /// A volume, its mount point, or the URL of a batch server
        #[arg(value_name = "VOLUME|DIR|URL")]
        of: String,
        /// Id of the batch, as `list` shows it
        id: String,
    },
}

impl Batch {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let access = &self.access;
        match self.action {
            Action::Begin { dir } => begin(&dir, access)?,
            Action::End { dir, timeout, lazy } => end(&dir, timeout, lazy, access)?,
            Action::Serve(serve) => serve.run(access)?,
            Action::Token(token) => token.run()?,
            Action::List { of, json } => {
                let batches = list(&Target::find(&of, access)?)?;
                if batches.is_empty() && !json {
                    println!("{of} has no batches");
                }
                for batch in &batches {
                    match json {
                        true => println!("{}", serde_json::to_string(batch)?),
                        false => println!("{}", summary(batch)),
                    }
                }
            }
            Action::Show { of, id, json } => {
                let batches = list(&Target::find(&of, access)?)?;
                let Some(batch) = batches.iter().find(|batch| batch.id == id) else {
                    bail!("{of} has no batch '{id}'; `tenon batch list {of}` lists the batches");
                };
                match json {
                    true => println!("{}", serde_json::to_string(batch)?),
                    false => print!("{}", detail(batch)),
                }
            }
            Action::Watch(watch) => watch.run(access)?,
            Action::Conflicts { of, id, retry: Some(index), .. } => {
                let made = resolve(&Target::find(&of, access)?, BatchRequest::Retry { id, index })?;
                println!("done: {made}");
            }
            Action::Conflicts { of, id, forget: Some(index), .. } => {
                let forgotten = resolve(&Target::find(&of, access)?, BatchRequest::Forget { id, index })?;
                println!("forgotten: {forgotten}");
            }
            Action::Conflicts { of, id, json, .. } => {
                print_conflicts(&Target::find(&of, access)?, &id, json)?
            }
            Action::Discard { of, id } => {
                match Target::find(&of, access)?.ask(BatchRequest::Discard { id: id.clone() })? {
                    BatchAnswer::Discarded => println!("batch {id} is discarded"),
                    other => return unexpected(&other),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the mount that contains a directory, its mount point, and the path inside it. The directory may be the mount point of a batch. For a URL,
/// returns the server and the path.
fn locate(dir: &Path, access: &Access) -> Result<(Target, PathBuf, Vec<u8>)> {
    if let Some(url) = dir.to_str().filter(|text| is_url(text)) {
        let (server, path) = Target::server_and_path(url, access)?;
        return Ok((server, PathBuf::new(), path.into_bytes()));
    }
    let dir = resolve_mount_point(dir)?;
    let (mount, inside) = Registry::of_user().containing(&dir)?;
    let depth = Path::new(std::ffi::OsStr::from_bytes(&inside)).components().count();
    let mount_point = dir.ancestors().nth(depth).unwrap_or(&dir).to_owned();
    Ok((Target::Mount(mount), mount_point, inside))
}

fn begin(dir: &Path, access: &Access) -> Result<()> {
    let (target, mount_point, inside) = locate(dir, access)?;
    let request = BatchRequest::Begin {
        path_hex: store::hex(&inside),
        mount_point_hex: store::hex(mount_point.as_os_str().as_bytes()),
    };
    match target.ask(request)? {
        BatchAnswer::Begun { id, resumed: false, expired } => {
            println!("{} is in batch mode: batch {id}", dir.display());
            if let Some(expired) = expired {
                println!(
                    "an earlier batch of the directory has expired, and nothing of it is here: {expired}"
                );
            }
        }
        BatchAnswer::Begun { id, resumed: true, .. } => {
            println!("{} is in batch mode again: batch {id}", dir.display());
        }
        other => return unexpected(&other),
    }
    Ok(())
}

fn end(dir: &Path, timeout: Duration, lazy: bool, access: &Access) -> Result<()> {
    let (target, _, inside) = locate(dir, access)?;
    let request = BatchRequest::End { path_hex: store::hex(&inside), patience_secs: timeout.as_secs(), lazy };
    match target.ask(request)? {
        BatchAnswer::Merged { id, accepted, refused, earlier, verifier } => {
            let already = if earlier { " already" } else { "" };
            println!("batch {id} is merged{already}: {accepted} changes added, {refused} refused");
            if let Some(verifier) = verifier {
                println!("it was verified by '{verifier}'");
            }
            if refused > 0 {
                println!("`tenon batch conflicts {target} {id}` lists the refused changes");
            }
        }
        BatchAnswer::Submitted { id } => {
            println!("batch {id} is submitted; `tenon batch list {target}` shows when it is merged");
        }
        other => return unexpected(&other),
    }
    Ok(())
}

fn list(target: &Target) -> Result<Vec<BatchInfo>> {
    match target.ask(BatchRequest::List)? {
        BatchAnswer::Batches { batches } => Ok(batches),
        other => unexpected(&other),
    }
}

/// Retries or forgets a refused change. Returns its description.
fn resolve(target: &Target, request: BatchRequest) -> Result<String> {
    match target.ask(request)? {
        BatchAnswer::Resolved { op } => Ok(op),
        other => unexpected(&other),
    }
}

fn print_conflicts(target: &Target, id: &str, json: bool) -> Result<()> {
    let mut from = 0;
    loop {
        let page = match target.ask(BatchRequest::Conflicts { id: id.to_owned(), from })? {
            BatchAnswer::Conflicts { conflicts } => conflicts,
            other => return unexpected(&other),
        };
        let Some(last) = page.last() else { break };
        for conflict in &page {
            match json {
                true => println!("{}", serde_json::to_string(conflict)?),
                false => println!("{}", conflict_line(conflict)),
            }
        }
        from = last.index + 1;
    }
    if from == 0 && !json {
        println!("batch {id} has no refused changes");
    }
    Ok(())
}

/// Returns the error for an answer that does not fit the request.
fn unexpected<T>(answer: &BatchAnswer) -> Result<T> {
    bail!("the mount gave an answer that does not fit: {answer:?}; is it another version of Tenon?")
}

fn summary(batch: &BatchInfo) -> String {
    let path = path_text(batch.path.as_deref());
    let refused = if batch.refused > 0 { format!(", {} refused", batch.refused) } else { String::new() };
    format!("{}  {:<9}  {}  {} changes{refused}  {path}", batch.id, batch.state, batch.began, batch.ops)
}

fn detail(batch: &BatchInfo) -> String {
    let end = match &batch.expired {
        Some(expired) => ("expired", expired.clone()),
        None => ("merged", batch.merged.clone().unwrap_or_else(|| "not yet".to_owned())),
    };
    let known =
        [("last change", &batch.last_change), ("expires", &batch.expires), ("not merged", &batch.failed)];
    let known = known.into_iter().filter_map(|(title, at)| Some((title, at.clone()?)));
    let lines = [
        ("batch", batch.id.clone()),
        ("directory", batch.path.as_deref().map_or("removed".to_owned(), |path| format!("/{path}"))),
        ("state", batch.state.clone()),
        ("began", batch.began.clone()),
        end,
        ("changes", batch.ops.to_string()),
        ("refused", batch.refused.to_string()),
    ];
    lines.into_iter().chain(known).map(|(title, text)| format!("{title:<16}{text}\n")).collect()
}

fn conflict_line(conflict: &BatchConflict) -> String {
    let kept = conflict.kept_as.as_ref().map_or(String::new(), |path| format!("; kept as /{path}"));
    format!("{}  {}: {}{kept}", conflict.index, conflict.op, conflict.why)
}
