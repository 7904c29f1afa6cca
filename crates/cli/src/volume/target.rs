//! Parses `VOLUME/KEY`, the name of an object on the command line.

use crate::volume::{Volume, embedded};
use anyhow::{Result, anyhow, bail};
use std::path::Path;
use store::ObjectKey;

/// Splits a target into its volume and the key of an object.
pub(crate) fn split_key(target: &str) -> Result<(Volume, ObjectKey)> {
    let (volume, key) = split(target)?;
    let key = ObjectKey::new(key)
        .map_err(|error| anyhow!("'{target}' names no object: {error}; write {}/KEY", volume.url()))?;
    Ok((volume, key))
}

/// Splits a target into its volume and a key, or the beginning of keys. A path belongs to the embedded volume that
/// contains it. In `file://`, the deepest directory that exists is the bucket.
pub(crate) fn split(target: &str) -> Result<(Volume, Vec<u8>)> {
    if let Some(rest) = target.strip_prefix("s3://") {
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        return Ok((Volume::parse(&format!("s3://{bucket}"))?, key.into()));
    }
    let in_directory = target.strip_prefix("file://");
    let path = in_directory.unwrap_or(target);
    let is_volume = |dir: &Path| match in_directory {
        Some(_) => dir.is_dir(),
        None => embedded::read_record(dir).is_ok(),
    };
    // Split the text at slashes, not the path at components: a key may contain `//` or end in `/`.
    for at in directory_ends(path) {
        let (dir, key) = path.split_at(at);
        if is_volume(Path::new(if dir.is_empty() { "/" } else { dir })) {
            let key = key.strip_prefix('/').unwrap_or(key).as_bytes().to_vec();
            return Ok((
                Volume::parse(&format!("{}{dir}", if in_directory.is_some() { "file://" } else { "" }))?,
                key,
            ));
        }
    }
    match Volume::parse(target) {
        Ok(volume) => Ok((volume, Vec::new())),
        Err(_) => {
            bail!("'{target}' is not in a volume; write s3://bucket/KEY, file:///dir/KEY or VOLUME-DIR/KEY")
        }
    }
}

/// Returns the positions in a path at which a directory may end, the deepest first.
fn directory_ends(path: &str) -> impl Iterator<Item = usize> {
    let slashes: Vec<usize> = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0).collect();
    std::iter::once(path.len()).chain(slashes.into_iter().rev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::embedded::ObjectLocation;

    #[test]
    fn a_target_is_cut_into_volume_and_key() {
        let (volume, key) = split("s3://bucket/a//b/").unwrap();
        assert_eq!((volume.url().as_str(), key.as_slice()), ("s3://bucket", b"a//b/".as_slice()));
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("v");
        embedded::make_directory(&root, ObjectLocation::Directory).unwrap();
        let record = embedded::new_record(1, jiff::Timestamp::UNIX_EPOCH, ObjectLocation::Directory);
        embedded::write_record(&root, &record).unwrap();
        let text = root.to_str().unwrap();
        for (target, expected) in [("", ""), ("/", ""), ("/k", "k"), ("/a/b", "a/b"), ("/a//b/", "a//b/")] {
            let (volume, key) = split(&format!("{text}{target}")).unwrap();
            assert_eq!(
                (volume, String::from_utf8(key).unwrap().as_str()),
                (Volume::Embedded { root: root.clone() }, expected)
            );
        }
        let (volume, key) = split(&format!("file://{text}/x/y")).unwrap();
        assert_eq!((volume, key), (Volume::Directory { root: root.clone() }, b"x/y".to_vec()));
        assert!(split(dir.path().to_str().unwrap()).is_err());
        assert!(split_key(text).unwrap_err().to_string().contains("names no object"));
    }
}
