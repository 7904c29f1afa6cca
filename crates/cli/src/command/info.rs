//! `tenon info`: shows everything about a path of a mount, or about an object.

use crate::bucket::Bucket;
use crate::command::flags::StoreFlags;
use crate::command::locate::resolve_parent;
use crate::command::output::print_line;
use crate::command::units::human_bytes;
use crate::control::client::Client;
use crate::control::protocol::{Answer, Located, Quota, Request, Status};
use crate::process;
use crate::process::context::ProcessContext;
use crate::process::rfc3339::rfc3339_system;
use crate::state::registry::Registry;
use crate::volume::target::split_key;
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;

/// Show a file or directory of a mount: its attributes, its object, how its bytes are stored, its quota
///
/// With a URL like s3://bucket/key, shows the object.
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Paths in mounts, or URLs of objects
    #[arg(value_name = "PATH|URL", required = true)]
    targets: Vec<String>,
    /// Print one JSON object per target
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: StoreFlags,
}

/// Facts about a target.
#[derive(Debug, Serialize)]
struct Facts {
    path: String,
    /// Attributes of a file or directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<FileFacts>,
    /// Volume and mount point.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<VolumeFacts>,
    /// Where the bytes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<Located>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota: Option<Quota>,
    /// Description of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<ObjectFacts>,
}

#[derive(Debug, Serialize)]
struct FileFacts {
    kind: &'static str,
    size_bytes: u64,
    inode: u64,
    links: u64,
    mode: String,
    uid: u32,
    gid: u32,
    modified: Option<String>,
    changed: Option<String>,
}

#[derive(Debug, Serialize)]
struct VolumeFacts {
    url: String,
    mount_point: String,
    read_only: bool,
    shared: bool,
    /// Whether changes of any file are not in the store yet.
    has_pending: bool,
}

#[derive(Debug, Serialize)]
struct ObjectFacts {
    key: String,
    size_bytes: u64,
    etag: String,
    version: Option<String>,
    last_modified: Option<String>,
    content_type: Option<String>,
    storage_class: Option<String>,
    metadata: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

impl Info {
    pub(crate) fn run(self) -> Result<ExitCode> {
        for (number, target) in self.targets.iter().enumerate() {
            let facts = match target.contains("://") {
                true => self.object(target)?,
                false => file(Path::new(target))?,
            };
            if self.json {
                print_line(&serde_json::to_string(&facts)?)?;
            } else {
                if number > 0 {
                    print_line("")?;
                }
                print_line(&describe(&facts))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn object(&self, target: &str) -> Result<Facts> {
        let (volume, key) = split_key(target)?;
        process::runtime()?.block_on(async {
            let context = ProcessContext::system()?;
            let bucket = Bucket::open_or_connect(&volume, &self.store.settings(), true, &context).await?;
            let meta = bucket.store.head(&key).await?;
            let tags = bucket.store.tags(&key).await.unwrap_or_default();
            let modified = meta.object.last_modified.map(|at| at.to_system_time());
            let object = ObjectFacts {
                key: key.to_string(),
                size_bytes: meta.size_bytes,
                etag: meta.object.etag.to_string(),
                version: meta.object.version.map(String::from),
                last_modified: modified.and_then(rfc3339_system),
                content_type: meta.attributes.content_type,
                storage_class: meta.attributes.storage_class,
                metadata: meta.attributes.user,
                tags,
            };
            let path = target.to_owned();
            Ok(Facts { path, file: None, volume: None, stored: None, quota: None, object: Some(object) })
        })
    }
}

/// Collects what the kernel and the process of the mount know of a path.
fn file(path: &Path) -> Result<Facts> {
    let metadata = fs::symlink_metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let full = resolve_parent(path)?;
    let (mount, inside) = Registry::of_user().containing(&full)?;
    let mut client = Client::connect(&mount)?;
    let status = client.status()?;
    let path_hex = store::hex(&inside);
    let stored = match client.ask(&Request::Locate { path_hex: path_hex.clone() }, |_| {}) {
        Ok(Answer::Located(located)) => Some(located),
        // For example, a directory of a view has no object.
        _ => None,
    };
    let quota = match client.ask(&Request::Quota { path_hex, change: None }, |_| {}) {
        Ok(Answer::Quota { quota }) => quota,
        // A volume named by path has no quotas, and a file none of its own.
        _ => None,
    };
    let volume = volume_of(&status, mount.holder.mount_point.display().to_string());
    Ok(Facts {
        path: full.display().to_string(),
        file: Some(attributes(&metadata)),
        volume: Some(volume),
        stored,
        quota,
        object: None,
    })
}

fn volume_of(status: &Status, mount_point: String) -> VolumeFacts {
    let pending = &status.pending;
    VolumeFacts {
        url: status.volume.clone(),
        mount_point,
        read_only: status.read_only,
        shared: status.shared,
        has_pending: pending.dirty_files + pending.exports + pending.renames + pending.backlog_changes > 0,
    }
}

fn attributes(metadata: &Metadata) -> FileFacts {
    let kind = metadata.file_type();
    let kind = match kind {
        _ if kind.is_dir() => "directory",
        _ if kind.is_file() => "file",
        _ if kind.is_symlink() => "symlink",
        _ => "special",
    };
    let changed = jiff::Timestamp::new(metadata.ctime(), metadata.ctime_nsec() as i32).ok();
    FileFacts {
        kind,
        size_bytes: metadata.len(),
        inode: metadata.ino(),
        links: metadata.nlink(),
        mode: format!("{:04o}", metadata.mode() & 0o7777),
        uid: metadata.uid(),
        gid: metadata.gid(),
        modified: metadata.modified().ok().and_then(rfc3339_system),
        changed: changed.map(|at| at.to_string()),
    }
}

/// Extents that are shown line by line; the rest is only counted.
const EXTENTS_SHOWN: usize = 8;

fn describe(facts: &Facts) -> String {
    let mut lines = vec![("path", facts.path.clone())];
    if let Some(file) = &facts.file {
        lines.push(("kind", file.kind.to_owned()));
        lines.push(("size", format!("{} ({} bytes)", human_bytes(file.size_bytes), file.size_bytes)));
        lines.push(("inode", format!("{}, {} links", file.inode, file.links)));
        lines.push(("mode", format!("{}, owner {}, group {}", file.mode, file.uid, file.gid)));
        lines.push(("modified", file.modified.clone().unwrap_or_default()));
        lines.push(("changed", file.changed.clone().unwrap_or_default()));
    }
    if let Some(volume) = &facts.volume {
        let read_only = if volume.read_only { ", read-only" } else { "" };
        lines.push(("volume", format!("{} at {}{read_only}", volume.url, volume.mount_point)));
    }
    if let Some(stored) = &facts.stored {
        describe_stored(stored, &mut lines);
    }
    if let Some(quota) = &facts.quota {
        let of = |limit: Option<u64>| limit.map_or("no limit".to_owned(), |limit| format!("of {limit}"));
        lines.push(("quota", format!("{} bytes used, {}", quota.bytes_used, of(quota.bytes))));
        lines.push(("", format!("{} files used, {}", quota.files_used, of(quota.files))));
    }
    if let Some(object) = &facts.object {
        describe_object(object, &mut lines);
    }
    lines.iter().map(|(title, text)| format!("{title:<10}{text}")).collect::<Vec<_>>().join("\n")
}

fn describe_stored(stored: &Located, lines: &mut Vec<(&str, String)>) {
    if let Some(url) = &stored.url {
        lines.push(("object", url.clone()));
        lines.push(("etag", stored.etag.clone().unwrap_or_else(|| "not stored yet".to_owned())));
    }
    if stored.url.is_some() && stored.content.len() <= 1 {
        return;
    }
    let bytes: u64 = stored.content.iter().map(|extent| extent.len).sum();
    let objects: std::collections::BTreeSet<&str> =
        stored.content.iter().map(|extent| extent.key.as_str()).collect();
    lines.push((
        "layout",
        format!("{} extents in {} objects, {}", stored.content.len(), objects.len(), human_bytes(bytes)),
    ));
    for extent in stored.content.iter().take(EXTENTS_SHOWN) {
        let (from, to) = (extent.offset, extent.offset + extent.len);
        lines.push(("", format!("{from}..{to} in {} at {}", extent.key, extent.object_offset)));
    }
    if stored.content.len() > EXTENTS_SHOWN {
        lines.push(("", format!("and {} more", stored.content.len() - EXTENTS_SHOWN)));
    }
}

fn describe_object(object: &ObjectFacts, lines: &mut Vec<(&str, String)>) {
    lines.push(("key", object.key.clone()));
    lines.push(("size", format!("{} ({} bytes)", human_bytes(object.size_bytes), object.size_bytes)));
    lines.push(("etag", object.etag.clone()));
    let optional = [
        ("version", &object.version),
        ("modified", &object.last_modified),
        ("type", &object.content_type),
        ("class", &object.storage_class),
    ];
    lines.extend(optional.into_iter().filter_map(|(title, text)| Some((title, text.clone()?))));
    lines.extend(object.metadata.iter().map(|(name, value)| ("metadata", format!("{name}: {value}"))));
    lines.extend(object.tags.iter().map(|(name, value)| ("tag", format!("{name}: {value}"))));
}
