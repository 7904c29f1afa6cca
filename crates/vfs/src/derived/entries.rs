//! What is made and removed in derived directories: files of the volume, where the view says, and directories of the view.

use meta::{Ino, Kind};

use super::lookups::Target;
use super::nodes::Derivation;
use super::{DerivedEntry, Placed};
use crate::attr::Caller;
use crate::bucket::metadata::{CONTENT_TYPE, TAG, USER};
use crate::filesystem::name;
use crate::names::handles::Opened;
use crate::{Attr, Error, Filesystem, Result};

/// Views show files and directories.
const ONLY_FILES: Error =
    Error::new(libc::EPERM, "a view has files and directories: nothing else is made in one");

impl Filesystem {
    /// An error for what a view cannot have, where `dir` is in one.
    pub(crate) fn check_not_derived(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let is_derived = self.derived_at(dir).is_some() || self.is_derived_name(dir, name);
        if is_derived { Err(ONLY_FILES) } else { Ok(()) }
    }

    /// Makes and opens a file at the place in the volume that the view says, with what keeps it in the view: the first that is
    /// stored of it has that.
    pub(crate) async fn create_derived(
        &self,
        views: &Derivation,
        caller: Caller,
        place: (Ino, &[u8]),
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        self.writable()?;
        let place = (place.0, name(place.1)?);
        if self.resolve_derived(views, &place).await?.is_some() {
            return Err(Error::EXISTS);
        }
        let placed = views.tree.place(&views.path_of((place.0, &place.1))?).await?;
        let Some((file, path)) = placed.path.split_last() else { return Err(Error::NOT_FOUND) };
        let parent = self.make_parent_directories(path).await?;
        let made = self.create_described(caller, parent, file, mode, flags, &placed).await?;
        views.created.insert(place.clone(), made.0.ino);
        views.record_shown(made.0.ino, place);
        Ok(made)
    }

    /// What a new file has beside its bytes waits to be stored with it.
    pub(crate) fn set_pending_description(&self, ino: Ino, placed: &Placed) -> Result<()> {
        let pair = |space: &[u8], name: &str, value: &str| {
            ([space, name.as_bytes()].concat(), value.as_bytes().to_vec())
        };
        let user = placed.properties.iter().map(|(name, value)| pair(USER, name, value));
        let tags = placed.tags.iter().map(|(name, value)| pair(TAG, name, value));
        let content_type = placed.content_type.iter().map(|value| pair(CONTENT_TYPE, "", value));
        for (name, value) in user.chain(tags).chain(content_type) {
            self.set_pending(ino, &name, Some(value.into()))?;
        }
        Ok(())
    }

    /// Removes the file that a name of a view leads to: its object.
    pub(crate) async fn unlink_derived(&self, views: &Derivation, parent: Ino, bytes: &[u8]) -> Result<()> {
        self.writable()?;
        let place = (parent, name(bytes)?);
        let Target::File(inode) = self.resolve_derived(views, &place).await?.ok_or(Error::NOT_FOUND)? else {
            return Err(Error::IS_DIRECTORY);
        };
        let (dir, home) = inode.home.clone().ok_or(Error::NOT_FOUND)?;
        views.created.remove(&place);
        self.unlink_name(dir, &home, inode.ino).await
    }

    /// Makes a directory of the view.
    pub(crate) async fn mkdir_derived(&self, views: &Derivation, parent: Ino, bytes: &[u8]) -> Result<Attr> {
        self.writable()?;
        let place = (parent, name(bytes)?);
        let path = views.path_of((parent, &place.1))?;
        match views.tree.find(&path).await? {
            Some(_) => Err(Error::EXISTS),
            None if path.len() == 1 => Err(Error::new(libc::EPERM, "views are made by rulesets")),
            None => {
                views.tree.make_directory(&path).await?;
                Ok(views.attr(views.refer(place), &self.defaults))
            }
        }
    }

    /// Removes an empty directory of the view.
    pub(crate) async fn rmdir_derived(&self, views: &Derivation, parent: Ino, bytes: &[u8]) -> Result<()> {
        self.writable()?;
        let place = (parent, name(bytes)?);
        let path = views.path_of((parent, &place.1))?;
        match views.tree.find(&path).await? {
            None => return Err(Error::NOT_FOUND),
            Some(DerivedEntry::File(_)) => return Err(Error::NOT_DIRECTORY),
            Some(DerivedEntry::Directory) if path.len() == 1 => {
                return Err(Error::new(libc::EPERM, "views are made by rulesets"));
            }
            Some(DerivedEntry::Directory) => {}
        }
        let dir = views.number(&place);
        if !views.created.names(dir, None, None).is_empty() && self.has_created(views, dir)? {
            return Err(Error::NOT_EMPTY);
        }
        views.tree.remove_directory(&path).await?;
        views.remove(&place);
        Ok(())
    }

    /// Whether a file was made in a directory of which the view does not know yet.
    fn has_created(&self, views: &Derivation, dir: Ino) -> Result<bool> {
        for name in views.created.names(dir, None, None) {
            if self.created_file(views, &(dir, name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn create_described(
        &self,
        caller: Caller,
        parent: Ino,
        file: &[u8],
        mode: u16,
        flags: i32,
        placed: &Placed,
    ) -> Result<(Attr, Opened)> {
        let name = self.free_name(parent, file, Kind::File).await?;
        self.check_not_in_conflict_at(parent, &name)?;
        let made = self.create_here(caller, parent, &name, mode, flags).await?;
        match self.set_pending_description(made.0.ino, placed) {
            Ok(()) => Ok(made),
            Err(error) => {
                self.unlink_name(parent, &name, made.0.ino).await?;
                self.release(made.1.handle).await?;
                self.forget(made.0.ino, 1);
                Err(error)
            }
        }
    }
}
