//! New files, directories, symbolic links and special files.

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

/// The longest symbolic link target, in bytes (`PATH_MAX` less its NUL).
const TARGET_BYTES_MAX: usize = 4095;

impl Filesystem {
    /// Makes and opens a file; nothing is stored before it is closed, but where other machines mount the bucket too and
    /// `flags` say that it must be new.
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

    /// Whoever else mounts the bucket may have made the file: for who must be first an empty object decides, others open what
    /// is there then.
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
                return Err(Error::LookAgain("another mount of the bucket has just made it"));
            }
            return self.create_here(caller, parent, name, mode, flags).await;
        }
        let attr = self.make_stored(caller, parent, name, Kind::File, mode, 0, None).await?;
        // Its reference is counted already.
        let file = self.open_file(attr.ino)?;
        Ok((attr, self.opened(file.keep(), flags | libc::O_RDWR)))
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
            // What is not stored and not open looks like something that a mount left which died.
            let _changing = self.layout.follows_paths().then(|| self.changes.begin(parent, name));
            let inode = self.make(caller, parent, name, Kind::File, mode, 0, None)?;
            let file = self.open_file(inode.ino)?;
            file.set_new(true);
            (inode, file)
        };
        let begun = self.begin_new(&file, &mut *file.work.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            self.unmake(parent, name, &inode)?;
            return Err(error);
        }
        self.references.add(inode.ino);
        // Who makes a file stores it, also by a descriptor that only reads.
        Ok((Attr::from(&file.overlay(inode)), self.opened(file.keep(), flags | libc::O_RDWR)))
    }

    /// Makes and opens a file without a name. It goes with its last handle unless it is linked before, which `O_EXCL`
    /// among `flags` forbids.
    pub async fn create_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        self.writable()?;
        if self.layout.follows_paths() {
            let why = "a volume named by path has no files without names: a file is its key";
            return Err(Error::new(libc::EOPNOTSUPP, why));
        }
        let ino = self.new_ino(parent)?;
        let (mode, umask) = (mode & 0o7777, caller.umask & 0o777);
        let op = Op::CreateOrphan { parent, ino, mode, umask, uid: caller.uid, gid: caller.gid };
        let inode = self.names.commit(&self.ctx(), &op)?.inode.ok_or(Error::NOT_FOUND)?;
        let file = self.open_file(ino)?;
        file.set_linkable(flags & libc::O_EXCL == 0);
        let begun = self.begin_new(&file, &mut *file.work.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            return Err(error);
        }
        self.references.add(ino);
        Ok((Attr::from(&file.overlay(inode)), self.opened(file.keep(), flags)))
    }

    /// Makes a file that nobody opens, or a special file: an empty object.
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

    /// Makes a directory and its marker object.
    pub async fn mkdir(&self, caller: Caller, parent: Ino, name_bytes: &[u8], mode: u16) -> Result<Attr> {
        if let Some(views) = self.derived_at(parent) {
            return self.mkdir_derived(views, parent, name_bytes).await;
        }
        self.check_not_derived(parent, name_bytes)?;
        let name = self.free_name(parent, name_bytes, Kind::Directory).await?;
        self.make_stored(caller, parent, &name, Kind::Directory, mode, 0, None).await
    }

    /// Makes a symbolic link: an object whose body is the target.
    pub async fn symlink(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        self.check_not_derived(parent, name_bytes)?;
        if target.is_empty() {
            return Err(Error::new(libc::ENOENT, "a target has at least one byte"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::new(libc::ENAMETOOLONG, "a target has at most 4095 bytes"));
        }
        let name = self.free_name(parent, name_bytes, Kind::Symlink).await?;
        let target = Bytes::copy_from_slice(target);
        self.make_stored(caller, parent, &name, Kind::Symlink, 0o777, 0, Some(target)).await
    }

    /// Gives a file another name, or one without a name its first: what was written to it is stored then. In a volume
    /// named by path the bucket goes on showing a file under the first.
    pub async fn link(&self, ino: Ino, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        self.check_not_derived(parent, name_bytes)?;
        let before = self.names.inode(ino)?;
        if before.kind == Kind::Directory {
            return Err(Error::new(libc::EPERM, "a directory has one name"));
        }
        if self.sharing.is_some() {
            let why = "a bucket shows one name of a file: other mounts of it would not know of this one";
            return Err(Error::new(libc::EPERM, why));
        }
        let name = self.free_name(parent, name_bytes, before.kind).await?;
        let unnamed = if before.is_orphan() { Some(self.linkable(ino)?) } else { None };
        let file = self.open_file(ino)?;
        let linked = async {
            // Nobody hands the key on to another name meanwhile.
            let _work = file.work.lock().await;
            // No bucket tells this name: it would lead to another file if it outlived a rename of this one.
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

    /// Stores what was written to a file that has just got its first name; it is one like others then.
    async fn store_named(&self, file: &OpenFile) -> Result<()> {
        self.commit(file, When::Open).await?;
        file.set_linkable(false);
        Ok(())
    }

    /// The open file of an inode without a name, if it was made to get one.
    fn linkable(&self, ino: Ino) -> Result<Arc<OpenFile>> {
        let file = self.files.get(ino).filter(|file| file.is_linkable());
        file.ok_or(Error::new(
            libc::ENOENT,
            "what lost its last name, or was made to have none, gets no other",
        ))
    }

    /// A name that may be taken: valid, not Tenon's own, not there as far as the bucket says.
    pub(crate) async fn free_name(&self, parent: Ino, bytes: &[u8], kind: Kind) -> Result<Name> {
        self.writable()?;
        let name = name(bytes)?;
        if is_reserved(parent, bytes) {
            return Err(Error::new(libc::EPERM, "'.tenon' at the root is Tenon's own"));
        }
        match self.find(parent, &name).await? {
            Some(_) => Err(Error::EXISTS),
            None => self.must_be_plain(parent, &name, kind).map(|()| name),
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
        made.ok_or(Error::new(libc::EIO, "the namespace made nothing"))
    }

    /// Makes what is stored at once; what cannot be stored is not made.
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
        // A directory that is not stored yet looks like one that was removed.
        let _changing = self.changes.begin(parent, name);
        let inode = self.make(caller, parent, name, kind, mode, rdev, target.clone())?;
        let body = target.unwrap_or_default();
        if let Err(error) = self.store_new_locked(&inode, body, Precondition::Absent).await {
            self.unmake(parent, name, &inode)?;
            return Err(if error.errno() == libc::ESTALE { Error::EXISTS } else { error });
        }
        if kind == Kind::Directory {
            self.directories.get(inode.ino).mark_complete(self.moment());
            self.forget_settings_of(parent, name)?;
        }
        self.references.add(inode.ino);
        Ok(Attr::from(&self.names.inode(inode.ino)?))
    }

    /// Stores what is no file with content: a marker, a link, an empty file.
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
            // A directory inside a continued name: its contents' keys are all there is of it.
            Err(_) if inode.kind == Kind::Directory => return Ok(()),
            Err(error) => return Err(error),
        };
        let _claim = self.claims.claim(&key).await;
        match self.names.inode(inode.ino) {
            Ok(now) if now.home == inode.home => {}
            // It was removed before it was stored.
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

    pub(crate) fn unmake(&self, parent: Ino, name: &Name, inode: &Inode) -> Result<()> {
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
