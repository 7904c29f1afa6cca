//! Packs: small contents of a batch share objects.
//!
//! A content up to [`PACKED_BYTES_MAX`] is appended to a local file, the pack. A full pack, and every pack at the end of the batch, becomes
//! one object whose bytes are those of the file. The place of a content (key of the pack, offset) is final from the beginning, so that nothing
//! has to be renamed when the pack is uploaded. Other objects go straight to the bucket.
//!
//! Owns the files of packs in one directory, and their upload. Out of scope: which contents are still in use, and when the files can go.
//!
//! Invariants:
//! - a pack is appended to by one process only: a later one begins packs of its own;
//! - a file that ends in `.stored` is durable, and its object is in the bucket;
//! - nothing is deleted: a batch that is discarded or whose changes are refused must leave the objects of the volume as they are;
//! - [`sync`](ObjectStore::sync) makes contents durable before the names that refer to them.

use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::{
    Attributes, CopyOptions, ETag, Entropy, GetOptions, ListPage, ListRequest, Multipart, Object, ObjectKey,
    ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError, Tags,
};
use tokio::sync::Semaphore;

/// Maximum length of a content in a pack. Longer contents are objects of their own.
pub const PACKED_BYTES_MAX: u64 = 64 << 10;

/// Length at which a pack is full, in bytes.
pub const PACK_BYTES: u64 = 8 << 20;

/// Maximum number of packs that are uploaded at once.
const UPLOADS_AT_ONCE: usize = 4;

/// Maximum number of open files of packs. When another file is opened, the one that was opened first is closed.
const OPEN_FILES_MAX: usize = 8;

/// End of the file name of a pack that is in the bucket.
const STORED: &str = ".stored";

/// Prefix of the file names of packs, and of the last part of their keys.
const PACK: &str = "pack-";

/// A function that makes the names of a batch durable. It is called once the contents are durable.
pub type SyncNames = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A store in front of the bucket of a volume, for one batch: it reads packs from their files, and everything else from the bucket.
pub struct Packs {
    bucket: Arc<dyn ObjectStore>,
    dir: PathBuf,
    /// Prefix of the keys of the batch's objects.
    prefix: Vec<u8>,
    entropy: Arc<Entropy>,
    files: Mutex<Files>,
    sync_names: SyncNames,
    /// The packs whose files are open.
    opened: Arc<OpenFiles>,
    /// Limits the uploads in progress.
    uploads: Semaphore,
    me: Weak<Self>,
}

/// The packs of a batch.
#[derive(Debug, Default)]
struct Files {
    /// The key of the pack that is being filled; `None` if the next content begins a pack.
    current: Option<ObjectKey>,
    packs: BTreeMap<ObjectKey, Arc<Pack>>,
    /// Number of the next pack.
    next: u32,
}

/// The packs whose files are open, the one that was opened last at the end.
#[derive(Debug, Default)]
struct OpenFiles(Mutex<VecDeque<Weak<Pack>>>);

/// A pack: a local file, and an object with the same bytes once it is uploaded.
#[derive(Debug)]
struct Pack {
    /// Path of the file while the pack is not in the bucket. Then it gets the ending [`STORED`].
    path: PathBuf,
    /// The packs of the batch whose files are open.
    opened: Arc<OpenFiles>,
    me: Weak<Self>,
    state: Mutex<PackState>,
    /// Held during an upload.
    uploading: tokio::sync::Mutex<()>,
}

/// The state of a pack's file.
#[derive(Debug, Default)]
struct PackState {
    /// Length in bytes.
    len: u64,
    /// Bytes from the beginning that survive a loss of power.
    synced: u64,
    is_uploaded: bool,
    /// The file, if it is open.
    file: Option<Arc<File>>,
}

/// The place of a content in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The pack. The etag is made up for this content only, since the etag of the pack is not known before its upload.
    pub object: ObjectRef,
    /// Offset of the content in the pack, in bytes.
    pub offset: u64,
}

/// Returns the prefix of the keys of the packs of a batch whose objects have keys that begin with `prefix`.
pub fn pack_prefix(prefix: &[u8]) -> Vec<u8> {
    [prefix, PACK.as_bytes()].concat()
}

/// Returns the key of a new pack below the prefix of a batch's objects; `unique` is a random number.
pub fn pack_key(prefix: &[u8], number: u32, unique: u64) -> Result<ObjectKey> {
    key_of(prefix, &name_of(number, unique))
}

/// Returns whether a key is that of a pack, whose content belongs to many files.
pub fn is_pack(key: &ObjectKey) -> bool {
    let mut parts = key.as_bytes().rsplit(|byte| *byte == b'/');
    let (name, _, batches, own) = (parts.next(), parts.next(), parts.next(), parts.next());
    name.is_some_and(|name| name.starts_with(PACK.as_bytes()))
        && batches == Some(b"batches")
        && own == Some(b".tenon")
}

impl Packs {
    /// Opens the packs of a batch whose files are in `dir` and whose objects have keys that begin with `prefix`. Finds those of earlier
    /// processes, and begins new ones for new contents.
    pub fn open(
        bucket: Arc<dyn ObjectStore>,
        dir: &Path,
        prefix: &[u8],
        entropy: Arc<Entropy>,
        sync_names: SyncNames,
    ) -> io::Result<Arc<Self>> {
        let mut files = Files { next: 1, ..Files::default() };
        let opened = Arc::<OpenFiles>::default();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((name, number)) = name.to_str().and_then(|name| Some((name, number_of(name)?))) else {
                continue;
            };
            let len = entry.metadata()?.len();
            let (name, state) = match name.strip_suffix(STORED) {
                Some(name) => (name, PackState { len, synced: len, is_uploaded: true, file: None }),
                None => (name, PackState { len, ..PackState::default() }),
            };
            let key = key_of(prefix, name).map_err(io::Error::other)?;
            files.packs.insert(key, Pack::new(dir.join(name), state, &opened));
            files.next = files.next.max(number + 1);
        }
        let (dir, prefix) = (dir.to_owned(), prefix.to_vec());
        Ok(Arc::new_cyclic(|me| Self {
            bucket,
            dir,
            prefix,
            entropy,
            files: Mutex::new(files),
            sync_names,
            opened,
            uploads: Semaphore::new(UPLOADS_AT_ONCE),
            me: me.clone(),
        }))
    }

    /// Appends a content to a pack. It survives the end of the process.
    pub fn append(&self, content: &Payload) -> Result<Packed> {
        let mut files = self.files();
        let key = match files.current.take() {
            Some(key) => key,
            None => self.begin_pack(&mut files)?,
        };
        let pack = files.packs.get(&key).cloned().ok_or_else(|| StoreError::NotFound(key.clone()))?;
        let offset = pack.append(content).map_err(|error| failed(&key, &error))?;
        match offset + content.len() < PACK_BYTES {
            true => files.current = Some(key.clone()),
            false => self.upload_later(key.clone(), pack),
        }
        let etag = ETag::provisional(self.entropy.next_u64());
        Ok(Packed { object: ObjectRef::new(key, etag), offset })
    }

    /// Uploads all packs that are not in the bucket yet. No content may be appended meanwhile.
    pub async fn upload(&self) -> Result<()> {
        let waiting: Vec<_> = {
            let mut files = self.files();
            files.current = None;
            files.packs.iter().map(|(key, pack)| (key.clone(), pack.clone())).collect()
        };
        let uploads: Vec<_> = waiting.into_iter().map(|(key, pack)| self.upload_pack(key, pack)).collect();
        futures_util::future::try_join_all(uploads).await.map(drop)
    }

    /// Uploads a full pack in the background. A failed upload is repeated at the end of the batch.
    fn upload_later(&self, key: ObjectKey, pack: Arc<Pack>) {
        let (Ok(runtime), Some(me)) = (tokio::runtime::Handle::try_current(), self.me.upgrade()) else {
            return;
        };
        runtime.spawn(async move {
            if let Err(error) = me.upload_pack(key.clone(), pack).await {
                tracing::debug!(%key, %error, "a pack could not be uploaded; it stays on the local disk, and is uploaded at the end of the batch");
            }
        });
    }

    /// Uploads a pack, unless it is empty or in the bucket already.
    async fn upload_pack(&self, key: ObjectKey, pack: Arc<Pack>) -> Result<()> {
        let _permit =
            self.uploads.acquire().await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let _uploading = pack.uploading.lock().await;
        let (len, is_uploaded) = {
            let state = pack.state();
            (state.len, state.is_uploaded)
        };
        if is_uploaded || len == 0 {
            return Ok(());
        }
        let bytes = self.read(&key, &pack, 0..len).await?;
        self.bucket.put(&key, Payload::from(bytes), PutOptions::default()).await?;
        let mark = Arc::clone(&pack);
        store::blocking(move || mark.mark_stored()).await.map_err(|error| failed(&key, &error))
    }

    /// Creates the file of the next pack, and returns the pack's key.
    fn begin_pack(&self, files: &mut Files) -> Result<ObjectKey> {
        let name = name_of(files.next, self.entropy.next_u64());
        let key = key_of(&self.prefix, &name)?;
        let path = self.dir.join(&name);
        File::create_new(&path).map_err(|error| failed(&key, &error))?;
        files.next += 1;
        files.packs.insert(key.clone(), Pack::new(path, PackState::default(), &self.opened));
        Ok(key)
    }

    /// Returns the pack with a key; `None` for another object.
    fn local(&self, key: &ObjectKey) -> Option<Arc<Pack>> {
        self.files().packs.get(key).cloned()
    }

    async fn read(&self, key: &ObjectKey, pack: &Arc<Pack>, range: Range<u64>) -> Result<Bytes> {
        let pack = Arc::clone(pack);
        let read = store::blocking(move || pack.read(&range)).await;
        read.map_err(|error| failed(key, &error))
    }

    /// Makes the files of all packs durable.
    fn sync_packs(&self) -> io::Result<()> {
        let packs: Vec<_> = self.files().packs.values().cloned().collect();
        packs.iter().try_for_each(|pack| pack.sync())?;
        File::open(&self.dir)?.sync_all()
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFiles {
    /// Adds a pack whose file was opened. Returns the pack whose file is to be closed; `None` if not too many are open.
    fn add(&self, pack: &Weak<Pack>) -> Option<Arc<Pack>> {
        let mut packs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        packs.push_back(Weak::clone(pack));
        if packs.len() <= OPEN_FILES_MAX { None } else { packs.pop_front()?.upgrade() }
    }
}

impl Pack {
    fn new(path: PathBuf, state: PackState, opened: &Arc<OpenFiles>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            path,
            opened: Arc::clone(opened),
            me: me.clone(),
            state: Mutex::new(state),
            uploading: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the file of the pack. Opens it if necessary, and closes that of another pack if too many are open.
    fn file(&self) -> io::Result<Arc<File>> {
        let mut state = self.state();
        if let Some(file) = &state.file {
            return Ok(Arc::clone(file));
        }
        let file = match state.is_uploaded {
            true => File::open(self.stored_path()),
            false => File::options().read(true).write(true).open(&self.path),
        };
        let file = Arc::new(file?);
        state.file = Some(Arc::clone(&file));
        drop(state);
        if let Some(other) = self.opened.add(&self.me) {
            other.state().file = None;
        }
        Ok(file)
    }

    /// Appends a content to the file. Returns its offset.
    fn append(&self, content: &Payload) -> io::Result<u64> {
        let file = self.file()?;
        let mut state = self.state();
        let mut at = state.len;
        for piece in content.pieces() {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(std::mem::replace(&mut state.len, at))
    }

    fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        self.file()?.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    }

    fn sync(&self) -> io::Result<()> {
        let len = {
            let state = self.state();
            if state.synced == state.len {
                return Ok(());
            }
            state.len
        };
        self.file()?.sync_data()?;
        let mut state = self.state();
        state.synced = state.synced.max(len);
        Ok(())
    }

    /// Records durably, by the name of the file, that the pack is in the bucket. A later process then does not upload it again.
    fn mark_stored(&self) -> io::Result<()> {
        self.sync()?;
        let mut state = self.state();
        fs::rename(&self.path, self.stored_path())?;
        state.is_uploaded = true;
        Ok(())
    }

    fn stored_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(STORED);
        path.into()
    }

    fn meta(&self, key: &ObjectKey) -> ObjectMeta {
        ObjectMeta {
            object: ObjectRef::new(key.clone(), ETag::provisional(0)),
            size_bytes: self.state().len,
            attributes: Attributes::default(),
            tag_count: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, PackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Packs {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let Some(pack) = self.local(key) else { return self.bucket.get(key, options).await };
        let meta = pack.meta(key);
        let range = options.range.unwrap_or(0..meta.size_bytes);
        let range = range.start..range.end.min(meta.size_bytes);
        if range.start >= range.end {
            return Err(StoreError::InvalidRange(key.clone()));
        }
        let bytes = self.read(key, &pack, range).await?;
        Ok(Object { meta, body: Box::pin(futures_util::stream::once(async move { Ok(bytes) })) })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        match self.local(key) {
            Some(pack) => Ok(pack.meta(key)),
            None => self.bucket.head(key).await,
        }
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        self.bucket.put(key, body, options).await
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let upload = self.bucket.multipart(key, attributes, tags).await?;
        Ok(Arc::new(UploadFromPacks { upload, packs: Weak::clone(&self.me) }))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        let Some(pack) = self.local(&from.key) else { return self.bucket.copy(from, to, options).await };
        let bytes = self.read(&from.key, &pack, 0..pack.meta(&from.key).size_bytes).await?;
        let CopyOptions { attributes, tags, precondition, .. } = options;
        let (attributes, tags) = (attributes.unwrap_or_default(), tags.unwrap_or_default());
        let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
        self.bucket.put(to, Payload::from(bytes), options).await
    }

    async fn delete(&self, _: &ObjectKey, _: Precondition) -> Result<()> {
        Ok(())
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.bucket.list(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        self.bucket.tags(key).await
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        self.bucket.set_tags(key, tags).await
    }

    async fn sync(&self) -> Result<()> {
        self.bucket.sync().await?;
        let Some(me) = self.me.upgrade() else {
            return Err(StoreError::Unavailable("the batch has ended".to_owned()));
        };
        store::blocking(move || me.sync_packs().and_then(|()| (me.sync_names)())).await.map_err(|error| {
            StoreError::Unavailable(format!(
                "the batch in '{}' cannot be synced: {error}",
                self.dir.display()
            ))
        })
    }
}

/// A multipart upload that can copy from packs which are not in the bucket yet.
#[derive(Debug)]
struct UploadFromPacks {
    upload: Arc<dyn Multipart>,
    packs: Weak<Packs>,
}

#[async_trait::async_trait]
impl Multipart for UploadFromPacks {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.upload.put_part(number, body).await
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let Some(pack) = self.packs.upgrade().and_then(|packs| packs.local(&from.key)) else {
            return self.upload.copy_part(number, from, range).await;
        };
        let bytes = store::blocking(move || pack.read(&range)).await;
        let bytes = bytes.map_err(|error| failed(&from.key, &error))?;
        self.upload.put_part(number, Payload::from(bytes)).await
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        self.upload.complete(precondition).await
    }

    async fn abort(&self) -> Result<()> {
        self.upload.abort().await
    }
}

impl fmt::Debug for Packs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packs").field("dir", &self.dir).finish_non_exhaustive()
    }
}

fn name_of(number: u32, unique: u64) -> String {
    format!("{PACK}{number:08x}-{unique:016x}")
}

fn key_of(prefix: &[u8], name: &str) -> Result<ObjectKey> {
    let key = ObjectKey::new([prefix, name.as_bytes()].concat());
    key.map_err(|error| StoreError::Invalid(error.to_string()))
}

/// Returns the number in the file name of a pack; `None` for the name of another file.
fn number_of(name: &str) -> Option<u32> {
    let (number, _) = name.strip_prefix(PACK)?.split_once('-')?;
    u32::from_str_radix(number, 16).ok()
}

fn failed(key: &ObjectKey, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full(format!("the pack '{key}' cannot grow: {error}"))
        }
        _ => StoreError::Unavailable(format!("the pack '{key}' cannot be accessed: {error}")),
    }
}
