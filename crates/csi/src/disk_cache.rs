//! Disk caches of volumes: what a storage class or a volume asks for, and the room that the driver has for them on its node.
//!
//! Volumes name a directory below the driver's, never a path of the node. Volumes that name the same directory share its space.

use crate::message::Texts;
use std::path::PathBuf;
use tonic::Status;

/// Attribute with the size of the cache. Without it, a volume has none.
const SIZE: &str = "cacheSize";

/// Attribute with the name of the cache's directory.
const DIRECTORY: &str = "cacheDirectory";

/// Directory of volumes that name none.
const DEFAULT_DIRECTORY: &str = "volumes";

/// Directory of all volumes that pods describe themselves.
const INLINE_DIRECTORY: &str = "pods";

/// Minimum size of a cache, as of `tenon mount --cache-size`.
const SIZE_BYTES_MIN: u64 = 256 << 20;

/// Suffixes of quantities in Kubernetes, with their factors. `20GiB` and `20GB`, as flags of Tenon have them, are quantities too.
const SUFFIXES: [(&str, u64); 8] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
];

/// The room for disk caches on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheRoom {
    /// Directory with the directories of caches.
    pub dir: PathBuf,
    /// Maximum size of one cache in bytes.
    pub limit_bytes: u64,
}

/// The cache that a volume asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedCache {
    directory: Option<String>,
    size_bytes: u64,
}

/// Returns whether an attribute of a volume, or a parameter of a storage class, is about its cache.
pub(crate) fn is_about_cache(name: &str) -> bool {
    matches!(name, SIZE | DIRECTORY)
}

impl WantedCache {
    /// Reads the attributes of a volume, or the parameters of a storage class; `None` if they ask for no cache.
    pub(crate) fn read(attributes: &Texts) -> Result<Option<Self>, Status> {
        let directory = attributes.get(DIRECTORY).map(|name| check_directory(name)).transpose()?;
        match attributes.get(SIZE) {
            Some(size) => Ok(Some(Self { directory, size_bytes: size_bytes(size)? })),
            None if directory.is_some() => {
                Err(Status::invalid_argument(format!("{DIRECTORY} needs {SIZE}: \"20Gi\"")))
            }
            None => Ok(None),
        }
    }

    /// Returns the attributes of a new volume, from the parameters of its storage class.
    pub(crate) fn attributes_of_new_volume(parameters: &Texts) -> Result<Texts, Status> {
        Self::read(parameters)?;
        let about_cache = parameters.iter().filter(|(name, _)| is_about_cache(name));
        Ok(about_cache.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Returns the cache of a volume that a pod describes itself. All such volumes of a node share a directory, so that they cannot take more room.
    pub(crate) fn of_inline(self) -> Result<Self, Status> {
        match self.directory {
            Some(_) => Err(Status::invalid_argument(format!(
                "the attribute {DIRECTORY} is not for volumes in pods, which share a directory"
            ))),
            None => Ok(Self { directory: Some(INLINE_DIRECTORY.to_owned()), ..self }),
        }
    }

    /// Returns the flags of `tenon mount`.
    pub(crate) fn flags(&self, room: Option<&CacheRoom>) -> Result<[String; 2], Status> {
        let room = room.ok_or_else(|| {
            Status::failed_precondition(format!(
                "the volume asks for a disk cache ({SIZE}), but the driver of this node has no room for any: start it with --caches DIR"
            ))
        })?;
        if self.size_bytes > room.limit_bytes {
            return Err(Status::invalid_argument(format!(
                "{SIZE} is {} bytes, but caches on this node have at most {} (--cache-limit)",
                self.size_bytes, room.limit_bytes
            )));
        }
        let dir = room.dir.join(self.directory.as_deref().unwrap_or(DEFAULT_DIRECTORY));
        Ok([format!("--cache-dir={}", dir.display()), format!("--cache-size={}", self.size_bytes)])
    }
}

/// Accepts the name of one directory, which cannot lead elsewhere.
fn check_directory(name: &str) -> Result<String, Status> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    let is_name = name.chars().all(is_plain) && !name.starts_with('.') && (1..=64).contains(&name.len());
    match name {
        INLINE_DIRECTORY => Err(Status::invalid_argument(format!(
            "the {DIRECTORY} '{INLINE_DIRECTORY}' is that of volumes in pods; use another name"
        ))),
        _ if is_name => Ok(name.to_owned()),
        _ => Err(Status::invalid_argument(format!(
            "the {DIRECTORY} '{}' is not a name of at most 64 letters, digits, '-', '_' and '.'",
            name.escape_debug()
        ))),
    }
}

/// Parses a quantity of Kubernetes, like `20Gi`.
fn size_bytes(text: &str) -> Result<u64, Status> {
    let plain = text.strip_suffix('B').unwrap_or(text);
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((plain.strip_suffix(suffix)?, *factor)))
        .unwrap_or((plain, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match bytes {
        Some(bytes) if bytes >= SIZE_BYTES_MIN => Ok(bytes),
        Some(_) => Err(Status::invalid_argument(format!("{SIZE} must be at least 256Mi"))),
        None => Err(Status::invalid_argument(format!(
            "the {SIZE} '{}' is not a size like 20Gi",
            text.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(entries: &[(&str, &str)]) -> Texts {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn room() -> CacheRoom {
        CacheRoom { dir: PathBuf::from("/var/cache/tenon"), limit_bytes: 50 << 30 }
    }

    fn flags(entries: &[(&str, &str)]) -> Result<Option<[String; 2]>, Status> {
        WantedCache::read(&texts(entries))?.map(|wanted| wanted.flags(Some(&room()))).transpose()
    }

    #[test]
    fn a_cache_has_a_directory_below_the_drivers_and_a_size() {
        assert_eq!(flags(&[]).unwrap(), None);
        let expected = ["--cache-dir=/var/cache/tenon/volumes", "--cache-size=21474836480"];
        for size in ["20Gi", "20GiB", "21474836480"] {
            assert_eq!(flags(&[(SIZE, size)]).unwrap().unwrap(), expected, "{size}");
        }
        let named = flags(&[(SIZE, "1G"), (DIRECTORY, "fast")]).unwrap().unwrap();
        assert_eq!(named, ["--cache-dir=/var/cache/tenon/fast", "--cache-size=1000000000"]);
    }

    #[test]
    fn caches_stay_in_the_room_of_the_driver() {
        for bad in [
            &[(SIZE, "51Gi")][..],
            &[(SIZE, "255Mi")],
            &[(SIZE, "much")],
            &[(SIZE, "-1Gi")],
            &[(SIZE, "99999999999Ti")],
            &[(DIRECTORY, "fast")],
            &[(SIZE, "1Gi"), (DIRECTORY, "..")],
            &[(SIZE, "1Gi"), (DIRECTORY, "/etc")],
            &[(SIZE, "1Gi"), (DIRECTORY, "")],
            &[(SIZE, "1Gi"), (DIRECTORY, INLINE_DIRECTORY)],
        ] {
            flags(bad).unwrap_err();
        }
        let wanted = WantedCache::read(&texts(&[(SIZE, "1Gi")])).unwrap().unwrap();
        assert_eq!(wanted.flags(None).unwrap_err().code(), tonic::Code::FailedPrecondition);
        let inline = wanted.of_inline().unwrap().flags(Some(&room())).unwrap();
        assert_eq!(inline[0], "--cache-dir=/var/cache/tenon/pods");
        let named = WantedCache::read(&texts(&[(SIZE, "1Gi"), (DIRECTORY, "fast")])).unwrap().unwrap();
        named.of_inline().unwrap_err();
    }

    #[test]
    fn a_new_volume_keeps_what_its_storage_class_asks_for() {
        let parameters = texts(&[("bucket", "data"), (SIZE, "1Gi"), (DIRECTORY, "fast")]);
        let kept = WantedCache::attributes_of_new_volume(&parameters).unwrap();
        assert_eq!(kept, texts(&[(SIZE, "1Gi"), (DIRECTORY, "fast")]));
        WantedCache::attributes_of_new_volume(&texts(&[(SIZE, "much")])).unwrap_err();
    }
}
