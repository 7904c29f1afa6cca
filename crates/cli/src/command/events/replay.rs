//! `tenon events replay`: posts messages of a file again.
//!
//! Invariant: a message is in the file, in the working copy next to it (`FILE.replaying`), or was accepted by the
//! receiver. A replay that is killed leaves both files. The next replay continues with them, so a message may be
//! posted twice.

use crate::command::flags::StoreFlags;
use crate::command::flags::views::SourceFlags;
use crate::command::output::print_line;
use crate::event_handler::feeds;
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::files;
use anyhow::{Context, Result, bail};
use clap::Args;
use events::{Authorization, DeadLetter, Message, NotADeadLetter, Outcome, Post};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How long a receiver may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a message is posted again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Maximum length of a line. Webhooks accept posts of 1 MiB, which are somewhat longer as a line.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Post the messages of a file again: dead letters, or messages recorded by `tenon events tail --record`.
///
/// Messages are posted in order, and removed from the file when they are accepted. Messages that cannot be read or
/// are refused stay. If the receiver does not answer for --retry-timeout, all remaining messages stay too.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// File of dead letters or recorded messages
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// URL of the receiver: a webhook source of a handler or a mount, or another receiver, like
    /// http://127.0.0.1:7000/minio
    #[arg(long, value_name = "URL")]
    to: String,
    /// Keep all messages in the file
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// Counts of messages by outcome.
#[derive(Debug, Default)]
struct Counts {
    /// Messages that the receiver took, and messages that stay in the file.
    sent: u64,
    stay: u64,
}

/// Why a message stays in the file.
enum Rejection {
    /// This message was not accepted; the next one is tried.
    Message(String),
    /// The receiver accepts no messages; the next ones are not tried.
    Receiver(String),
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        let context = ProcessContext::system()?;
        let (store, secret_file) = (self.store.settings(), self.sources.event_secret.as_deref());
        let access = feeds::source_access(secret_file, &store, None, None, &context)?;
        let authorization = access.secret.as_deref().map(Authorization::of).transpose()?;
        let post = Post::new(&self.to, authorization, store.ca_bundle.as_deref()).context("--to")?;
        let counts = runtime.block_on(self.replay(&post))?;
        let (Counts { sent, stay }, file) = (counts, self.file.display());
        match self.keep {
            true => print_line(&format!("{sent} sent, {stay} not sent; {file} is unchanged"))?,
            false => print_line(&format!("{sent} sent, {stay} left in {file}"))?,
        }
        Ok(if stay == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn replay(&self, post: &Post) -> Result<Counts> {
        let mut counts = Counts::default();
        if self.keep {
            let file = File::open(&self.file).with_context(|| self.cannot("read"))?;
            self.post_all(post, file, None, &mut counts).await?;
            return Ok(counts);
        }
        self.check_format()?;
        let mut working = self.file.clone().into_os_string();
        working.push(".replaying");
        let working = PathBuf::from(working);
        // Continue what an earlier replay left.
        let is_left = working.exists();
        if is_left {
            self.replay_file(post, &working, &mut counts).await?;
        }
        match fs::rename(&self.file, &working) {
            Ok(()) => self.replay_file(post, &working, &mut counts).await?,
            Err(error) if error.kind() == ErrorKind::NotFound && is_left => {}
            Err(error) => return Err(error).with_context(|| self.cannot("read")),
        }
        Ok(counts)
    }

    /// Refuses a file whose first line cannot be a message: it is no JSON object.
    fn check_format(&self) -> Result<()> {
        let Ok(file) = File::open(&self.file) else { return Ok(()) };
        let mut line = Vec::new();
        BufReader::new(file)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .with_context(|| self.cannot("read"))?;
        match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&line) {
            Err(_) if !line.is_empty() => {
                bail!("{} is not a file of messages: {NotADeadLetter}", self.file.display())
            }
            _ => Ok(()),
        }
    }

    /// Posts the messages of the working copy. Those that stay are appended to the original file.
    async fn replay_file(&self, post: &Post, working: &Path, counts: &mut Counts) -> Result<()> {
        let file = File::open(working).with_context(|| self.cannot("read"))?;
        if file.try_lock().is_err() {
            bail!(
                "{} is being replayed by another process; wait until that process has ended",
                self.file.display()
            );
        }
        let mut back = files::open_to_append(&self.file)?;
        self.post_all(post, file, Some(&mut back), counts).await?;
        back.sync_all().with_context(|| self.cannot("write"))?;
        fs::remove_file(working).with_context(|| self.cannot("write"))?;
        if back.metadata()?.len() == 0 {
            fs::remove_file(&self.file).ok();
        }
        Ok(())
    }

    /// Posts all messages of `file`. Those that stay are counted, and appended to `back` if it is given.
    async fn post_all(
        &self,
        post: &Post,
        file: File,
        mut back: Option<&mut File>,
        counts: &mut Counts,
    ) -> Result<()> {
        let (mut lines, mut number, mut is_unavailable) = (BufReader::new(file), 0, false);
        loop {
            let mut line = Vec::new();
            lines
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
                .with_context(|| self.cannot("read"))?;
            if line.is_empty() {
                return Ok(());
            }
            number += 1;
            if !is_unavailable {
                match self.post_one(post, &line).await {
                    Ok(()) => {
                        counts.sent += 1;
                        continue;
                    }
                    Err(Rejection::Message(why)) => eprintln!("tenon: line {number}: {why}"),
                    Err(Rejection::Receiver(why)) => {
                        eprintln!("tenon: line {number}: {why}; all remaining messages stay");
                        is_unavailable = true;
                    }
                }
            }
            counts.stay += 1;
            if let Some(back) = &mut back {
                if !line.ends_with(b"\n") {
                    line.push(b'\n');
                }
                back.write_all(&line).with_context(|| self.cannot("write"))?;
            }
        }
    }

    async fn post_one(&self, post: &Post, line: &[u8]) -> Result<(), Rejection> {
        let message = DeadLetter::message(line).map_err(|error| Rejection::Message(error.to_string()))?;
        let read = self.sources.event_dialect.read(&message, &mut |_| {});
        read.map_err(|error| Rejection::Message(format!("the message cannot be read: {error}")))?;
        self.send(post, &message).await
    }

    async fn send(&self, post: &Post, message: &Message) -> Result<(), Rejection> {
        let began = Instant::now();
        loop {
            match post.send(message, ANSWER_TIMEOUT).await {
                Outcome::Taken => return Ok(()),
                Outcome::Refused(status) => return Err(self.refused(status.as_u16())),
                Outcome::Failed(why) if began.elapsed() >= self.store.retry_timeout => {
                    return Err(Rejection::Receiver(format!("{} does not accept it: {why}", self.to)));
                }
                Outcome::Failed(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Interprets a refusal. Status 401, 403, 404 and 405 mean that the receiver accepts no messages at all.
    fn refused(&self, status: u16) -> Rejection {
        let why = format!("{} answers {status}", self.to);
        if matches!(status, 401 | 403 | 404 | 405) {
            Rejection::Receiver(why)
        } else {
            Rejection::Message(why)
        }
    }

    /// Returns the context of an error of the file.
    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} {}", self.file.display())
    }
}
