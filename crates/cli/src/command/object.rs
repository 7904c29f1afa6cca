//! `tenon object`: reads and writes objects of a volume, with the same stores and credentials as a mount.

use crate::bucket::Bucket;
use crate::bucket::stream_upload::{read_stream, store_stream};
use crate::command::flags::StoreFlags;
use crate::command::output::print_line;
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339_system;
use crate::volume::Volume;
use crate::volume::target::{split, split_key};
use anyhow::{Context, Result};
use bytes::Bytes;
use clap::{Args, Subcommand};
use futures_util::TryStreamExt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{Attributes, GetOptions, ListEntry, ListRequest, ListedObject, ObjectMeta, Pages, Precondition};

const PAGE_ENTRIES: usize = 1000;

/// Read and write objects of a volume directly.
#[derive(Debug, Args)]
pub(crate) struct Object {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List keys (a key that ends in / lists that directory)
    Ls(Ls),
    /// Describe an object
    Head(One),
    /// Write an object's bytes to a file or standard output
    Get(Transfer),
    /// Store a file or standard input as an object
    Put(Transfer),
    /// Remove an object
    Rm(One),
}

#[derive(Debug, Args)]
struct Ls {
    /// s3://bucket, file:///dir or an embedded volume, with an optional beginning of the keys. Tenon's own objects below .tenon/ are
    /// listed only if the beginning is .tenon/
    #[arg(value_name = "VOLUME[/PREFIX]")]
    target: String,
    /// List all keys below, not only one level
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct One {
    /// The object
    #[arg(value_name = "VOLUME/KEY")]
    target: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Transfer {
    /// The object
    #[arg(value_name = "VOLUME/KEY")]
    target: String,
    /// The file (standard input or output if not given)
    file: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// Print one JSON object per object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

impl Object {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let runtime = process::runtime()?;
        runtime.block_on(async {
            match self.action {
                Action::Ls(ls) => ls.run().await,
                Action::Head(one) => one.head().await,
                Action::Get(transfer) => transfer.get().await,
                Action::Put(transfer) => transfer.put().await,
                Action::Rm(one) => one.remove().await,
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Ls {
    async fn run(self) -> Result<()> {
        let (volume, prefix) = split(&self.target)?;
        let bucket = self.common.open(&volume).await?;
        let delimiter = (!self.recursive).then_some(b'/');
        let request = ListRequest {
            prefix: Bytes::from(prefix.clone()),
            delimiter,
            limit: PAGE_ENTRIES,
            ..ListRequest::default()
        };
        let mut pages = Pages::new(bucket.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            let mut shown = entries.iter().filter(|entry| is_reserved(&prefix) || !is_reserved(entry.text()));
            shown.try_for_each(|entry| print_line(&self.line(entry)))?;
        }
        Ok(())
    }

    fn line(&self, entry: &ListEntry) -> String {
        match entry {
            ListEntry::Object(ListedObject { object, size_bytes, .. }) if self.common.json => {
                serde_json::json!({
                    "key": object.key.to_string(), "size_bytes": size_bytes, "etag": object.etag.as_str(),
                })
                .to_string()
            }
            ListEntry::Prefix(prefix) if self.common.json => {
                serde_json::json!({ "prefix": String::from_utf8_lossy(prefix) }).to_string()
            }
            ListEntry::Object(ListedObject { object, size_bytes, .. }) => {
                format!("{size_bytes:>14}  {}", object.key)
            }
            ListEntry::Prefix(prefix) => format!("{:>14}  {}", "", String::from_utf8_lossy(prefix)),
        }
    }
}

/// Returns whether a key, or a common prefix of keys, is below Tenon's reserved prefix.
fn is_reserved(key: &[u8]) -> bool {
    key.strip_prefix(vfs::RESERVED.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

impl One {
    async fn head(self) -> Result<()> {
        let (volume, key) = split_key(&self.target)?;
        let bucket = self.common.open(&volume).await?;
        print_line(&describe(&bucket.store.head(&key).await?, self.common.json))
    }

    async fn remove(self) -> Result<()> {
        let (volume, key) = split_key(&self.target)?;
        let bucket = self.common.open(&volume).await?;
        // S3 reports success if there was nothing to remove, but a user who mistyped a key wants to know.
        bucket.store.head(&key).await?;
        Ok(bucket.store.delete(&key, Precondition::None).await?)
    }
}

impl Transfer {
    async fn get(self) -> Result<()> {
        let (volume, key) = split_key(&self.target)?;
        let bucket = self.common.open(&volume).await?;
        let mut object = bucket.store.get(&key, GetOptions::default()).await?;
        let mut to: Box<dyn Write> = match &self.file {
            Some(path) => {
                Box::new(File::create(path).with_context(|| format!("cannot write {}", path.display()))?)
            }
            None => Box::new(io::stdout().lock()),
        };
        while let Some(piece) = object.body.try_next().await? {
            to.write_all(&piece).context("cannot write the bytes")?;
        }
        to.flush().context("cannot write the bytes")
    }

    async fn put(self) -> Result<()> {
        let (volume, key) = split_key(&self.target)?;
        let bucket = self.common.open(&volume).await?;
        let from: Box<dyn Read + Send> = match &self.file {
            Some(path) => {
                Box::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
            }
            None => Box::new(io::stdin()),
        };
        let body = read_stream(from, "cannot read the bytes to store".to_owned());
        let (stored, size_bytes) =
            store_stream(bucket.store.as_ref(), &key, Attributes::default(), body).await?;
        if self.common.json {
            print_line(
                &serde_json::json!({ "key": key.to_string(), "size_bytes": size_bytes, "etag": stored.etag.as_str() })
                    .to_string(),
            )?;
        }
        Ok(())
    }
}

impl Common {
    async fn open(&self, volume: &Volume) -> Result<Bucket> {
        Bucket::open_or_connect(volume, &self.store.settings(), false, &ProcessContext::system()?).await
    }
}

fn describe(meta: &ObjectMeta, json: bool) -> String {
    let modified = meta.object.last_modified.map(|at| at.to_system_time()).and_then(rfc3339_system);
    if json {
        return serde_json::json!({
            "key": meta.object.key.to_string(),
            "size_bytes": meta.size_bytes,
            "etag": meta.object.etag.as_str(),
            "last_modified": modified,
            "content_type": meta.attributes.content_type,
            "metadata": meta.attributes.user,
        })
        .to_string();
    }
    let mut text = format!("key             {}\nsize            {}\n", meta.object.key, meta.size_bytes);
    text +=
        &format!("etag            {}\nmodified        {}", meta.object.etag, modified.unwrap_or_default());
    if let Some(content_type) = &meta.attributes.content_type {
        text += &format!("\ncontent type    {content_type}");
    }
    for (name, value) in &meta.attributes.user {
        text += &format!("\n{name:<15} {value}");
    }
    text.trim_end().to_owned()
}
