//! `tenon events tail`: what a source says, as it comes.

use crate::bucket::World;
use crate::command::object::print_line;
use crate::feeding;
use crate::flags::{SourceFlags, StoreFlags};
use crate::state;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use events::{Hint, Letter, Message, What};
use serde::Serialize;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::Timestamp;

/// Messages asked for at once.
const MESSAGES: usize = 64;

/// Show what a source of events says, as it comes.
///
/// What is shown stays in the source: it comes again to whoever reads it next, unless --take is given.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Source, like webhook://ADDRESS:PORT/PATH or beanstalkd://HOST/TUBE
    #[arg(value_name = "URL")]
    url: String,
    /// Take what is shown out of the source
    #[arg(long)]
    take: bool,
    /// Keep the messages at the end of this file, for `tenon events replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// End after so many messages
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    store: StoreFlags,
}

impl Tail {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        runtime.block_on(self.tail()).map(|()| ExitCode::SUCCESS)
    }

    async fn tail(&self) -> Result<()> {
        let world = World::real()?;
        let access = feeding::access(&self.sources, &self.store, None, None, &world)?;
        let mut source = events::open(&self.url, access).await.map_err(|error| anyhow!("{error}"))?;
        let mut record = self.record.as_deref().map(open_record).transpose()?;
        let mut left = self.count.unwrap_or(usize::MAX);
        while left > 0 {
            let messages = source.receive(MESSAGES.min(left)).await.map_err(|error| anyhow!("{error}"))?;
            messages.iter().try_for_each(|message| self.show(message))?;
            left -= messages.len().min(left);
            if let Some(file) = &mut record {
                let lines = messages.iter().flat_map(|message| self.kept(message, &world));
                file.write_all(&lines.collect::<Vec<_>>()).context("--record")?;
                // Before the source forgets them.
                file.sync_data().context("--record")?;
            }
            if self.take {
                source.acknowledge().await.map_err(|error| anyhow!("{error}"))?;
            }
        }
        Ok(())
    }

    fn kept(&self, message: &Message, world: &World) -> Vec<u8> {
        Letter::of(&self.url, None, message, world.clock.now()).line()
    }

    fn show(&self, message: &Message) -> Result<()> {
        let mut lines = Vec::new();
        let read = self.sources.event_dialect.read(message, &mut |hint| lines.push(self.line(&hint)));
        lines.into_iter().try_for_each(|line| print_line(&line?))?;
        match read {
            Ok(()) => Ok(()),
            // Whoever watches wants to know, and to go on.
            Err(error) => {
                eprintln!("tenon: a message cannot be read: {error}");
                Ok(())
            }
        }
    }

    fn line(&self, hint: &Hint<'_>) -> Result<String> {
        let shown = Shown::new(hint);
        if self.json {
            return Ok(serde_json::to_string(&shown)?);
        }
        let size = shown.size_bytes.map(|size| format!(" {size} bytes")).unwrap_or_default();
        let time = shown.time.unwrap_or_else(|| "-".to_owned());
        Ok(format!("{time} {:<7} s3://{}/{}{size}", shown.what, shown.bucket, shown.key))
    }
}

fn open_record(path: &Path) -> Result<File> {
    state::open_to_append(path).with_context(|| format!("--record: cannot write {}", path.display()))
}

/// A hint, for people and programs.
#[derive(Serialize)]
struct Shown<'h> {
    time: Option<String>,
    what: &'static str,
    bucket: &'h str,
    /// What is no UTF-8 is shown as a sign that stands for it.
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'h str>,
}

impl<'h> Shown<'h> {
    fn new(hint: &'h Hint<'_>) -> Self {
        let what = match hint.what {
            What::Stored => "stored",
            What::Removed => "removed",
            What::Changed => "changed",
            What::Read => "read",
        };
        Self {
            time: hint.time.and_then(time_text),
            what,
            bucket: &hint.bucket,
            key: String::from_utf8_lossy(&hint.key).into_owned(),
            size_bytes: hint.said.size_bytes,
            etag: hint.said.etag.as_deref(),
        }
    }
}

fn time_text(time: Timestamp) -> Option<String> {
    jiff::Timestamp::from_nanosecond(i128::from(time.0)).ok().map(|time| time.to_string())
}
