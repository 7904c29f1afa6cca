//! `tenon events tail`: shows the events of a source as they arrive.

use crate::command::flags::StoreFlags;
use crate::command::flags::views::SourceFlags;
use crate::command::output::print_line;
use crate::event_handler::feeds;
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::files;
use crate::process::rfc3339::rfc3339_exact;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use events::{ChangeKind, DeadLetter, Hint, Message};
use serde::Serialize;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Messages requested at once.
const MESSAGES: usize = 64;

/// Show the events of a source as they arrive.
///
/// Shown messages stay in the source, and are delivered again to the next reader, unless --take is given.
#[derive(Debug, Args)]
pub(crate) struct Tail {
    /// Source, like webhook://ADDRESS:PORT/PATH or beanstalkd://HOST/TUBE
    #[arg(value_name = "URL")]
    url: String,
    /// Remove shown messages from the source
    #[arg(long)]
    take: bool,
    /// Append the messages to this file, for `tenon events replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Stop after this many messages
    #[arg(long, value_name = "COUNT")]
    count: Option<usize>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    sources: SourceFlags,
    #[command(flatten)]
    store: StoreFlags,
}

impl Tail {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        runtime.block_on(self.tail()).map(|()| ExitCode::SUCCESS)
    }

    async fn tail(&self) -> Result<()> {
        let context = ProcessContext::system()?;
        let (store, secret_file) = (self.store.settings(), self.sources.event_secret.as_deref());
        let access = feeds::source_access(secret_file, &store, None, None, &context)?;
        let mut source = sources::open(&self.url, access).await.map_err(|error| anyhow!("{error}"))?;
        let mut record = self.record.as_deref().map(open_record).transpose()?;
        let mut left = self.count.unwrap_or(usize::MAX);
        while left > 0 {
            let messages = source.receive(MESSAGES.min(left)).await.map_err(|error| anyhow!("{error}"))?;
            messages.iter().try_for_each(|message| self.show(message))?;
            left -= messages.len().min(left);
            if let Some(file) = &mut record {
                let lines = messages.iter().flat_map(|message| self.record_line(message, &context));
                file.write_all(&lines.collect::<Vec<_>>()).context("--record")?;
                // Sync before the source forgets the messages.
                file.sync_data().context("--record")?;
            }
            if self.take {
                source.acknowledge().await.map_err(|error| anyhow!("{error}"))?;
            }
        }
        Ok(())
    }

    fn record_line(&self, message: &Message, context: &ProcessContext) -> Vec<u8> {
        DeadLetter::of(&self.url, None, message, context.clock.now()).line()
    }

    fn show(&self, message: &Message) -> Result<()> {
        let mut lines = Vec::new();
        let read = self.sources.event_dialect.read(message, &mut |hint| lines.push(self.line(&hint)));
        lines.into_iter().try_for_each(|line| print_line(&line?))?;
        match read {
            Ok(()) => Ok(()),
            // Report the message, and continue with the next.
            Err(error) => {
                eprintln!("tenon: a message cannot be read: {error}");
                Ok(())
            }
        }
    }

    fn line(&self, hint: &Hint<'_>) -> Result<String> {
        let shown = HintLine::new(hint);
        if self.json {
            return Ok(serde_json::to_string(&shown)?);
        }
        let size = shown.size_bytes.map(|size| format!(" {size} bytes")).unwrap_or_default();
        let time = shown.time.unwrap_or_else(|| "-".to_owned());
        Ok(format!("{time} {:<7} s3://{}/{}{size}", shown.what, shown.bucket, shown.key))
    }
}

fn open_record(path: &Path) -> Result<File> {
    files::open_to_append(path).with_context(|| format!("--record: cannot write {}", path.display()))
}

/// A hint in the form in which it is printed.
#[derive(Serialize)]
struct HintLine<'h> {
    time: Option<String>,
    what: &'static str,
    bucket: &'h str,
    /// Bytes that are not UTF-8 are replaced.
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'h str>,
}

impl<'h> HintLine<'h> {
    fn new(hint: &'h Hint<'_>) -> Self {
        let what = match hint.kind {
            ChangeKind::Stored => "stored",
            ChangeKind::Removed => "removed",
            ChangeKind::Changed => "changed",
            ChangeKind::Read => "read",
        };
        Self {
            time: hint.time.and_then(rfc3339_exact),
            what,
            bucket: &hint.bucket,
            key: String::from_utf8_lossy(&hint.key).into_owned(),
            size_bytes: hint.object.size_bytes,
            etag: hint.object.etag.as_deref(),
        }
    }
}
