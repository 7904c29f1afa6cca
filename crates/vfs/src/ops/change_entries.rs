//! Operations that change directory entries.

use bytes::Bytes;
use meta::{FsError, Ino, Inode, Kind, Name, Op, Origin};

use crate::attr::Caller;
use crate::content::open_file::OpenFile;
use crate::content::write::When;
use crate::followers::op_log::FrontEndChange;
use crate::names::handles::Opened;
use crate::names::name;
use crate::{Attr, Error, Filesystem, Result};

/// Maximum length of a symbolic link target in bytes (`PATH_MAX` without its NUL).
const TARGET_BYTES_MAX: usize = 4095;

impl Filesystem {
    /// Creates and opens a file. The file is stored at close, except for an exclusive create (`O_EXCL`) on a shared bucket,
    /// which stores an empty object at once.
    pub async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        if let Some(views) = self.views.derived.derived_at(parent) {
            return Box::pin(self.views.create_derived(views, caller, (parent, name_bytes), mode, flags))
                .await;
        }
        self.views.derived.check_not_derived(parent, name_bytes)?;
        let name = self.bucket.discovery.free_name(parent, name_bytes, Kind::File).await?;
        let creator = &self.entries.creator;
        creator.check_not_in_conflict(parent, &name)?;
        let change = FrontEndChange::begin(&self.names);
        let created = match self.bucket.known.sharing() {
            Some(_) => creator.create_shared(caller, parent, &name, mode, flags).await?,
            None => creator.create_here(Origin::FrontEnd, caller, parent, &name, mode, flags).await?,
        };
        change.succeed();
        Ok(created)
    }

    /// Creates and opens a file without a name (`O_TMPFILE`). It is deleted with its last handle unless it is linked before,
    /// which `O_EXCL` in `flags` forbids.
    pub async fn create_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        self.mount.check_writable()?;
        self.volume.create_unnamed(caller, parent, mode, flags).await
    }

    /// Creates a file without opening it, or a special file: an empty object.
    pub async fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        kind: Kind,
        mode: u16,
        rdev: u32,
    ) -> Result<Attr> {
        self.views.derived.check_not_derived(parent, name_bytes)?;
        let name = self.bucket.discovery.free_name(parent, name_bytes, kind).await?;
        let (creator, origin) = (&self.entries.creator, Origin::FrontEnd);
        let change = FrontEndChange::begin(&self.names);
        let made = creator.make_stored(origin, caller, parent, &name, kind, mode, rdev, None).await?;
        change.succeed();
        Ok(made)
    }

    /// Creates a directory and its marker object.
    pub async fn mkdir(&self, caller: Caller, parent: Ino, name_bytes: &[u8], mode: u16) -> Result<Attr> {
        if let Some(views) = self.views.derived.derived_at(parent) {
            return self.views.mkdir_derived(views, parent, name_bytes).await;
        }
        let change = FrontEndChange::begin(&self.names);
        let made = self.mkdir_by(Origin::FrontEnd, caller, parent, name_bytes, mode).await?;
        change.succeed();
        Ok(made)
    }

    /// Creates a directory of the volume for `origin`.
    pub(crate) async fn mkdir_by(
        &self,
        origin: Origin,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        mode: u16,
    ) -> Result<Attr> {
        self.views.derived.check_not_derived(parent, name_bytes)?;
        let (kind, directories) = (Kind::Directory, self.bucket.known.directories());
        let before = directories.before_lookup(parent, self.mount.moment());
        let name = self.bucket.discovery.free_name(parent, name_bytes, kind).await?;
        let free_at = self.bucket.known.free_at(parent, &name, before.at)?;
        let made =
            self.entries.creator.make_stored(origin, caller, parent, &name, kind, mode, 0, None).await?;
        directories.mark_empty(made.ino, &before, free_at);
        Ok(made)
    }

    /// Creates a symbolic link: an object whose body is the target.
    pub async fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        self.views.derived.check_not_derived(parent, name_bytes)?;
        if target.is_empty() {
            return Err(Error::new(libc::ENOENT, "the target of a symbolic link must not be empty"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::new(
                libc::ENAMETOOLONG,
                "the target of a symbolic link has at most 4095 bytes",
            ));
        }
        let name = self.bucket.discovery.free_name(parent, name_bytes, Kind::Symlink).await?;
        let target = Bytes::copy_from_slice(target);
        let (creator, origin, kind) = (&self.entries.creator, Origin::FrontEnd, Kind::Symlink);
        let change = FrontEndChange::begin(&self.names);
        let made = creator.make_stored(origin, caller, parent, &name, kind, 0o777, 0, Some(target)).await?;
        change.succeed();
        Ok(made)
    }

    /// Gives a file a further name, or its first one, in which case its content is stored now. In a volume named by path, content that
    /// was never stored is stored in any case, and the bucket still shows the file under its primary name only. EPERM for a directory and
    /// on a shared bucket.
    pub async fn link(&self, ino: Ino, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        let change = FrontEndChange::begin(&self.names);
        self.views.derived.check_not_derived(parent, name_bytes)?;
        let before = self.names.tables().inode(ino)?;
        if before.kind == Kind::Directory {
            return Err(Error::new(libc::EPERM, "a directory cannot have a second name"));
        }
        if self.bucket.known.sharing().is_some() {
            let why = "hard links are not possible on a shared bucket: other mounts would not see them";
            return Err(Error::new(libc::EPERM, why));
        }
        let name = self.bucket.discovery.free_name(parent, name_bytes, before.kind).await?;
        // If another call closes the last handle of a file without a name, its bytes stay until they are stored.
        let file = self.io.opener.open_file(ino)?;
        let linked = link_open_file(self, &file, &before, (parent, name)).await;
        file.close().await?;
        linked?;
        let inode = match self.names.tables().inode(ino) {
            // Another machine has removed all names by now.
            Err(FsError::NotFound) => before,
            inode => inode?,
        };
        self.names.references().add(ino);
        change.succeed();
        Ok(self.content.attr(inode))
    }
}

impl Filesystem {
    /// Removes a name of a file; open handles keep reading and writing the file.
    pub async fn unlink(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        if let Some(views) = self.views.derived.derived_at(parent) {
            return Box::pin(self.views.unlink_derived(views, parent, name_bytes)).await;
        }
        self.mount.check_writable()?;
        let name = name(name_bytes)?;
        let change = FrontEndChange::begin(&self.names);
        self.volume.unlink(parent, name).await?;
        change.succeed();
        Ok(())
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        if let Some(views) = self.views.derived.derived_at(parent) {
            return self.views.rmdir_derived(views, parent, name_bytes).await;
        }
        let change = FrontEndChange::begin(&self.names);
        self.rmdir_by(Origin::FrontEnd, parent, name_bytes).await?;
        change.succeed();
        Ok(())
    }

    /// Removes an empty directory of the volume for `origin`.
    pub(crate) async fn rmdir_by(&self, origin: Origin, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        self.views.derived.check_not_derived(parent, name_bytes)?;
        self.mount.check_writable()?;
        let name = name(name_bytes)?;
        let inode = self.bucket.discovery.must(self.bucket.discovery.find(parent, &name).await?)?;
        if inode.kind != Kind::Directory {
            return Err(Error::NOT_DIRECTORY);
        }
        self.volume.rmdir(origin, parent, name, &inode).await
    }
}

impl Filesystem {
    /// Renames a name; `flags` are those of `renameat2`.
    pub async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        self.mount.check_writable()?;
        if let Some(views) =
            self.views.derived.derived_at(from.0).or_else(|| self.views.derived.derived_at(to.0))
        {
            return Box::pin(self.views.rename_derived(views, from, to, flags)).await;
        }
        self.views.derived.check_not_derived(from.0, from.1)?;
        self.views.derived.check_not_derived(to.0, to.1)?;
        let change = FrontEndChange::begin(&self.names);
        Box::pin(self.volume.rename(from, to, flags)).await?;
        change.succeed();
        Ok(())
    }
}

/// Gives an open file a name. A file that had none is stored then; if that fails, it loses the name again. In a volume named by path a file
/// that was never stored is stored before: if a crash ended its first upload, its object would count as another file, without the links.
async fn link_open_file(
    fs: &Filesystem,
    file: &OpenFile,
    before: &Inode,
    (parent, name): (Ino, Name),
) -> Result<()> {
    if before.is_orphan() && !file.is_linkable() {
        return Err(Error::new(
            libc::ENOENT,
            "a file that lost its last name, or was created with O_TMPFILE and O_EXCL, cannot be linked",
        ));
    }
    let is_new = before.object().is_none() && before.kind == Kind::File;
    if is_new && fs.names.path_key(before)?.is_some() {
        fs.io.publisher.commit(file, When::Open).await?;
    }
    {
        // The file's lock keeps its primary name from being promoted or removed meanwhile.
        let _state = file.write_state.lock().await;
        // The link is only in this machine's metadata. It must not survive a crash that undoes pending renames of the file,
        // or it would lead to another file.
        fs.bucket.moves.sync_move_journal().await?;
        fs.names.commit(Origin::FrontEnd, &Op::Link { ino: file.ino, parent, name: name.clone() })?;
    }
    if before.is_orphan()
        && let Err(error) = fs.entries.creator.store_named(file).await
    {
        fs.names.commit(Origin::FrontEnd, &Op::Unlink { parent, name, keep: true })?;
        return Err(error);
    }
    Ok(())
}
