//! New files, directories, symbolic links and special files.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Name, Op};
use store::names::{BadName, plain};
use store::{Payload, Precondition, PutOptions, StoreError, Tags};

use crate::attr::Caller;
use crate::filesystem::name;
use crate::handles::Opened;
use crate::headers;
use crate::layout::{is_reserved, object_key};
use crate::{Attr, Error, Filesystem, Result};

/// The longest symbolic link target, in bytes (`PATH_MAX` less its NUL).
const TARGET_BYTES_MAX: usize = 4095;

impl Filesystem {
    /// Makes and opens a file; nothing is stored before it is closed.
    pub async fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name_bytes: &[u8],
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let name = self.free_name(parent, name_bytes).await?;
        if self.layout.follows_paths() {
            object_key(&self.layout.directory(&self.names, parent)?, name.as_bytes())?;
        }
        let inode = self.make(caller, parent, &name, Kind::File, mode, 0, None)?;
        let file = self.open_file(inode.ino)?;
        let begun = self.begin_new(&file, &mut *file.work.lock().await);
        if let Err(error) = begun {
            self.close_file(&file).await?;
            self.unmake(parent, &name, &inode)?;
            return Err(error);
        }
        self.references.add(inode.ino);
        // Who makes a file stores it, also by a descriptor that only reads.
        Ok((Attr::from(&file.overlay(inode)), self.opened(file, flags | libc::O_RDWR)))
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
        let name = self.free_name(parent, name_bytes).await?;
        self.make_stored(caller, parent, &name, kind, mode, rdev, None).await
    }

    /// Makes a directory and its marker object.
    pub async fn mkdir(&self, caller: Caller, parent: Ino, name_bytes: &[u8], mode: u16) -> Result<Attr> {
        let name = self.free_name(parent, name_bytes).await?;
        if self.layout.follows_paths() {
            self.layout.marker(&self.names, parent, &name)?;
        }
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
        if target.is_empty() {
            return Err(Error::new(libc::ENOENT, "a target has at least one byte"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(Error::new(libc::ENAMETOOLONG, "a target has at most 4095 bytes"));
        }
        let name = self.free_name(parent, name_bytes).await?;
        let target = Bytes::copy_from_slice(target);
        self.make_stored(caller, parent, &name, Kind::Symlink, 0o777, 0, Some(target)).await
    }

    /// Gives a file another name.
    pub async fn link(&self, ino: Ino, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        if self.layout.follows_paths() {
            return Err(Error::new(libc::EPERM, "a volume named by path has no hard links yet"));
        }
        if self.names.inode(ino)?.kind == Kind::Directory {
            return Err(Error::new(libc::EPERM, "a directory has one name"));
        }
        let name = self.free_name(parent, name_bytes).await?;
        let linked = self.names.commit(&self.ctx(), &Op::Link { ino, parent, name })?;
        let inode = linked.inode.ok_or(Error::NOT_FOUND)?;
        self.references.add(ino);
        Ok(Attr::from(&self.seen(inode)))
    }

    /// A name that may be taken: valid, not Tenon's own, not there as far as the bucket says.
    async fn free_name(&self, parent: Ino, bytes: &[u8]) -> Result<Name> {
        self.writable()?;
        let name = name(bytes)?;
        if is_reserved(parent, bytes) {
            return Err(Error::new(libc::EPERM, "'.tenon' at the root is Tenon's own"));
        }
        match self.find(parent, &name).await? {
            Some(_) => Err(Error::EXISTS),
            None if self.layout.follows_paths() && plain(bytes).is_some() => Err(BadName::Reserved.into()),
            None => Ok(name),
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
        // A directory that is not stored yet looks like one that was removed.
        let _changing = self.changes.begin(parent, name);
        let inode = self.make(caller, parent, name, kind, mode, rdev, target.clone())?;
        if let Err(error) = self.store_new(&inode, target.unwrap_or_default(), Precondition::Absent).await {
            self.unmake(parent, name, &inode)?;
            return Err(if error.errno() == libc::ESTALE { Error::EXISTS } else { error });
        }
        if kind == Kind::Directory {
            self.directories.get(inode.ino).is_ours(self.now());
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
        if !self.layout.follows_paths() {
            return Ok(());
        }
        let _moves = self.moves.read().await;
        self.ensure_volume_record().await?;
        let key = match self.layout.key(&self.names, inode) {
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
        let options = PutOptions {
            precondition,
            attributes: headers::with_posix(headers::type_of(inode.kind), inode),
            tags: Tags::new(),
        };
        let (size_bytes, attributes) = (body.len() as u64, options.attributes.clone());
        let object = match self.store.put(&key, Payload::from(body), options).await {
            Err(StoreError::PreconditionFailed(key)) => {
                let ours = self.already_stored(&key, &attributes, size_bytes).await?;
                ours.ok_or(StoreError::PreconditionFailed(key))?
            }
            stored => stored?,
        };
        self.publish(inode, &object, size_bytes, None)
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
