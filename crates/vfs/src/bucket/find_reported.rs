//! Finds the inodes of files that a view reports.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use meta::{Ino, Inode, Kind, Moment, Name};
use store::ObjectKey;

use crate::bucket::discovery::Discovery;
use crate::bucket::reconcile::reported::Resolution;
use crate::derived::DerivedFile;
use crate::{Error, Result};

/// Maximum concurrent lookups.
const LOOKS_AT_ONCE: usize = 32;

impl Discovery {
    /// Returns the reported files, in the order of the reports; `None` for files that do not exist. Sends requests only where
    /// the bucket alone can tell which of two states is newer.
    pub(crate) async fn resolve_reported(
        &self,
        files: &[&DerivedFile],
        asked_at: Moment,
    ) -> Result<Vec<Option<Inode>>> {
        self.name_evictor.evict_if_needed(files.len())?;
        let (mut found, mut looks) = (Vec::with_capacity(files.len()), Vec::new());
        let resolutions = self.reconciler.apply_reports(files, asked_at)?;
        let made = resolutions.iter().filter_map(|resolution| {
            if let Resolution::Imported(_, _, ino) = resolution { Some(*ino) } else { None }
        });
        let mut made = self.names.tables().inodes(&made.collect::<Vec<_>>())?.into_iter();
        for (file, resolution) in files.iter().zip(resolutions) {
            found.push(match resolution {
                Resolution::Known(inode) => Some(*inode),
                Resolution::Imported(dir, name, _) => match made.next().flatten() {
                    Some(inode) => Some(inode),
                    None => self.names.tables().lookup(dir, &name)?,
                },
                Resolution::Updated(dir, name) => self.names.tables().lookup(dir, &name)?,
                Resolution::AskBucket(dir, name) => {
                    looks.push((found.len(), dir, name, file.key.clone()));
                    None
                }
                Resolution::NoName => None,
            });
        }
        let looks = looks.into_iter().map(|(number, dir, name, key)| async move {
            Ok::<_, Error>((number, self.probe_path(dir, name, &key).await?))
        });
        let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
        while let Some((number, inode)) = looks.try_next().await? {
            found[number] = inode;
        }
        drop(looks);
        Ok(found)
    }

    /// Asks the bucket for a name on the path of a key. If it is that of a directory, also asks for the file's own
    /// name. Returns the file; `None` if there is none.
    async fn probe_path(&self, dir: Ino, name: Name, key: &ObjectKey) -> Result<Option<Inode>> {
        self.probe(dir, &name).await?;
        let Some(known) = self.names.known_path(key)? else { return Ok(None) };
        match known.next {
            Some(name) if known.is_last => {
                if known.dir != dir {
                    self.probe(known.dir, &name).await?;
                }
                Ok(self.names.tables().lookup(known.dir, &self.names.visible_name(known.dir, &name)?)?)
            }
            _ => Ok(None),
        }
    }

    /// Returns the directory with this path, and imports missing directories as implicit ones. Fails with ENOTDIR if a
    /// name on the path is a file's.
    pub(crate) async fn make_parent_directories(&self, path: &[Vec<u8>]) -> Result<Ino> {
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(name)?;
            let before = self.known.directories().before_lookup(dir, self.mount.moment());
            dir = match self.find(dir, &name).await? {
                Some(inode) if inode.is_dir() => inode.ino,
                Some(_) => return Err(crate::Error::NOT_DIRECTORY),
                None => {
                    let free_at = self.known.free_at(dir, &name, before.at)?;
                    let _changing = self.known.changes().begin(dir, &name);
                    self.names.check_not_escape(dir, &name, Kind::Directory)?;
                    let made = self.reconciler.import_implicit_directory(dir, name, self.mount.moment())?;
                    self.known.directories().mark_empty(made, &before, free_at);
                    made
                }
            };
        }
        Ok(dir)
    }
}

impl Discovery {
    /// Returns the inode, or ENOENT if there is none.
    pub(crate) fn must(&self, found: Option<Inode>) -> Result<Inode> {
        found.ok_or(Error::NOT_FOUND)
    }
}
