//! `tenon locate`: finds the object of a path in a mount, or the path of a key.

use crate::control::client::Client;
use crate::control::holder::LiveMount;
use crate::control::protocol::{Answer, FileExtent, Located, Request};
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{ObjectKey, names};

/// Show the object of a file, or with a key, the file of an object.
#[derive(Debug, Args)]
pub(crate) struct Locate {
    /// A path in a mount or, with a key, a volume
    #[arg(value_name = "PATH|VOLUME")]
    target: String,
    /// The key of an object in the volume
    key: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Locate {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match &self.key {
            Some(key) => self.print_path(key)?,
            None => self.print_object(Path::new(&self.target))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print_object(&self, path: &Path) -> Result<()> {
        let (mount, inside) = Registry::of_user().containing(&resolve_parent(path)?)?;
        let mut client = Client::connect(&mount)?;
        match client.ask(&Request::Locate { path_hex: store::hex(&inside) }, |_| {})? {
            Answer::Located(found) if self.json => println!("{}", serde_json::to_string(&found)?),
            Answer::Located(found) => println!("{}", describe(&found)),
            other => client.unexpected(&other)?,
        }
        Ok(())
    }

    /// Asks a mount of the volume for the path of a key, and prints it. Without a mount, applies the rules of naming by path; the object
    /// need not exist then. Fails if only the metadata knows the path.
    fn print_path(&self, key: &str) -> Result<()> {
        let volume = Volume::parse_unchecked(&self.target)?;
        let inside = key.strip_prefix(volume.prefix()).filter(|rest| !rest.is_empty());
        let inside = inside.ok_or_else(|| {
            anyhow!("'{key}' is not in {0}; give a key that begins with '{1}'", volume.url(), volume.prefix())
        })?;
        let mounts = Registry::of_user().mounts().into_iter();
        let mounts: Vec<LiveMount> = mounts.filter(|mount| mount.holder.volume == volume.url()).collect();
        let path = match mounts.iter().find(|mount| !mount.holder.serves_buckets()) {
            Some(mount) => query_path(mount, key)?
                .ok_or_else(|| anyhow!("no file of {} has the object '{key}'", volume.url()))?,
            None if is_content(inside) => {
                bail!(
                    "the path of '{key}' is only in the metadata of {}: mount the volume, and ask again",
                    volume.url()
                )
            }
            None => {
                let path = names::key_to_path(&ObjectKey::try_from(inside)?).join(&b'/');
                String::from_utf8_lossy(&path).into_owned()
            }
        };
        let roots = mounts.iter().filter(|mount| !mount.holder.is_served());
        let roots = roots.flat_map(|mount| mount.holder.mount_points());
        let mounted: Vec<String> = roots.map(|root| root.join(&path).display().to_string()).collect();
        if self.json {
            println!("{}", serde_json::json!({ "path": path, "mounted": mounted }));
        } else if mounted.is_empty() {
            println!("{path}");
        } else {
            mounted.iter().for_each(|path| println!("{path}"));
        }
        Ok(())
    }
}

/// Returns whether a key, without the volume's prefix, has the form of content keys, which contain no path.
fn is_content(key: &str) -> bool {
    let name = key.strip_prefix(".tenon/inodes/").or_else(|| key.strip_prefix("inodes/"));
    let numbers = name.and_then(|name| name.rsplit('/').next()?.split_once('-'));
    let is_number = |text: &str| text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    numbers.is_some_and(|(ino, unique)| is_number(ino) && is_number(unique))
}

/// Asks a mount for the path of an object.
fn query_path(mount: &LiveMount, key: &str) -> Result<Option<String>> {
    let mut client = Client::connect(mount)?;
    match client.ask(&Request::PathOf { key_hex: store::hex(key.as_bytes()) }, |_| {})? {
        Answer::PathOf { path } => Ok(path),
        other => client.unexpected(&other),
    }
}

/// Resolves a path but for its last name: a symbolic link has an object of its own.
pub(super) fn resolve_parent(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).with_context(|| format!("cannot resolve {}", path.display()))?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            let parent =
                parent.canonicalize().with_context(|| format!("cannot resolve {}", parent.display()))?;
            Ok(parent.join(name))
        }
        _ => Ok(absolute),
    }
}

fn describe(found: &Located) -> String {
    let mut lines = match (&found.key, found.content.as_slice()) {
        (Some(key), _) => vec![
            ("key", key.clone()),
            ("url", found.url.clone().unwrap_or_default()),
            ("etag", found.etag.clone().unwrap_or_else(|| "not stored yet".to_owned())),
        ],
        (None, []) => vec![("key", "none: nothing is stored under a key of its own".to_owned())],
        (None, pieces) => pieces.iter().map(|piece| ("bytes", describe_extent(piece))).collect(),
    };
    lines.extend([("size", format!("{} bytes", found.size_bytes)), ("inode", found.ino.to_string())]);
    lines.iter().map(|(title, text)| format!("{title:<8}{text}")).collect::<Vec<_>>().join("\n")
}

fn describe_extent(piece: &FileExtent) -> String {
    let FileExtent { offset, len, key, object_offset, .. } = piece;
    let end = offset + len;
    match object_offset {
        0 => format!("{offset}..{end}  {key}"),
        at => format!("{offset}..{end}  {key} from byte {at}"),
    }
}
