//! Creation and removal in derived directories: of files of the volume at the location that the view gives, and of directories
//! of the view.

use meta::{Ino, Kind, Origin};

use super::lookups::Target;
use super::nodes::DerivedDirectories;
use super::{DerivedEntry, Placed};
use crate::attr::Caller;
use crate::bucket::metadata::{CONTENT_TYPE, TAG, USER};
use crate::derived::router::ViewRouter;
use crate::derived::views::Views;
use crate::names::handles::Opened;
use crate::names::name;
use crate::{Attr, Error, Result};

/// The error of creating something else than a file or directory in a view, or anything under the name of all views.
const ONLY_FILES: Error = Error::new(libc::EPERM, "a view can contain only files and directories");

impl Views {
    /// Returns an error if `dir` is in a view, or `name` is the views' own.
    pub(crate) fn check_not_derived(&self, dir: Ino, name: &[u8]) -> Result<()> {
        let is_derived = self.derived_at(dir).is_some() || self.is_derived_name(dir, name);
        if is_derived { Err(ONLY_FILES) } else { Ok(()) }
    }
}

impl ViewRouter {
    /// Creates and opens a file at the location in the volume that the view gives, with the metadata that keeps it in the view.
    /// Its first PUT has that metadata.
    pub(crate) async fn create_derived(
        &self,
        views: &DerivedDirectories,
        caller: Caller,
        place: (Ino, &[u8]),
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        self.mount.check_writable()?;
        let place = (place.0, name(place.1)?);
        if self.resolve_derived(views, &place).await?.is_some() {
            return Err(Error::EXISTS);
        }
        let placed = views.tree.place(&views.path_of((place.0, &place.1))?).await?;
        let Some((file, path)) = placed.path.split_last() else { return Err(Error::NOT_FOUND) };
        let parent = self.discovery.make_parent_directories(path).await?;
        let made = self.create_described(caller, parent, file, mode, flags, &placed).await?;
        views.created.insert(place.clone(), made.0.ino);
        views.record_shown(made.0.ino, place);
        Ok(made)
    }

    /// Sets the metadata of a new file as pending changes, to be stored with its bytes.
    pub(crate) fn set_pending_description(&self, ino: Ino, placed: &Placed) -> Result<()> {
        let pair = |space: &[u8], name: &str, value: &str| {
            ([space, name.as_bytes()].concat(), value.as_bytes().to_vec())
        };
        let user = placed.properties.iter().map(|(name, value)| pair(USER, name, value));
        let tags = placed.tags.iter().map(|(name, value)| pair(TAG, name, value));
        let content_type = placed.content_type.iter().map(|value| pair(CONTENT_TYPE, "", value));
        for (name, value) in user.chain(tags).chain(content_type) {
            self.metadata.set_pending(ino, &name, Some(value.into()))?;
        }
        Ok(())
    }

    /// Removes the file under a name of a view, together with its object.
    pub(crate) async fn unlink_derived(
        &self,
        views: &DerivedDirectories,
        parent: Ino,
        bytes: &[u8],
    ) -> Result<()> {
        self.mount.check_writable()?;
        let place = (parent, name(bytes)?);
        let Target::File(inode) = self.resolve_derived(views, &place).await?.ok_or(Error::NOT_FOUND)? else {
            return Err(Error::IS_DIRECTORY);
        };
        let (dir, home) = inode.home.clone().ok_or(Error::NOT_FOUND)?;
        views.created.remove(&place);
        self.remover.unlink_name(Origin::Other, dir, &home, inode.ino).await
    }

    /// Creates a directory of the view.
    pub(crate) async fn mkdir_derived(
        &self,
        views: &DerivedDirectories,
        parent: Ino,
        bytes: &[u8],
    ) -> Result<Attr> {
        self.mount.check_writable()?;
        let place = (parent, name(bytes)?);
        let path = views.path_of((parent, &place.1))?;
        match views.tree.find(&path).await? {
            Some(_) => Err(Error::EXISTS),
            None if path.len() == 1 => {
                Err(Error::new(libc::EPERM, "views are created and removed by rulesets"))
            }
            None => {
                views.tree.make_directory(&path).await?;
                Ok(views.attr(views.refer(place), &self.mount.defaults))
            }
        }
    }

    /// Removes an empty directory of the view.
    pub(crate) async fn rmdir_derived(
        &self,
        views: &DerivedDirectories,
        parent: Ino,
        bytes: &[u8],
    ) -> Result<()> {
        self.mount.check_writable()?;
        let place = (parent, name(bytes)?);
        let path = views.path_of((parent, &place.1))?;
        match views.tree.find(&path).await? {
            None => return Err(Error::NOT_FOUND),
            Some(DerivedEntry::File(_)) => return Err(Error::NOT_DIRECTORY),
            Some(DerivedEntry::Directory) if path.len() == 1 => {
                return Err(Error::new(libc::EPERM, "views are created and removed by rulesets"));
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

    /// Returns whether a directory has a created file that the view does not know yet.
    fn has_created(&self, views: &DerivedDirectories, dir: Ino) -> Result<bool> {
        for name in views.created.names(dir, None, None) {
            if self.created_file(views, &(dir, name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Creates and opens a file of the volume, with the metadata that its view requires. On failure no file stays.
    async fn create_described(
        &self,
        caller: Caller,
        parent: Ino,
        file: &[u8],
        mode: u16,
        flags: i32,
        placed: &Placed,
    ) -> Result<(Attr, Opened)> {
        let name = self.discovery.free_name(parent, file, Kind::File).await?;
        self.creator.check_not_in_conflict(parent, &name)?;
        let made = self.creator.create_here(Origin::Other, caller, parent, &name, mode, flags).await?;
        match self.set_pending_description(made.0.ino, placed) {
            Ok(()) => Ok(made),
            Err(error) => {
                self.remover.unlink_name(Origin::Other, parent, &name, made.0.ino).await?;
                self.editor.release(made.1.handle).await?;
                self.name_evictor.forget(made.0.ino, 1);
                Err(error)
            }
        }
    }
}
