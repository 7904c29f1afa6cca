//! The place of a volume's objects: a bucket, or a prefix of one. Its URL is the id of volumes that the driver makes.

use crate::disk_cache::is_about_cache;
use crate::message::Texts;
use std::fmt;
use store::ObjectKey;
use tonic::Status;

/// Maximum length of a volume id in bytes (CSI specification, "Size Limits").
const ID_BYTES_MAX: usize = 128;
/// Maximum length of a bucket's name.
const BUCKET_BYTES_MAX: usize = 63;
/// Number of hexadecimal digits that distinguish names which were shortened or changed.
const DIGEST_DIGITS: usize = 16;
/// Name of the object, below the volume's place, with the driver's record of the volume. Tenon shows no object below `.tenon/`.
const RECORD: &str = ".tenon/csi";

/// A bucket, or a prefix of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumePlace {
    bucket: String,
    /// Empty, or path components with `/` between them.
    prefix: String,
}

impl VolumePlace {
    /// Parses `s3://bucket[/prefix]`.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("s3://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        store::bucket_name::check(bucket).ok()?;
        let is_plain =
            |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(|char| !char.is_control());
        (prefix.is_empty() || prefix.split('/').all(is_plain))
            .then(|| Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Returns the place of a new volume, by the parameters of its storage class.
    pub(crate) fn of_new_volume(name: &str, parameters: &Texts) -> Result<Self, Status> {
        let invalid = |text: String| Status::invalid_argument(text);
        let (mut bucket, mut prefix, mut bucket_prefix) = (None, "", "");
        for (key, value) in parameters {
            match key.as_str() {
                "bucket" => bucket = Some(value.as_str()),
                "prefix" => prefix = value.trim_matches('/'),
                "bucketPrefix" => bucket_prefix = value,
                key if is_about_cache(key) => {}
                // Names of the claim, which the provisioner adds.
                key if key.starts_with("csi.storage.k8s.io/") => {}
                key => {
                    return Err(invalid(format!(
                        "unknown parameter '{}'; use bucket and prefix, or bucketPrefix",
                        key.escape_debug()
                    )));
                }
            }
        }
        let Some(bucket) = bucket else {
            if !prefix.is_empty() {
                return Err(invalid("the parameter prefix needs the parameter bucket".to_owned()));
            }
            let name = bucket_name(&[bucket_prefix, name].concat());
            let place = Self::parse(&format!("s3://{name}"));
            return place
                .ok_or_else(|| invalid(format!("'{name}' is not a name of a bucket; change bucketPrefix")));
        };
        if !bucket_prefix.is_empty() {
            return Err(invalid("give the parameter bucket or bucketPrefix, not both".to_owned()));
        }
        let above =
            if prefix.is_empty() { format!("s3://{bucket}/") } else { format!("s3://{bucket}/{prefix}/") };
        let place = Self::parse(
            &[&above, shortened(name, ID_BYTES_MAX.saturating_sub(above.len())).as_str()].concat(),
        );
        match place.filter(|place| place.to_string().len() <= ID_BYTES_MAX) {
            Some(place) => Ok(place),
            None => Err(invalid(format!(
                "bucket '{bucket}' and prefix '{prefix}' cannot contain volumes; change them in the storage class"
            ))),
        }
    }

    /// Returns the bucket's name.
    pub(crate) fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Returns whether the volume is the whole bucket.
    pub(crate) fn is_bucket(&self) -> bool {
        self.prefix.is_empty()
    }

    /// Returns the common beginning of all keys of the volume.
    pub(crate) fn key_prefix(&self) -> String {
        if self.is_bucket() { String::new() } else { format!("{}/", self.prefix) }
    }

    /// Returns the key of the driver's record.
    pub(crate) fn record_key(&self) -> Result<ObjectKey, Status> {
        let key = ObjectKey::try_from([&self.key_prefix(), RECORD].concat().as_str());
        key.map_err(|error| Status::invalid_argument(format!("{self}: {error}")))
    }

    /// Returns the place below this one for a single pod, named by the id of its inline volume.
    pub(crate) fn below(&self, name: &str) -> Self {
        let prefix = [self.key_prefix(), shortened(name, ID_BYTES_MAX)].concat();
        Self { bucket: self.bucket.clone(), prefix }
    }
}

impl fmt::Display for VolumePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_bucket() {
            true => write!(f, "s3://{}", self.bucket),
            false => write!(f, "s3://{}/{}", self.bucket, self.prefix),
        }
    }
}

/// Returns a name as one component of a key, of at most `len_max` bytes. A name that must be changed gets a digest at its end, so that
/// different names stay different.
fn shortened(name: &str, len_max: usize) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    let is_kept = name.len() <= len_max && name.chars().all(is_plain) && !matches!(name, "" | "." | "..");
    if is_kept {
        return name.to_owned();
    }
    let kept: String = name.chars().map(|char| if is_plain(char) { char } else { '-' }).collect();
    with_digest(&kept, name, len_max)
}

/// Returns a name as the name of a bucket. A name that must be changed gets a digest at its end.
fn bucket_name(name: &str) -> String {
    if store::bucket_name::check(name).is_ok() {
        return name.to_owned();
    }
    let letter = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' };
    let kept: String = name.chars().map(letter).collect();
    with_digest(kept.trim_start_matches('-'), name, BUCKET_BYTES_MAX)
}

fn with_digest(kept: &str, name: &str, len_max: usize) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, name.as_bytes());
    let digest = &store::hex(digest.as_ref())[..DIGEST_DIGITS];
    // All kept characters are ASCII.
    let kept = &kept[..kept.len().min(len_max.saturating_sub(DIGEST_DIGITS + 1))];
    if kept.is_empty() { digest.to_owned() } else { format!("{kept}-{digest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, parameters: &[(&str, &str)]) -> Result<String, String> {
        let parameters =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let place = VolumePlace::of_new_volume(name, &parameters);
        place.map(|place| place.to_string()).map_err(|status| status.message().to_owned())
    }

    #[test]
    fn a_volume_is_a_prefix_or_a_bucket() {
        assert_eq!(place("pvc-1", &[("bucket", "data")]).unwrap(), "s3://data/pvc-1");
        assert_eq!(
            place("pvc-1", &[("bucket", "data"), ("prefix", "/a/b/")]).unwrap(),
            "s3://data/a/b/pvc-1"
        );
        let added = ("csi.storage.k8s.io/pv/name", "x");
        assert_eq!(place("pvc-1", &[("bucketPrefix", "team-"), added]).unwrap(), "s3://team-pvc-1");
        for bad in [
            &[("prefix", "a")][..],
            &[("bucket", "data"), ("bucketPrefix", "x")],
            &[("bucket", "data"), ("prefix", "a/../b")],
            &[("bucket", "No")],
            &[("colour", "red")],
        ] {
            place("pvc-1", bad).unwrap_err();
        }
    }

    #[test]
    fn any_name_becomes_an_id_of_its_own() {
        let long = "x".repeat(128);
        let names = [
            long.as_str(),
            &format!("{}y", "x".repeat(127)),
            "a/b",
            "a-b",
            "..",
            "Ünïcode",
            "UPPER",
            "upper",
        ];
        for parameters in [&[("bucket", "data")][..], &[("bucketPrefix", "p-")]] {
            let ids: std::collections::BTreeSet<String> =
                names.iter().map(|name| place(name, parameters).unwrap()).collect();
            assert_eq!(ids.len(), names.len(), "{ids:?}");
            for id in ids {
                assert!(id.len() <= ID_BYTES_MAX, "{id}");
                assert_eq!(VolumePlace::parse(&id).unwrap().to_string(), id);
            }
        }
    }

    #[test]
    fn only_buckets_are_places() {
        for bad in ["", "data", "file:///etc", "s3://", "s3://UPPER", "s3://data/a//b", "s3://data/../x"] {
            assert_eq!(VolumePlace::parse(bad), None, "{bad}");
        }
        assert_eq!(VolumePlace::parse("s3://data/a/").unwrap().key_prefix(), "a/");
    }
}
