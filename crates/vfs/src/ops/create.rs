//! Creation of files, directories, symbolic links and special files.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Name, Op};
use std::sync::Arc;
use store::{Payload, Precondition, PutOptions, StoreError};

use crate::attr::Caller;
use crate::bucket::headers;
use crate::bucket::metadata::Described;
use crate::content::open_file::OpenFile;
use crate::content::write::When;
use crate::filesystem::name;
use crate::layout::is_reserved;
use crate::names::handles::Opened;
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
        if let Some(views) = self.derived_at(parent) {
            return Box::pin(self.create_derived(views, caller, (parent, name_bytes), mode, flags)).await;
        }
        self.check_not_derived(parent, name_bytes)?;
        let name = self.free_name(parent, name_bytes, Kind::File).await?;
        self.check_not_in_conflict_at(parent, &name)?;
        if self.sharing.is_some() {
            return self.create_shared(caller, parent, &name, mode, flags).await;
        }
        self.create_here(caller, parent, &name, mode, flags).await
    }

    /// Creates a file on a bucket that other machines mount too. For `O_EXCL` a conditional PUT of an empty object decides
    /// which mount creates the file; otherwise a file that another mount has created is opened.
    async fn create_shared(
        &self,
        caller: Caller,
        parent: Ino,
        name: &Name,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let has_key = self.layout.has_key(&self.layout.directory(&self.names, parent)?, name, Kind::File);
        if flags & libc::O_EXCL == 0 || !has_key {
            self.probe(parent, name).await?;
            if self.names.entry(parent, name)?.is_some() {
                return Err(Error::StaleEntry("another mount of the bucket has just created the file"));
            }
            return self.create_here(caller, parent, name, mode, flags).await;
        }
        let attr = self.make_stored(caller, parent, name, Kind::File, mode, 0, None).await?;
        // `make_stored` has counted the kernel's reference already.
        let file = self.open_file(attr.ino)?;
        Ok((attr, self.new_handle(file.into_open_file(), flags | libc::O_RDWR)))
    }

    pub(crate) async fn create_here(
        &self,
        caller: Caller,
        parent: Ino,
        name: &Name,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let (inode, file) = {
            // A file that is neither stored nor open would look like the leftover of a dead mount.
            let _changing = self.layout.follows_paths().then(|| self.changes.begin(parent, name));
            let inode = self.make(caller, parent, name, Kind::File, mode, 0, None)?;
            let file = self.open_file(inode.ino)?;
            file.set_new(true);
            (inode, file)
        };
        let begun = self.begin_new(&file, &mut *file.write_state.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            self.roll_back_create(parent, name, &inode)?;
            return Err(error);
        }
        self.references.add(inode.ino);
        // The creator stores the file at close, even through a read-only descriptor.
        Ok((Attr::from(&file.overlay(inode)), self.new_handle(file.into_open_file(), flags | libc::O_RDWR)))
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
        self.check_writable()?;
        if self.layout.follows_paths() {
            let why = "files without a name (O_TMPFILE) are not possible in a volume named by path";
            return Err(Error::new(libc::EOPNOTSUPP, why));
        }
        let ino = self.new_ino(parent)?;
        let (mode, umask) = (mode & 0o7777, caller.umask & 0o777);
        let op = Op::CreateOrphan { parent, ino, mode, umask, uid: caller.uid, gid: caller.gid };
        let inode = self.names.commit(&self.ctx(), &op)?.inode.ok_or(Error::NOT_FOUND)?;
        let file = self.open_file(ino)?;
        file.set_linkable(flags & libc::O_EXCL == 0);
        let begun = self.begin_new(&file, &mut *file.write_state.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            return Err(error);
        }
        self.references.add(ino);
        Ok((Attr::from(&file.overlay(inode)), self.new_handle(file.into_open_file(), flags)))
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
        self.check_not_derived(parent, name_bytes)?;
        let name = self.free_name(parent, name_bytes, kind).await?;
        self.make_stored(caller, parent, &name, kind, mode, rdev, None).await
    }

    /// Creates a directory and its marker object.
    pub async fn mkdir(&self, caller: Caller, parent: Ino, name_bytes: &[u8], mode: u16) -> Result<Attr> {
        if let Some(views) = self.derived_at(parent) {
            return self.mkdir_derived(views, parent, name_bytes).await;
        }
        self.check_not_derived(parent, name_bytes)?;
        let name = self.free_name(parent, name_bytes, Kind::Directory).await?;
        self.make_stored(caller, parent, &name, Kind::Directory, mode, 0, None).await
    }

    /// Creates a symbolic link: an object whose body is the target.
    pub async fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        self.check_not_derived(parent, name_bytes)?;
        if target.is_empty() {
            return Err(Error::new(libc::ENOENT, "the target of a symbolic link must not be empty"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::new(
                libc::ENAMETOOLONG,
                "the target of a symbolic link has at most 4095 bytes",
            ));
        }
        let name = self.free_name(parent, name_bytes, Kind::Symlink).await?;
        let target = Bytes::copy_from_slice(target);
        self.make_stored(caller, parent, &name, Kind::Symlink, 0o777, 0, Some(target)).await
    }

    /// Gives a file a further name, or its first one, in which case its content is stored now. In a volume named by path the
    /// bucket still shows the file under its primary name only.
    pub async fn link(&self, ino: Ino, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        self.check_not_derived(parent, name_bytes)?;
        let before = self.names.inode(ino)?;
        if before.kind == Kind::Directory {
            return Err(Error::new(libc::EPERM, "a directory cannot have a second name"));
        }
        if self.sharing.is_some() {
            let why = "hard links are not possible on a shared bucket: other mounts would not see them";
            return Err(Error::new(libc::EPERM, why));
        }
        let name = self.free_name(parent, name_bytes, before.kind).await?;
        let unnamed = if before.is_orphan() { Some(self.file_to_link(ino)?) } else { None };
        let file = self.open_file(ino)?;
        let linked = async {
            // The file's lock keeps its primary name from being promoted or removed meanwhile.
            let _state = file.write_state.lock().await;
            // The link is only in this machine's metadata. It must not survive a crash that undoes pending renames of the file,
            // or it would lead to another file.
            self.sync_move_journal().await?;
            self.names.commit(&self.ctx(), &Op::Link { ino, parent, name: name.clone() })?;
            Ok::<_, Error>(())
        };
        let linked = linked.await;
        file.close().await?;
        linked?;
        if let Some(file) = unnamed
            && let Err(error) = self.store_named(&file).await
        {
            self.names.commit(&self.ctx(), &Op::Unlink { parent, name, keep: true })?;
            return Err(error);
        }
        self.references.add(ino);
        Ok(self.attr(self.names.inode(ino)?))
    }

    /// Stores the content of a file that has just got its first name, and makes it an ordinary file.
    async fn store_named(&self, file: &OpenFile) -> Result<()> {
        self.commit(file, When::Open).await?;
        file.set_linkable(false);
        Ok(())
    }

    /// Returns the open file of an inode without a name, if the inode may be linked.
    fn file_to_link(&self, ino: Ino) -> Result<Arc<OpenFile>> {
        let file = self.files.get(ino).filter(|file| file.is_linkable());
        file.ok_or(Error::new(
            libc::ENOENT,
            "a file that lost its last name, or was created with O_TMPFILE and O_EXCL, cannot be linked",
        ))
    }

    /// Returns a name that may be created: valid, not reserved, and not taken according to the bucket.
    pub(crate) async fn free_name(&self, parent: Ino, bytes: &[u8], kind: Kind) -> Result<Name> {
        self.check_writable()?;
        let name = name(bytes)?;
        if is_reserved(parent, bytes) {
            return Err(Error::new(libc::EPERM, "'.tenon' at the volume's root is reserved for Tenon"));
        }
        match self.find(parent, &name).await? {
            Some(_) => Err(Error::EXISTS),
            None => self.check_not_escape(parent, &name, kind).map(|()| name),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a new inode has so many properties")]
    fn make(
        &self,
        caller: Caller,
        parent: Ino,
        name: &Name,
        kind: Kind,
        mode: u16,
        rdev: u32,
        target: Option<Bytes>,
    ) -> Result<Inode> {
        let ino = self.new_ino(parent)?;
        let op = Op::Create {
            parent,
            name: name.clone(),
            ino,
            kind,
            mode: mode & 0o7777,
            umask: caller.umask & 0o777,
            uid: caller.uid,
            gid: caller.gid,
            rdev,
            target,
        };
        let made = self.names.commit(&self.ctx(), &op)?.inode;
        made.ok_or(Error::new(libc::EIO, "the namespace created no inode"))
    }

    /// Creates an inode that is stored at once; if it cannot be stored, the creation is undone.
    #[expect(clippy::too_many_arguments, reason = "a new inode has so many properties")]
    async fn make_stored(
        &self,
        caller: Caller,
        parent: Ino,
        name: &Name,
        kind: Kind,
        mode: u16,
        rdev: u32,
        target: Option<Bytes>,
    ) -> Result<Attr> {
        let _path = self.lock_entries(&[&(parent, name.clone())]).await?;
        // A directory that is not stored yet would look like one that was removed in the bucket.
        let _changing = self.changes.begin(parent, name);
        let inode = self.make(caller, parent, name, kind, mode, rdev, target.clone())?;
        let body = target.unwrap_or_default();
        if let Err(error) = self.store_new_locked(&inode, body, Precondition::Absent).await {
            self.roll_back_create(parent, name, &inode)?;
            return Err(if error.errno() == libc::ESTALE { Error::EXISTS } else { error });
        }
        if kind == Kind::Directory {
            self.directories.get(inode.ino).mark_complete(self.moment());
            self.forget_settings_of(parent, name)?;
        }
        self.references.add(inode.ino);
        Ok(Attr::from(&self.names.inode(inode.ino)?))
    }

    /// Stores the object of an inode without file content: a marker, a symbolic link, an empty file.
    pub(crate) async fn store_new(
        &self,
        inode: &Inode,
        body: Bytes,
        precondition: Precondition,
    ) -> Result<()> {
        let _path = self.lock_path(inode.ino).await?;
        self.store_new_locked(inode, body, precondition).await
    }

    /// Like `store_new`, for a caller that has locked the path.
    async fn store_new_locked(&self, inode: &Inode, body: Bytes, precondition: Precondition) -> Result<()> {
        if !self.has_path_key(inode)? {
            return Ok(());
        }
        self.ensure_volume_record().await?;
        let key = match self.layout.path_key(&self.names, inode) {
            Ok(key) => key,
            // The key of a directory with a continued (overlong) name exists only as a part of the keys inside it.
            Err(_) if inode.kind == Kind::Directory => return Ok(()),
            Err(error) => return Err(error),
        };
        let _claim = self.claims.claim(&key).await;
        match self.names.inode(inode.ino) {
            Ok(now) if now.home == inode.home => {}
            // The inode was removed or renamed before it was stored.
            _ => return Ok(()),
        }
        let had = match self.object(inode)? {
            Some(there) => self.store.find(&there.key).await?,
            None => None,
        };
        let had = match &had {
            Some(meta) => self.read_description(meta).await?,
            None => headers::new(inode).into(),
        };
        let described = self.updated_description(inode, had)?;
        let Described { attributes, tags } = described.clone();
        let options =
            PutOptions { precondition, attributes: attributes.clone(), tags, ..PutOptions::default() };
        let size_bytes = body.len() as u64;
        let object = match self.store.put(&key, Payload::from(body), options).await {
            Err(StoreError::PreconditionFailed(key)) => {
                let ours = self.already_stored(&key, &attributes, size_bytes).await?;
                ours.ok_or(StoreError::PreconditionFailed(key))?
            }
            stored => stored?,
        };
        self.publish(inode, &object, size_bytes, None)?;
        self.metadata_cache.insert_stored(inode.ino, &object.etag, described.clone(), self.moment());
        if self.clear_stored_pending(inode.ino, &described)? { self.export_later(inode.ino) } else { Ok(()) }
    }

    pub(crate) fn roll_back_create(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<()> {
        if self.names.lookup(parent, name)?.is_none_or(|there| there.ino != inode.ino) {
            return Ok(());
        }
        let op = match inode.kind {
            Kind::Directory => Op::Rmdir { parent, name: name.clone() },
            _ => Op::Unlink { parent, name: name.clone(), keep: false },
        };
        self.names.commit(&self.ctx(), &op)?;
        self.directories.get(parent).forget();
        Ok(())
    }
}
