//! Volumes, their objects and the devices of drives as users name them, and the record of an embedded volume.
//!
//! | text | volume |
//! |---|---|
//! | `s3://bucket[/prefix]` | a bucket, or the part of it below a prefix |
//! | `file:///dir` | a directory as a bucket: its files are the objects |
//! | a path | an embedded volume, made by `tenon format` |
//! | `s3://` | all buckets of a server, as directories |
//! | `drive:///device`, `drive:///device,/device` | all buckets of an object drive |
//! | `drive:///device+/device` | all buckets of a pool of drives |
//! | `dirs:///dir` | a directory of buckets: each directory in it is a bucket |
//!
//! A mount of views alone names no volume on the command line; its volume is the buckets that its rulesets name.
//!
//! Refuses credentials in a URL: they would appear in `ps`, the mount table and logs.

pub(crate) mod device_names;
pub(crate) mod embedded;
pub(crate) mod target;

use crate::volume::device_names::Drives;
use crate::volume::embedded::ObjectLocation;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use store::{ObjectKey, names};

/// The kinds of volumes, for messages.
const KINDS: &str = "s3://bucket, file:///dir, drive:///device, dirs:///dir or a path";

/// An owner of buckets: a profile of the AWS files, or `None` for the account that the flags and the environment name.
pub(crate) type Account = Option<String>;

/// A volume, by how it is accessed. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Volume {
    /// Objects of an S3 bucket whose keys begin with `prefix` (empty, or ending in `/`).
    S3 { bucket: String, prefix: String },
    /// Files of a directory as objects.
    Directory { root: PathBuf },
    /// A directory made by `tenon format`.
    Embedded { root: PathBuf },
    /// Buckets of one or several object drives, on block devices or files, as directories.
    Drive { drives: Drives },
    /// A directory of buckets: each directory in it is a bucket.
    Directories { root: PathBuf },
    /// Buckets of accounts, as directories: the named ones, or all.
    Buckets { url: String, names: Option<BTreeSet<String>>, accounts: BTreeSet<Account> },
}

impl Volume {
    /// Parses a volume as a user writes it. A path must be an embedded volume that exists, and that of `file://` a
    /// directory.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let volume = Self::parse_unchecked(text)?;
        match &volume {
            Self::Embedded { root } => drop(embedded::read_record(root)?),
            Self::Directory { root } if !root.is_dir() => {
                bail!("{} is not a directory; make it first", root.display())
            }
            _ => {}
        }
        Ok(volume)
    }

    /// Parses a volume that need not exist.
    pub(crate) fn parse_unchecked(text: &str) -> Result<Self> {
        match text.split_once("://") {
            Some(("s3", "")) => {
                Ok(Self::Buckets { url: text.to_owned(), names: None, accounts: [None].into() })
            }
            Some(("s3", rest)) => parse_s3(rest),
            Some(("file", path)) if path.starts_with('/') => Ok(Self::Directory { root: absolute(path)? }),
            Some(("drive", path)) if path.starts_with('/') => {
                Ok(Self::Drive { drives: Drives::parse(path)? })
            }
            Some(("dirs", path)) if path.starts_with('/') => Ok(Self::Directories { root: absolute(path)? }),
            Some((scheme @ ("file" | "drive" | "dirs"), _)) => {
                bail!("'{text}' has no absolute path; write {scheme}:///path")
            }
            Some((scheme, _)) => {
                bail!("unknown kind of volume '{scheme}://'; use {KINDS}")
            }
            None if text.is_empty() => bail!("the volume is empty; use {KINDS}"),
            None => Ok(Self::Embedded { root: absolute(text)? }),
        }
    }

    /// Returns the volume as text without secrets: for messages and the mount table, and as its identity.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::S3 { bucket, prefix } if prefix.is_empty() => format!("s3://{bucket}"),
            Self::S3 { bucket, prefix } => format!("s3://{bucket}/{}", prefix.trim_end_matches('/')),
            Self::Directory { root } => format!("file://{}", root.display()),
            Self::Embedded { root } => root.display().to_string(),
            Self::Drive { drives } => format!("drive://{drives}"),
            Self::Directories { root } => format!("dirs://{}", root.display()),
            Self::Buckets { url, .. } => url.clone(),
        }
    }

    /// Returns the volume of a file of rulesets: the buckets that these name.
    pub(crate) fn for_views(
        rules: &Path,
        names: Option<BTreeSet<String>>,
        accounts: BTreeSet<Account>,
    ) -> Result<Self> {
        let path = absolute(&rules.to_string_lossy())?;
        Ok(Self::Buckets { url: format!("views:{}", path.display()), names, accounts })
    }

    /// Returns the volume's name as a bucket: for a directory, its name in lower case; for several buckets,
    /// `buckets`.
    pub(crate) fn bucket_name(&self) -> String {
        match self {
            Self::S3 { bucket, .. } => bucket.clone(),
            Self::Directory { root } | Self::Embedded { root } => {
                root.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default()
            }
            Self::Buckets { .. } | Self::Drive { .. } | Self::Directories { .. } => "buckets".to_owned(),
        }
    }

    /// Returns the prefix of all keys of the volume: empty, or ending in `/`.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Self::S3 { prefix, .. } => prefix,
            _ => "",
        }
    }

    /// Returns the URL of an object for people. It is lossy where the key is not text.
    pub(crate) fn object_url(&self, key: &ObjectKey) -> String {
        let shown = String::from_utf8_lossy(key.as_bytes()).into_owned();
        let file = || String::from_utf8_lossy(&names::key_to_path(key).join(&b'/')).into_owned();
        match self {
            Self::S3 { bucket, .. } => format!("s3://{bucket}/{shown}"),
            Self::Directory { root } => format!("file://{}/{}", root.display(), file()),
            Self::Embedded { root } if self.is_on_drive() => {
                format!("drive://{} {shown}", embedded::drive_path(root).display())
            }
            Self::Embedded { root } => format!("file://{}/{}", embedded::objects_dir(root).display(), file()),
            Self::Buckets { .. } | Self::Drive { .. } | Self::Directories { .. } => format!("s3://{shown}"),
        }
    }

    /// Returns whether the objects are on an object drive, which only one process can have open.
    pub(crate) fn is_on_drive(&self) -> bool {
        match self {
            Self::Drive { .. } => true,
            Self::Embedded { root } => {
                embedded::read_record(root).is_ok_and(|record| record.objects == ObjectLocation::Drive)
            }
            _ => false,
        }
    }

    /// Returns whether the volume is several buckets, which are its directories.
    pub(crate) fn is_buckets(&self) -> bool {
        matches!(self, Self::Buckets { .. } | Self::Drive { .. } | Self::Directories { .. })
    }
}

fn parse_s3(rest: &str) -> Result<Volume> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        bail!("a volume holds no credentials; give them by the environment, --profile or --access-key-file");
    }
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if bucket.len() < 3 || bucket.len() > 63 || !bucket.chars().all(valid) {
        bail!("'{bucket}' is not a valid bucket name; write s3://bucket or s3://bucket/prefix");
    }
    let mut prefix = prefix.to_owned();
    if !prefix.is_empty() && !prefix.ends_with('/') {
        prefix.push('/');
    }
    Ok(Volume::S3 { bucket: bucket.to_owned(), prefix })
}

fn absolute(path: &str) -> Result<PathBuf> {
    let path = Path::new(path);
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .with_context(|| format!("cannot resolve {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_parsed() {
        let s3 = |bucket: &str, prefix: &str| Volume::S3 { bucket: bucket.into(), prefix: prefix.into() };
        assert_eq!(Volume::parse("s3://bucket").unwrap(), s3("bucket", ""));
        assert_eq!(Volume::parse("s3://bucket/").unwrap(), s3("bucket", ""));
        assert_eq!(Volume::parse("s3://bucket/a/b").unwrap(), s3("bucket", "a/b/"));
        assert_eq!(Volume::parse("s3://bucket/a/b/").unwrap().url(), "s3://bucket/a/b");
        assert_eq!(Volume::parse("file:///").unwrap(), Volume::Directory { root: "/".into() });
        assert!(matches!(Volume::parse("s3://").unwrap(), Volume::Buckets { names: None, .. }));
        for wrong in ["", "s3:///a", "s3://a", "gs://bucket", "file://relative", "s3://no bucket"] {
            assert!(Volume::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_in_a_url_are_refused_without_repeating_them() {
        let refused = Volume::parse("s3://AKIA:topsecret@bucket").unwrap_err().to_string();
        assert!(refused.contains("no credentials") && !refused.contains("topsecret"), "{refused}");
    }

    #[test]
    fn a_formatted_directory_is_a_volume() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("v");
        let text = root.to_str().unwrap();
        let refused = Volume::parse(text).unwrap_err().to_string();
        assert!(refused.contains("tenon format") && refused.contains("file://"), "{refused}");
        embedded::make_directory(&root, ObjectLocation::Directory).unwrap();
        assert!(Volume::parse(text).is_err(), "it is one when its record is there");
        let record = embedded::new_record(7, jiff::Timestamp::UNIX_EPOCH, ObjectLocation::Directory);
        embedded::write_record(&root, &record).unwrap();
        assert_eq!(embedded::read_record(&root).unwrap(), record);
        assert!(matches!(Volume::parse(text).unwrap(), Volume::Embedded { .. }));
        let refused = embedded::make_directory(&root, ObjectLocation::Drive).unwrap_err().to_string();
        assert!(refused.contains("already"), "{refused}");
    }
}
