//! Renames in derived directories.
//!
//! A file that gets another name in its directory is renamed in the volume. A file that gets another directory has its
//! properties changed by the view. Nothing can be moved between views, or between a view and the volume's own directories.

use meta::{Ino, Inode, Name, Origin};

use super::lookups::Target;
use super::nodes::{DentryKey, DerivedDirectories};
use crate::derived::router::ViewRouter;
use crate::names::name;
use crate::{Error, Result};

/// The error of a rename that the view cannot make; programs then copy.
const ELSEWHERE: Error = Error::new(libc::EXDEV, "cannot move entries out of or into a view: copy them");

impl ViewRouter {
    /// Renames an entry if the source or the destination is in a view.
    pub(crate) async fn rename_derived(
        &self,
        views: &DerivedDirectories,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        flags: u32,
    ) -> Result<()> {
        self.mount.check_writable()?;
        let is_within = self.derived.derived_at(from.0).is_some() && self.derived.derived_at(to.0).is_some();
        if !is_within {
            return Err(ELSEWHERE);
        }
        if flags & !libc::RENAME_NOREPLACE != 0 {
            return Err(Error::new(libc::EINVAL, "entries of a view cannot be exchanged"));
        }
        let (from, to) = ((from.0, name(from.1)?), (to.0, name(to.1)?));
        let (old_path, new_path) = (views.path_of((from.0, &from.1))?, views.path_of((to.0, &to.1))?);
        if old_path.len() < 2 || new_path.len() < 2 {
            return Err(Error::new(libc::EPERM, "views are named by their rulesets"));
        }
        if old_path[0] != new_path[0] {
            return Err(ELSEWHERE);
        }
        let source = self.resolve_derived(views, &from).await?.ok_or(Error::NOT_FOUND)?;
        let target = self.resolve_derived(views, &to).await?;
        if target.is_some() && flags & libc::RENAME_NOREPLACE != 0 {
            return Err(Error::EXISTS);
        }
        match (source, target) {
            (Target::Directory, Some(Target::File(_))) => Err(Error::NOT_DIRECTORY),
            (Target::File(_), Some(Target::Directory)) => Err(Error::IS_DIRECTORY),
            (Target::Directory, _) => {
                self.move_shown_directory(views, (&from, &old_path), (&to, &new_path)).await
            }
            (Target::File(file), None) => {
                self.move_shown(views, *file, (&from, &old_path), (&to, &new_path)).await
            }
            (Target::File(file), Some(Target::File(other))) => {
                self.replace_shown(views, *file, *other, &from, &to).await
            }
        }
    }

    async fn move_shown_directory(
        &self,
        views: &DerivedDirectories,
        (from, old_path): (&DentryKey, &[Name]),
        (to, new_path): (&DentryKey, &[Name]),
    ) -> Result<()> {
        if new_path.starts_with(old_path) && new_path.len() > old_path.len() {
            return Err(Error::new(libc::EINVAL, "cannot move a directory into itself"));
        }
        views.tree.rename(old_path, new_path).await?;
        views.rename(from, to);
        Ok(())
    }

    /// Moves a file of a view to a free name in its directory, or to another directory under its name.
    async fn move_shown(
        &self,
        views: &DerivedDirectories,
        file: Inode,
        (from, old_path): (&DentryKey, &[Name]),
        (to, new_path): (&DentryKey, &[Name]),
    ) -> Result<()> {
        if from.0 == to.0 {
            // Fails if the view could not show the new name.
            views.tree.place(new_path).await?;
            let (dir, home) = file.home.clone().ok_or(Error::NOT_FOUND)?;
            self.renamer
                .rename_in_volume(
                    Origin::Other,
                    (dir, home.as_bytes()),
                    (dir, to.1.as_bytes()),
                    libc::RENAME_NOREPLACE,
                )
                .await?;
        } else if from.1 == to.1 {
            views.tree.rename(old_path, new_path).await?;
        } else {
            return Err(ELSEWHERE);
        }
        self.note_renamed(views, from, to, &file);
        Ok(())
    }

    /// Replaces a file by another one, in the view and in the volume.
    async fn replace_shown(
        &self,
        views: &DerivedDirectories,
        file: Inode,
        other: Inode,
        from: &DentryKey,
        to: &DentryKey,
    ) -> Result<()> {
        if file.ino == other.ino {
            return Ok(());
        }
        if from.0 != to.0 {
            return Err(ELSEWHERE);
        }
        let (dir, home) = file.home.clone().ok_or(Error::NOT_FOUND)?;
        let (other_dir, other_home) = other.home.clone().ok_or(Error::NOT_FOUND)?;
        let (from_home, to_home) = ((dir, home.as_bytes()), (other_dir, other_home.as_bytes()));
        self.renamer.rename_in_volume(Origin::Other, from_home, to_home, 0).await?;
        self.note_renamed(views, from, to, &file);
        Ok(())
    }

    /// Shows a file under its new name until the view knows it. Front ends know the new name, and must not cache it for the
    /// view's lifetime.
    fn note_renamed(&self, views: &DerivedDirectories, from: &DentryKey, to: &DentryKey, file: &Inode) {
        views.created.remove(from);
        views.created.insert(to.clone(), file.ino);
        self.names.tell_entry(to.0, to.1.as_bytes());
    }
}
