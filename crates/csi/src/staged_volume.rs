//! Records of the volumes that are mounted on this node. By them, a new driver finds the mounts, and restores those whose process has ended.
//!
//! The directory should be in memory (`/run`): after the node starts, nothing is mounted, and the orchestrator stages its volumes anew.
//! Access keys are in files of their own, which only the driver's user may read.

use crate::access::AccessKey;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A mounted volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StagedVolume {
    pub(crate) volume_id: String,
    pub(crate) url: String,
    /// Directory on which the volume is mounted.
    pub(crate) path: PathBuf,
    /// Arguments of `tenon mount`, without secrets.
    pub(crate) arguments: Vec<String>,
    /// Whether only one pod may use the volume.
    pub(crate) is_exclusive: bool,
    /// Directories of pods that show the volume too.
    pub(crate) targets: BTreeMap<PathBuf, Target>,
    /// Whether the volume was described in a pod: `path` is then the pod's directory.
    pub(crate) inline: Option<Inline>,
    /// Whether the volume was unmounted for good: its objects are being removed.
    pub(crate) is_ending: bool,
}

/// A directory of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) read_only: bool,
}

/// A volume that was described in a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inline {
    /// Whether the volume's objects are removed with the pod.
    pub(crate) is_scratch: bool,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) region: Option<String>,
}

/// The directory of the records.
#[derive(Debug, Clone)]
pub(crate) struct StagedVolumes {
    dir: PathBuf,
}

impl StagedVolumes {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns all records. Those that cannot be read are only logged.
    pub(crate) fn all(&self) -> io::Result<Vec<StagedVolume>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                match read(&path) {
                    Ok(Some(volume)) => found.push(volume),
                    Ok(None) => {}
                    Err(error) => tracing::error!("cannot read {}: {error}", path.display()),
                }
            }
        }
        Ok(found)
    }

    /// Returns the record of the volume that is mounted at a path.
    pub(crate) fn at(&self, path: &Path) -> io::Result<Option<StagedVolume>> {
        read(&self.file(path, "json"))
    }

    /// Returns the records of a volume.
    pub(crate) fn of(&self, volume_id: &str) -> io::Result<Vec<StagedVolume>> {
        Ok(self.all()?.into_iter().filter(|volume| volume.volume_id == volume_id).collect())
    }

    /// Stores a record.
    pub(crate) fn put(&self, volume: &StagedVolume) -> io::Result<()> {
        replace(&self.file(&volume.path, "json"), &serde_json::to_vec(volume)?)
    }

    /// Removes the record of the volume mounted at a path, and its access key.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        for kind in ["json", "key"] {
            match fs::remove_file(self.file(path, kind)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Stores the access key of the volume that is or will be mounted at a path. Returns the file.
    pub(crate) fn put_key(&self, path: &Path, key: &AccessKey) -> io::Result<PathBuf> {
        let file = self.file(path, "key");
        replace(&file, key.file_content().as_bytes())?;
        Ok(file)
    }

    /// Returns the stored access key.
    pub(crate) fn key(&self, path: &Path) -> io::Result<Option<AccessKey>> {
        let text = match fs::read_to_string(self.file(path, "key")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let mut parts = text.trim_end().splitn(3, ':').map(str::to_owned);
        let (id, secret, session_token) = (parts.next(), parts.next(), parts.next());
        Ok(id.zip(secret).map(|(id, secret)| AccessKey { id, secret, session_token }))
    }

    fn file(&self, path: &Path, extension: &str) -> PathBuf {
        self.dir.join(digest(path.as_os_str().as_encoded_bytes())).with_extension(extension)
    }
}

/// Returns a short name for a path or an id.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    store::hex(&digest.as_ref()[..16])
}

fn read(file: &Path) -> io::Result<Option<StagedVolume>> {
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => Ok(Some(serde_json::from_reader(file?)?)),
    }
}

/// Replaces a file as a whole: a driver that is killed leaves the old content or the new.
fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut writer = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writer.write_all(content)?;
    fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_record_comes_back_without_the_key_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let volumes = StagedVolumes::open(&dir.path().join("records")).unwrap();
        let path = Path::new("/staging/a");
        let volume = StagedVolume {
            volume_id: "s3://data/a".to_owned(),
            url: "s3://data/a".to_owned(),
            path: path.to_owned(),
            arguments: vec!["--shared".to_owned()],
            is_exclusive: false,
            targets: [(PathBuf::from("/pod"), Target { read_only: true })].into(),
            inline: None,
            is_ending: false,
        };
        volumes.put(&volume).unwrap();
        let key = AccessKey { id: "id".into(), secret: "hush".into(), session_token: Some("a:b".into()) };
        let file = volumes.put_key(path, &key).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(volumes.key(path).unwrap(), Some(key));
        assert_eq!(volumes.of("s3://data/a").unwrap(), [volume]);
        assert_eq!(volumes.of("s3://data/b").unwrap(), []);
        volumes.remove(path).unwrap();
        assert_eq!((volumes.at(path).unwrap(), volumes.key(path).unwrap()), (None, None));
        assert_eq!(fs::read_dir(dir.path().join("records")).unwrap().count(), 0);
    }
}
