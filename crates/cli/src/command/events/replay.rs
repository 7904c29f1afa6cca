//! `tenon events replay`: messages that were kept in a file, posted again.
//!
//! Invariant: a message is in the file, in the one beside it that is being worked at, or it was taken. Who is killed leaves both files; the
//! next replay goes on with them, so that a message may be posted twice.

use crate::bucket::World;
use crate::command::object::print_line;
use crate::feeding;
use crate::flags::{SourceFlags, StoreFlags};
use crate::state;
use anyhow::{Context, Result, bail};
use clap::Args;
use events::{Authorization, Letter, Message, NoLetter, Outcome, Post};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// How long a receiver may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// Before a message is posted again.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest line that is read; webhooks take posts of 1 MiB, which is somewhat more as a line.
const LINE_BYTES_MAX: u64 = 8 << 20;

/// Post the messages of a file again: dead letters, or what `tenon events tail --record` kept.
///
/// They go in their order, and what is taken leaves the file. What cannot be read or is refused stays, and so does all the rest once nobody
/// answers for --retry-timeout.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A file of dead letters, or of recorded messages
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who takes them: a webhook source of a handler or a mount, or another receiver, like http://127.0.0.1:7000/minio
    #[arg(long, value_name = "URL")]
    to: String,
    /// Leave everything in the file
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    store: StoreFlags,
}

/// What came of it.
#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    stay: u64,
}

/// Why a message stays.
enum Stays {
    /// The next may go.
    Alone(String),
    /// Nobody takes any.
    All(String),
}

impl Replay {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        let world = World::real()?;
        let access = feeding::access(&self.sources, &self.store, None, None, &world)?;
        let authorization = access.secret.as_deref().map(Authorization::of).transpose()?;
        let post = Post::new(&self.to, authorization, self.store.ca_bundle.as_deref()).context("--to")?;
        let counts = runtime.block_on(self.replay(&post))?;
        let (Counts { sent, stay }, file) = (counts, self.file.display());
        match self.keep {
            true => print_line(&format!("{sent} sent, {stay} not; {file} is as it was"))?,
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
        self.must_be_messages()?;
        let mut beside = self.file.clone().into_os_string();
        beside.push(".replaying");
        let beside = PathBuf::from(beside);
        // First what an earlier replay left.
        let is_left = beside.exists();
        if is_left {
            self.move_on(post, &beside, &mut counts).await?;
        }
        match fs::rename(&self.file, &beside) {
            Ok(()) => self.move_on(post, &beside, &mut counts).await?,
            Err(error) if error.kind() == ErrorKind::NotFound && is_left => {}
            Err(error) => return Err(error).with_context(|| self.cannot("read")),
        }
        Ok(counts)
    }

    /// Another file is not touched.
    fn must_be_messages(&self) -> Result<()> {
        let Ok(file) = File::open(&self.file) else { return Ok(()) };
        let mut line = Vec::new();
        BufReader::new(file)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .with_context(|| self.cannot("read"))?;
        match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&line) {
            Err(_) if !line.is_empty() => bail!("{} is no file of messages: {NoLetter}", self.file.display()),
            _ => Ok(()),
        }
    }

    /// Posts what a file has; what stays goes back to where it was.
    async fn move_on(&self, post: &Post, beside: &Path, counts: &mut Counts) -> Result<()> {
        let file = File::open(beside).with_context(|| self.cannot("read"))?;
        if file.try_lock().is_err() {
            bail!("{} is being replayed by somebody else", self.file.display());
        }
        let mut back = state::open_to_append(&self.file)?;
        self.post_all(post, file, Some(&mut back), counts).await?;
        back.sync_all().with_context(|| self.cannot("write"))?;
        fs::remove_file(beside).with_context(|| self.cannot("write"))?;
        if back.metadata()?.len() == 0 {
            fs::remove_file(&self.file).ok();
        }
        Ok(())
    }

    async fn post_all(
        &self,
        post: &Post,
        file: File,
        mut back: Option<&mut File>,
        counts: &mut Counts,
    ) -> Result<()> {
        let (mut lines, mut number, mut nobody) = (BufReader::new(file), 0, false);
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
            if !nobody {
                match self.post_one(post, &line).await {
                    Ok(()) => {
                        counts.sent += 1;
                        continue;
                    }
                    Err(Stays::Alone(why)) => eprintln!("tenon: line {number}: {why}"),
                    Err(Stays::All(why)) => {
                        eprintln!("tenon: line {number}: {why}; the rest stays, too");
                        nobody = true;
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

    async fn post_one(&self, post: &Post, line: &[u8]) -> Result<(), Stays> {
        let message = Letter::message(line).map_err(|error| Stays::Alone(error.to_string()))?;
        let read = self.sources.event_dialect.read(&message, &mut |_| {});
        read.map_err(|error| Stays::Alone(format!("it cannot be read: {error}")))?;
        self.send(post, &message).await
    }

    async fn send(&self, post: &Post, message: &Message) -> Result<(), Stays> {
        let began = Instant::now();
        loop {
            match post.send(message, ANSWER_WITHIN).await {
                Outcome::Taken => return Ok(()),
                Outcome::Refused(status) => return Err(self.refused(status.as_u16())),
                Outcome::Failed(why) if began.elapsed() >= self.store.retry_timeout => {
                    return Err(Stays::All(format!("{} does not take it: {why}", self.to)));
                }
                Outcome::Failed(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// A receiver to which others may not post, or not there, takes nothing at all.
    fn refused(&self, status: u16) -> Stays {
        let why = format!("{} answers {status}", self.to);
        if matches!(status, 401 | 403 | 404 | 405) { Stays::All(why) } else { Stays::Alone(why) }
    }

    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} {}", self.file.display())
    }
}
