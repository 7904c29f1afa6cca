//! Open volumes, and batches, which are used like volumes.
//!
//! Locks are taken in this order: that of a batch, then that of its volume.

use crate::failure::{Failure, Result};
use crate::records::{BatchProgress, RefusedChange};
use crate::runtime::wait;
use cli::library::{BatchId, Credentials, OpenedBatch, OpenedVolume};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::paths::{self, Node};
use vfs::{Caller, Filesystem, Ino};

/// Options of an access key. They are not flags of the command line, because they contain secrets.
const ACCESS_KEY: &str = "access-key-id";
const SECRET_KEY: &str = "secret-access-key";
const SESSION_TOKEN: &str = "session-token";

/// A volume or a batch.
#[derive(Debug)]
pub(crate) struct Volume {
    /// The volume of a batch.
    parent: Option<Arc<Self>>,
    /// The open volume or batch; `None` once the handle is closed. Calls share the lock, and closing waits for them.
    open: RwLock<Option<Open>>,
    /// Owner of what is created.
    caller: Caller,
}

/// An open volume or batch, as the library has it.
#[derive(Debug)]
pub(crate) enum Open {
    Volume(Box<OpenedVolume>),
    Batch(OpenedBatch),
}

/// A volume or batch that stays open until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered<'v> {
    fs: Arc<Filesystem>,
    open: RwLockReadGuard<'v, Option<Open>>,
    /// A batch needs its volume.
    _parent: Option<RwLockReadGuard<'v, Option<Open>>>,
    caller: Caller,
}

impl Volume {
    /// Opens a volume.
    pub(crate) fn open(url: &str, options: Vec<OsString>) -> Result<Arc<Self>> {
        let (credentials, options) = take_credentials(options)?;
        let opened = wait(OpenedVolume::open_with_options(url, &options, credentials))?;
        Ok(Self::new(None, Open::Volume(Box::new(opened))))
    }

    fn new(parent: Option<Arc<Self>>, open: Open) -> Arc<Self> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        // Modes are used as given, because the umask of the process cannot be read without changing it.
        let caller = Caller { uid: uid.as_raw(), gid: gid.as_raw(), umask: 0 };
        Arc::new(Self { parent, open: RwLock::new(Some(open)), caller })
    }

    /// Keeps the volume open for a call; EBADF if it is closed.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let open = read(&self.open);
        let parent = self.parent.as_deref().map(|parent| read(&parent.open));
        match open.as_ref().map(Open::filesystem).cloned() {
            Some(fs) if parent.as_ref().is_none_or(|parent| parent.is_some()) => {
                Ok(Entered { fs, open, _parent: parent, caller: self.caller })
            }
            _ => Err(Failure::bad_handle()),
        }
    }

    /// Takes the lock for closing the volume, once no call uses the volume any more.
    pub(crate) fn lock_to_close(&self) -> RwLockWriteGuard<'_, Option<Open>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a directory into batch mode.
    pub(crate) fn begin_batch(self: &Arc<Self>, path: &[u8]) -> Result<Arc<Self>> {
        let entered = self.enter()?;
        let batch = wait(entered.volume()?.begin_batch(path)).map_err(|failure| failure.at(path))?;
        Ok(Self::new(Some(Arc::clone(self)), Open::Batch(batch)))
    }

    /// Returns the progress of a batch.
    pub(crate) fn batch_progress(&self) -> Result<BatchProgress> {
        let (open, parent) = (read(&self.open), self.parent()?);
        let Some(Open::Batch(batch)) = open.as_ref() else { return Err(Failure::bad_handle()) };
        let totals = parent.enter()?.volume()?.batch_totals(batch.id);
        Ok(BatchProgress::new(&batch.id.to_string(), totals, batch.is_resumed))
    }

    /// Returns the first refused change of a merged batch with at least this index; `None` if there is none.
    pub(crate) fn next_refused_change(&self, id: &[u8], from: u64) -> Result<Option<RefusedChange>> {
        let found = self.enter()?.volume()?.next_refused_change(batch_id(id)?, from)?;
        Ok(found.map(RefusedChange::from))
    }

    /// Makes a refused change again.
    pub(crate) fn retry_refused_change(&self, id: &[u8], index: u64) -> Result<()> {
        wait(self.enter()?.volume()?.retry_refused_change(batch_id(id)?, index))
    }

    /// Removes a change from the list of refused changes.
    pub(crate) fn forget_refused_change(&self, id: &[u8], index: u64) -> Result<()> {
        wait(self.enter()?.volume()?.forget_refused_change(batch_id(id)?, index))
    }

    /// Returns whether this is a batch of the volume.
    pub(crate) fn is_batch_of(&self, volume: &Arc<Self>) -> bool {
        self.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, volume))
    }

    /// Returns whether this is a batch.
    pub(crate) fn is_batch(&self) -> bool {
        self.parent.is_some()
    }

    /// Returns the volume of a batch; EINVAL for a volume.
    pub(crate) fn parent(&self) -> Result<&Arc<Self>> {
        self.parent.as_ref().ok_or_else(|| Failure::new(libc::EINVAL, "the handle is not one of a batch"))
    }
}

impl Open {
    pub(crate) fn filesystem(&self) -> &Arc<Filesystem> {
        match self {
            Self::Volume(opened) => opened.filesystem(),
            Self::Batch(batch) => &batch.fs,
        }
    }
}

impl Entered<'_> {
    /// Returns the file system.
    pub(crate) fn fs(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// Returns the directory to which paths are relative.
    pub(crate) fn root(&self) -> Ino {
        match &*self.open {
            Some(Open::Batch(batch)) => batch.root,
            _ => Ino::ROOT,
        }
    }

    /// Returns the owner of what is created.
    pub(crate) fn caller(&self) -> Caller {
        self.caller
    }

    /// Returns the volume itself; EINVAL for a batch.
    pub(crate) fn volume(&self) -> Result<&OpenedVolume> {
        match &*self.open {
            Some(Open::Volume(opened)) => Ok(opened),
            _ => Err(Failure::new(libc::EINVAL, "the handle is one of a batch; a volume is needed")),
        }
    }

    /// Returns the inode at a path. `follows` says whether a symbolic link at the end of the path is followed.
    pub(crate) async fn resolve(&self, path: &[u8], follows: bool) -> Result<Node> {
        Ok(paths::resolve(self.fs(), self.root(), path, follows).await?)
    }

    /// Returns the directory that contains a path, and the last name of the path.
    pub(crate) async fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(Node, &'p [u8])> {
        Ok(paths::resolve_parent(self.fs(), self.root(), path).await?)
    }
}

/// Returns the id of a batch, as the result of a commit has it.
fn batch_id(text: &[u8]) -> Result<BatchId> {
    let id = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    id.ok_or_else(|| Failure::new(libc::EINVAL, "the text is not the id of a batch"))
}

/// Takes the access key out of options.
fn take_credentials(options: Vec<OsString>) -> Result<(Option<Credentials>, Vec<OsString>)> {
    let (mut key, mut secret, mut token) = (None, None, None);
    let mut others = Vec::new();
    for option in options {
        let split = option.as_bytes().iter().position(|byte| *byte == b'=');
        let (name, value) = option.as_bytes().split_at(split.unwrap_or(option.len()));
        let place = match name {
            name if name == ACCESS_KEY.as_bytes() => &mut key,
            name if name == SECRET_KEY.as_bytes() => &mut secret,
            name if name == SESSION_TOKEN.as_bytes() => &mut token,
            _ => {
                others.push(option);
                continue;
            }
        };
        *place = Some(String::from_utf8_lossy(value.get(1..).unwrap_or_default()).into_owned());
    }
    let credentials = match (key, secret) {
        (Some(key), Some(secret)) => {
            let made = Credentials::new(&key, &secret, token.as_deref());
            Some(made.map_err(|error| Failure::new(libc::EINVAL, error.to_string()))?)
        }
        (None, None) if token.is_none() => None,
        _ => {
            let text = format!("an access key needs both {ACCESS_KEY} and {SECRET_KEY}");
            return Err(Failure::new(libc::EINVAL, text));
        }
    };
    Ok((credentials, others))
}

fn read(open: &RwLock<Option<Open>>) -> RwLockReadGuard<'_, Option<Open>> {
    open.read().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(options: &[&str]) -> Vec<OsString> {
        options.iter().map(OsString::from).collect()
    }

    #[test]
    fn an_access_key_is_no_flag() {
        let options = names(&["region=x", "secret-access-key=s=1", "access-key-id=k", "read-only"]);
        let (credentials, others) = take_credentials(options).unwrap();
        assert!(credentials.is_some());
        assert_eq!(others, names(&["region=x", "read-only"]));
        assert!(take_credentials(names(&["region=x"])).unwrap().0.is_none());
        assert_eq!(take_credentials(names(&["access-key-id=k"])).unwrap_err().errno, libc::EINVAL);
        assert_eq!(take_credentials(names(&["session-token=t"])).unwrap_err().errno, libc::EINVAL);
    }
}
