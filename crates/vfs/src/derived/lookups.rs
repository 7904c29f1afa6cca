//! Lookups in derived directories.

use meta::{Ino, Inode, Name};
use std::sync::Arc;
use std::time::Duration;

use super::nodes::{DentryKey, DerivedDirectories};
use super::{Derived, DerivedEntry, is_derived};
use crate::derived::router::ViewRouter;
use crate::derived::views::Views;
use crate::{Attr, Error, Result};

/// The entry under a name of a derived directory.
#[derive(Debug)]
pub(super) enum Target {
    Directory,
    File(Box<Inode>),
}

impl Views {
    /// Sets the derived directories. Fails with EBUSY if there are some already.
    fn attach(&self, derived: DerivedDirectories) -> Result<()> {
        let outcome = self.derived.set(derived);
        outcome.map_err(|_| Error::new(libc::EBUSY, "derived directories are shown already"))
    }

    /// Returns the derived directories, once there are some.
    pub(crate) fn attached(&self) -> Option<&DerivedDirectories> {
        self.derived.get()
    }

    /// Returns the derived directories if an inode is one of them.
    pub(crate) fn derived_at(&self, ino: Ino) -> Option<&DerivedDirectories> {
        self.derived.get().filter(|views| is_derived(ino) || ino == views.root)
    }

    /// Returns whether a name in a directory is that of the derived directories. They hide any other entry with this name.
    pub(crate) fn is_derived_name(&self, parent: Ino, name: &[u8]) -> bool {
        parent == Ino::ROOT
            && self
                .derived
                .get()
                .is_some_and(|views| views.at.as_ref().is_some_and(|at| at.as_bytes() == name))
    }

    /// Returns whether an inode is a derived directory, including the root if it is one.
    pub(crate) fn is_derived_directory(&self, ino: Ino) -> bool {
        self.derived_at(ino).is_some()
    }

    /// Fails with EPERM if an inode is a derived directory, which stores no changes of attributes.
    pub(crate) fn check_not_derived_directory(&self, ino: Ino) -> Result<()> {
        match self.is_derived_directory(ino) {
            true => Err(Error::new(libc::EPERM, "cannot change the attributes of a directory of a view")),
            false => Ok(()),
        }
    }
}

impl ViewRouter {
    /// Shows a tree of derived directories under the name `at` in the root, or in place of all other names. Fails with
    /// EBUSY if one is shown already.
    pub(crate) fn attach(
        &self,
        at: Option<Name>,
        tree: Arc<dyn Derived>,
        top_mode: Option<u16>,
    ) -> Result<()> {
        let directories = DerivedDirectories::new(tree, at, top_mode, self.mount.now());
        self.derived.attach(directories)
    }

    /// Looks up a name in a derived directory, or the name of the derived directories in the root.
    pub(crate) async fn lookup_derived(
        &self,
        views: &DerivedDirectories,
        parent: Ino,
        name: Name,
    ) -> Result<Attr> {
        if parent == Ino::ROOT && views.root != Ino::ROOT {
            return Ok(views.attr(views.root, &self.mount.defaults));
        }
        let place = (parent, name);
        loop {
            match self.resolve_derived(views, &place).await?.ok_or(Error::NOT_FOUND)? {
                Target::Directory => return Ok(views.attr(views.refer(place), &self.mount.defaults)),
                Target::File(inode) => {
                    let inode = self.discovery.with_exact_attributes(*inode).await?;
                    if self.refer_shown(views, inode.ino, &place) {
                        return Ok(self.content.attr(inode));
                    }
                }
            }
        }
    }

    /// Adds a kernel reference to a file found in a derived directory. Returns false if the file was evicted meanwhile.
    pub(super) fn refer_shown(&self, views: &DerivedDirectories, ino: Ino, place: &DentryKey) -> bool {
        let is_referred = self.name_evictor.refer(ino);
        if is_referred {
            views.record_shown(ino, place.clone());
        }
        is_referred
    }

    /// Returns the entry under a name of a derived directory; `None` if there is none.
    pub(super) async fn resolve_derived(
        &self,
        views: &DerivedDirectories,
        place: &DentryKey,
    ) -> Result<Option<Target>> {
        let path = views.path_of((place.0, &place.1))?;
        let asked_at = self.mount.moment();
        match views.tree.find(&path).await? {
            Some(DerivedEntry::Directory) => Ok(Some(Target::Directory)),
            Some(DerivedEntry::File(file)) => {
                let inode = self.discovery.resolve_reported(&[&file], asked_at).await?.pop().flatten();
                views.created.remove(place);
                Ok(inode.map(|inode| Target::File(Box::new(inode))))
            }
            None => Ok(self.created_file(views, place)?.map(|inode| Target::File(Box::new(inode)))),
        }
    }

    /// Returns the file that was created under a name and that the view does not know yet; `None` if there is none, or
    /// it has had enough time to become known.
    pub(crate) fn created_file(
        &self,
        views: &DerivedDirectories,
        place: &DentryKey,
    ) -> Result<Option<Inode>> {
        let Some(ino) = views.created.get(place) else { return Ok(None) };
        let inode = self.names.tables().inodes(&[ino])?.pop().flatten();
        let Some(inode) = inode.filter(|inode| inode.home.is_some()) else {
            views.created.remove(place);
            return Ok(None);
        };
        let is_stored = inode.object().is_some() && !self.content.has_unpublished_writes(ino);
        let recency = || views.path(place.0).map_or(Duration::ZERO, |path| views.tree.recency(&path));
        if is_stored && !views.created.is_pending(place, self.mount.moment(), recency()) {
            return Ok(None);
        }
        Ok(Some(inode))
    }

    /// Returns a file that was found in a view, if the view still shows it there; otherwise `None`.
    pub(crate) async fn revalidate_shown(&self, ino: Ino) -> Result<Option<Inode>> {
        let Some(views) = self.derived.attached() else { return Ok(None) };
        let Some(place) = views.shown_at(ino) else { return Ok(None) };
        match self.resolve_derived(views, &place).await {
            Ok(Some(Target::File(inode))) if inode.ino == ino => {
                Ok(Some(self.discovery.with_exact_attributes(*inode).await?))
            }
            Ok(_) | Err(Error::Errno { errno: libc::ENOENT, .. }) => {
                views.forget_file(ino);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the attributes of a derived directory; ENOENT if the view no longer has it.
    pub(crate) async fn derived_attr(&self, views: &DerivedDirectories, ino: Ino) -> Result<Attr> {
        let path = views.path(ino)?;
        if !path.is_empty() && !matches!(views.tree.find(&path).await?, Some(DerivedEntry::Directory)) {
            return Err(Error::NOT_FOUND);
        }
        Ok(views.attr(ino, &self.mount.defaults))
    }
}
