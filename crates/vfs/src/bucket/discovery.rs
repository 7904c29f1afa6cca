//! Reads from the bucket: listings of directories, probes of one name, and metadata of one object.

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _};
use meta::{FsError, Ino, Inode, Kind, Moment, Name, Observed};
use std::sync::Arc;
use store::names::{self, KeyPrefix};
use store::{GetOptions, ListEntry, ListPage, ListRequest, ObjectKey, ObjectMeta, StoreError};

use crate::base::Base;
use crate::bucket::directories::{Directory, ListedRange};
use crate::bucket::evict::NameEvictor;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::headers;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::bucket::reconcile::{PrefixedDirectory, Reconciler};
use crate::content::Content;
use crate::layout::object_key;
use crate::mount::Mount;
use crate::names::{Names, name};
use crate::{Error, Result};

/// Finds names in the tables, and in the bucket where the tables may be outdated.
#[derive(Debug)]
pub(crate) struct Discovery {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) metadata: Arc<Metadata>,
    pub(in crate::bucket) exports: Arc<ExportQueue>,
    pub(in crate::bucket) reconciler: Arc<Reconciler>,
    pub(in crate::bucket) name_evictor: Arc<NameEvictor>,
}

impl Discovery {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        reconciler: &Arc<Reconciler>,
        name_evictor: &Arc<NameEvictor>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            metadata: parts.metadata.clone(),
            exports: parts.exports.clone(),
            reconciler: reconciler.clone(),
            name_evictor: name_evictor.clone(),
        })
    }
}

/// A page of a directory's listing.
#[derive(Debug)]
pub(in crate::bucket) struct Page {
    pub(in crate::bucket) entries: Vec<ListEntry>,
    /// The sort key up to which the page reaches; `None` for the end of the directory.
    pub(in crate::bucket) end: Option<Vec<u8>>,
    /// Number of requests that the page took.
    pub(in crate::bucket) requests: usize,
}

/// Entries of a listing page, the maximum of S3.
pub(crate) const PAGE_ENTRIES: usize = 1000;
/// Objects up to this size are fetched as a whole when their metadata is needed: HEAD and GET cost one request each.
const SMALL_BYTES: u64 = 128 << 10;
/// Maximum inodes whose attributes are requested at the same time.
const DESCRIBED_AT_ONCE: usize = 32;
/// The greatest character. A listing that starts after `dir/` plus this character starts after the directory.
const LAST: &str = "\u{10FFFF}";

impl Discovery {
    /// Looks up a name. The answer is at most as old as the revalidation time, or the proportionally longer time for
    /// which the listing of a large directory counts.
    pub(crate) async fn find(&self, parent: Ino, name: &Name) -> Result<Option<Inode>> {
        let found = self.find_name(parent, name).await?;
        match found.as_ref().and_then(|inode| inode.home.as_ref()) {
            // An additional link of a file: the object is under the key of the primary link.
            Some((dir, home))
                if (*dir, home) != (parent, name)
                    && self.mount.layout.can_list_in(self.names.tables(), *dir)? =>
            {
                self.find_name(*dir, home).await?;
                Ok(self.names.tables().lookup(parent, name)?)
            }
            _ => Ok(found),
        }
    }

    /// Looks up a name in the tables, and in the bucket if the tables may be outdated there.
    async fn find_name(&self, parent: Ino, name: &Name) -> Result<Option<Inode>> {
        if self.mount.layout.is_reserved(self.names.tables(), parent, name.as_bytes())? {
            return Ok(None);
        }
        let mut local = self.names.tables().lookup(parent, name)?;
        if let Some(inode) = &local
            && self.resolve_ambiguous_write(inode.ino).await?
        {
            local = self.names.tables().lookup(parent, name)?;
        }
        if local.as_ref().is_some_and(|inode| self.known.is_current(parent, inode)) {
            return Ok(local);
        }
        let Some(prefix) = self.mount.layout.listed_prefix(self.names.tables(), parent)? else {
            return Ok(local);
        };
        if local.as_ref().is_some_and(|inode| !self.mount.layout.has_key(&prefix, name, inode.kind)) {
            return Ok(local);
        }
        let sort_keys = SortKeys::of(name)?;
        let directory = self.known.directories().get(parent);
        loop {
            let forgotten = directory.forgotten();
            if !self.known.is_answered(&directory.listed_range(), &sort_keys, self.mount.moment()) {
                self.name_evictor.evict_if_needed(PAGE_ENTRIES)?;
                self.list_until_answered(parent, name, &sort_keys, &directory).await?;
            }
            let found = self.names.tables().lookup(parent, name)?;
            if found.is_some() || directory.forgotten() == forgotten {
                return Ok(found);
            }
        }
    }

    /// Reads the object of a closed file if a write or deletion of it was ambiguous (its answer was lost). Returns
    /// whether one was.
    pub(crate) async fn resolve_ambiguous_write(&self, ino: Ino) -> Result<bool> {
        if !self.content.files().take_unconfirmed(ino) {
            return Ok(false);
        }
        match self.revalidate(&self.names.tables().inode(ino)?).await {
            // Another client deleted the object.
            Err(error) if error.errno() == libc::ENOENT => Ok(true),
            Err(error) => {
                self.content.files().mark_unconfirmed(ino);
                Err(error)
            }
            Ok(_) => Ok(true),
        }
    }

    /// Returns the inode with authoritative attributes. Reads the object's headers if the inode has attributes from a
    /// listing only, or another mount may have changed them.
    pub(crate) async fn with_exact_attributes(&self, inode: Inode) -> Result<Inode> {
        if !self.known.reads_headers() || inode.home.is_none() || inode.ino == Ino::ROOT {
            return Ok(inode);
        }
        if inode.exact && !self.known.sharing().as_ref().is_some_and(|sharing| sharing.take_unsure(inode.ino))
        {
            return Ok(inode);
        }
        self.revalidate(&inode).await
    }

    /// Reads an inode's object again, however fresh the known state is. An inode that is not at its path is returned as
    /// known.
    pub(crate) async fn revalidate(&self, inode: &Inode) -> Result<Inode> {
        if let Some((parent, name)) = &inode.home {
            let looked_at = self.mount.moment();
            let prefix = self.mount.layout.directory(self.names.tables(), *parent)?;
            if !self.mount.layout.would_show((*parent, &prefix), name, inode) {
                return Ok(self.names.tables().inode(inode.ino)?);
            }
            let seen = self.describe(inode, looked_at).await?;
            // If the look is not valid, this mount changed the name meanwhile, and its change stands.
            self.reconciler.reconcile_visible_name((*parent, &prefix), name, seen, looked_at).await?;
        }
        Ok(self.names.tables().inode(inode.ino)?)
    }

    /// Requests the page of a directory's listing after `after`, and records it.
    pub(crate) async fn list_page(&self, dir: Ino, directory: &Directory, after: &[u8]) -> Result<()> {
        if !self.names.tables().inode(dir)?.is_dir() {
            return Err(Error::NOT_DIRECTORY);
        }
        loop {
            let (looked_at, changes) = (self.mount.moment(), directory.changes());
            let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
            let Page { entries, end, .. } = self.request_page(&prefix, after).await?;
            if self
                .reconciler
                .reconcile_page((dir, &prefix), (after, end.as_deref()), &entries, looked_at)
                .await?
            {
                directory.note_page(after, end.as_deref(), looked_at, changes);
                return Ok(());
            }
            self.known.wait_until_settled(dir).await?;
        }
    }

    /// Requests the page of a directory's listing after a sort key; empty: from the beginning.
    pub(in crate::bucket) async fn request_page(&self, prefix: &KeyPrefix, after: &[u8]) -> Result<Page> {
        let request = ListRequest {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            delimiter: Some(b'/'),
            start_after: (!after.is_empty()).then(|| start_after(prefix, after)),
            token: None,
            limit: PAGE_ENTRIES,
            with_attributes: self.known.reads_headers(),
        };
        let ListPage { mut entries, next } = self.mount.store.list(request).await?;
        let last = entries.last().filter(|_| next.is_some());
        let Some(end) = last.map(|entry| entry.text()[prefix.as_bytes().len()..].to_vec()) else {
            return Ok(Page { entries, end: None, requests: 1 });
        };
        let beyond = self.directories_beyond(&entries).await?;
        let requests = 1 + beyond.len();
        entries.extend(beyond);
        Ok(Page { entries, end: Some(end), requests })
    }

    /// Returns directories that share the name of an object on a page, but are listed on a later page: `a/` sorts after
    /// every `a-…`.
    async fn directories_beyond(&self, entries: &[ListEntry]) -> Result<Vec<ListEntry>> {
        let mut found = Vec::new();
        let Some(end) = entries.last() else { return Ok(found) };
        for entry in entries {
            let (text, end) = (entry.text(), end.text());
            let is_before = end.len() > text.len() && end.starts_with(text) && end[text.len()] < b'/';
            let inside = Bytes::from([text, b"/"].concat());
            if is_before && !text.ends_with(b"/") && self.has_keys(inside.clone()).await? {
                found.push(ListEntry::Prefix(inside));
            }
        }
        Ok(found)
    }

    /// Returns whether any key has this prefix.
    async fn has_keys(&self, prefix: Bytes) -> Result<bool> {
        let page = self.mount.store.list(ListRequest { prefix, limit: 1, ..ListRequest::default() }).await?;
        Ok(!page.entries.is_empty())
    }

    /// Reads the metadata of an inode's object; `None` if a file's object is missing. The bytes of a small object come
    /// along and are cached.
    async fn describe(&self, inode: &Inode, looked_at: Moment) -> Result<Option<Observed>> {
        let key = match self.mount.layout.key(self.names.tables(), inode) {
            Ok(key) => key,
            Err(_) if inode.kind == Kind::Directory => {
                return Ok(Some(self.implicit_directory(inode, looked_at)));
            }
            Err(error) => return Err(error),
        };
        let is_marker = inode.kind == Kind::Directory;
        let is_small = inode.size_bytes > 0 && inode.size_bytes <= SMALL_BYTES && !is_marker;
        let described = if is_small && !inode.exact {
            self.fetch_small(inode.ino, &key).await
        } else {
            self.head(&key).await
        };
        match described {
            Ok((meta, bytes)) => {
                self.exports.adopt_stored(inode.ino, &meta, looked_at)?;
                self.metadata.cache().insert_observed(inode.ino, &meta, looked_at);
                let mut seen = headers::observed(&meta, is_marker, &self.mount.defaults, looked_at);
                if seen.kind == Kind::Symlink {
                    seen.target = seen.target.or(bytes);
                }
                Ok(Some(seen))
            }
            Err(StoreError::NotFound(_)) if is_marker => Ok(Some(self.implicit_directory(inode, looked_at))),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn head(&self, key: &ObjectKey) -> Result<(ObjectMeta, Option<Bytes>), StoreError> {
        Ok((self.mount.store.head(key).await?, None))
    }

    /// Sends a GET instead of a HEAD, as programs often read a small file after `stat`. Returns no bytes if the object
    /// has become large.
    async fn fetch_small(
        &self,
        ino: Ino,
        key: &ObjectKey,
    ) -> Result<(ObjectMeta, Option<Bytes>), StoreError> {
        let object = self.mount.store.get(key, GetOptions::default()).await?;
        let Ok(capacity) = usize::try_from(object.meta.size_bytes.min(2 * SMALL_BYTES)) else {
            unreachable!("the capacity is at most 2 * SMALL_BYTES")
        };
        let mut bytes = BytesMut::with_capacity(capacity);
        let mut body = object.body;
        while let Some(piece) = body.try_next().await? {
            if bytes.len() as u64 + piece.len() as u64 > 2 * SMALL_BYTES {
                // The object has grown since it was listed. Its metadata suffices.
                return Ok((object.meta, None));
            }
            bytes.extend_from_slice(&piece);
        }
        let bytes = bytes.freeze();
        self.content.blocks().insert(ino, &object.meta.object.etag, bytes.clone());
        Ok((object.meta, Some(bytes)))
    }

    /// Returns what is seen of a directory that exists only by the keys below it.
    fn implicit_directory(&self, inode: &Inode, looked_at: Moment) -> Observed {
        headers::implicit_directory(inode.mtime, looked_at, &self.mount.defaults, true)
    }

    /// Asks the bucket for a name that the listed range does not answer: lists a page, or probes the name. Concurrent lookups share a
    /// page, but do not wait for each other's probes.
    async fn list_until_answered(
        &self,
        dir: Ino,
        name: &Name,
        sort_keys: &SortKeys,
        directory: &Directory,
    ) -> Result<()> {
        let listed = self.list_for(dir, sort_keys, directory, self.mount.moment());
        if directory.listing.run(Box::pin(listed)).await? {
            return Ok(());
        }
        directory.note_probe();
        self.probe(dir, name).await
    }

    /// Returns whether the listed range answers for a name that a program asked for at `asked_at`. Lists a page if it does not, unless
    /// lookups have listed enough.
    async fn list_for(
        &self,
        dir: Ino,
        sort_keys: &SortKeys,
        directory: &Directory,
        asked_at: Moment,
    ) -> Result<bool> {
        let mut has_listed = false;
        loop {
            let known = directory.listed_range();
            if self.known.is_answered(&known, sort_keys, asked_at) {
                return Ok(true);
            }
            let is_fresh = known.is_fresh_for(asked_at, self.mount.moment(), self.mount.config.metadata_ttl);
            let goes_on = is_fresh && known.from.is_empty() && !known.is_complete;
            // One page covers a small directory. In a large directory a lookup lists at most one page, so that it does
            // not wait for all of them, and none once lookups have listed enough pages: then its name is probed.
            let has_enough = has_listed || !directory.may_list_more(known.pages);
            if goes_on && has_enough || is_fresh && !known.from.is_empty() {
                return Ok(false);
            }
            has_listed = true;
            let after = if goes_on { known.up_to } else { Vec::new() };
            self.list_page(dir, directory, &after).await?;
        }
    }

    /// Asks the bucket for one name, its object and its directory, without listing the directory that contains it.
    pub(crate) async fn probe(&self, dir: Ino, name: &Name) -> Result<()> {
        let plain = match names::plain(name.as_bytes()) {
            Some(plain) => Name::new(plain)?,
            None => name.clone(),
        };
        loop {
            let looked_at = self.mount.moment();
            let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
            let object = self.probe_object((dir, &prefix), &plain, looked_at);
            let directory = self.probe_directory(&prefix, &plain, looked_at);
            let (object, directory) = futures_util::future::try_join(object, directory).await?;
            if self.reconciler.reconcile_name((dir, &prefix), &plain, object, directory, looked_at).await? {
                return Ok(());
            }
            self.known.wait_until_settled(dir).await?;
        }
    }

    /// Asks the bucket for the object of a name; `None` if there is none.
    async fn probe_object(
        &self,
        (dir, prefix): PrefixedDirectory<'_>,
        name: &Name,
        looked_at: Moment,
    ) -> Result<Option<Observed>> {
        let Ok(key) = object_key(prefix, name.as_bytes()) else { return Ok(None) };
        let found = self.mount.store.find(&key).await?;
        if let (Some(found), Some(known)) = (&found, self.names.tables().lookup(dir, name)?) {
            self.exports.adopt_stored(known.ino, found, looked_at)?;
        }
        Ok(found.map(|meta| headers::observed(&meta, false, &self.mount.defaults, looked_at)))
    }

    /// Asks the bucket whether keys begin with the path of a directory of this name; `None` if none does.
    async fn probe_directory(
        &self,
        prefix: &KeyPrefix,
        name: &Name,
        looked_at: Moment,
    ) -> Result<Option<Observed>> {
        let inside =
            prefix.child_dir(name.as_bytes()).ok().filter(|inside| self.mount.layout.can_list(inside));
        let Some(inside) = inside else { return Ok(None) };
        let exists = self.has_keys(Bytes::copy_from_slice(inside.as_bytes())).await?;
        Ok(exists
            .then(|| headers::implicit_directory(self.mount.now(), looked_at, &self.mount.defaults, false)))
    }
}

impl KnownState {
    /// Waits while this mount changes a directory. Does nothing if the directory is gone.
    pub(in crate::bucket) async fn wait_until_settled(&self, dir: Ino) -> Result<()> {
        match self.names.tables().inode(dir) {
            Ok(Inode { home: Some((parent, name)), .. }) => {
                self.changes.wait_until_settled(parent, &name).await;
                Ok(())
            }
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether an inode in a directory is known recently enough to answer a lookup without the bucket.
    fn is_current(&self, parent: Ino, inode: &Inode) -> bool {
        if !self.mount.rules.follows_bucket {
            return true;
        }
        match inode.object().is_some() || inode.is_dir() {
            true => {
                self.content.has_unpublished_writes(inode.ino) || self.is_trusted(parent, inode.observed_at)
            }
            // A file without an object that is not open was being created when the last mount ended abnormally.
            false => self.content.files().get(inode.ino).is_some(),
        }
    }

    /// Returns whether a listed range covers a name and is fresh for a request made at `asked_at`.
    fn is_answered(&self, known: &ListedRange, sort_keys: &SortKeys, asked_at: Moment) -> bool {
        known.is_fresh_for(asked_at, self.mount.moment(), self.mount.config.metadata_ttl)
            && known.covers(&sort_keys.object, &sort_keys.directory)
    }

    /// Returns whether the part of the directory with this name was listed recently enough to tell whether the name
    /// exists.
    pub(crate) fn is_listed(&self, dir: Ino, name: &Name) -> Result<bool> {
        Ok(self.is_answered(
            &self.directories.get(dir).listed_range(),
            &SortKeys::of(name)?,
            self.mount.moment(),
        ))
    }

    /// Returns whether the part of the directory with this name was listed after `looked_at`, and the name is not in
    /// it.
    pub(crate) fn is_missing_since(&self, dir: Ino, name: &Name, looked_at: Moment) -> Result<bool> {
        let known = self.directories.get(dir).listed_range();
        let sort_keys = SortKeys::of(name)?;
        Ok(known.is_newer_than(looked_at)
            && known.covers(&sort_keys.object, &sort_keys.directory)
            && self.names.tables().entry(dir, name)?.is_none())
    }

    /// Returns when a name was free, which a lookup that began at `asked_at` has just not found: the listing that answered may be
    /// older than the lookup.
    pub(crate) fn free_at(&self, dir: Ino, name: &Name, asked_at: Moment) -> Result<Moment> {
        let known = self.directories.get(dir).listed_range();
        let sort_keys = SortKeys::of(name)?;
        let is_listed = known.covers(&sort_keys.object, &sort_keys.directory);
        Ok(if is_listed { known.since.min(asked_at) } else { asked_at })
    }
}

/// Sort keys of a name: those of its object and of its directory.
struct SortKeys {
    object: Vec<u8>,
    directory: Vec<u8>,
}

impl SortKeys {
    fn of(name: &Name) -> Result<Self> {
        let inside = KeyPrefix::root(b"");
        let directory = inside.child_dir(names::plain(name.as_bytes()).unwrap_or(name.as_bytes()));
        let object = object_key(&inside, name.as_bytes()).map(|key| key.as_bytes().to_vec());
        let directory = directory.map(|inside| inside.as_bytes().to_vec());
        match (object, directory) {
            (Ok(object), Ok(directory)) => Ok(Self { object, directory }),
            (Err(_), Ok(directory)) => Ok(Self { object: directory.clone(), directory }),
            (_, Err(error)) => Err(error.into()),
        }
    }
}

/// Returns the `start_after` for a listing. After a directory's sort key, it skips all keys in that directory.
fn start_after(prefix: &KeyPrefix, after: &[u8]) -> Bytes {
    let beyond = if after.ends_with(b"/") { LAST } else { "" };
    [prefix.as_bytes(), after, beyond.as_bytes()].concat().into()
}

impl Discovery {
    /// Fails with ENOTEMPTY if the directory has entries, in the tables or in the bucket besides its marker.
    pub(crate) async fn check_empty(&self, inode: &Inode) -> Result<()> {
        let prefix = self.mount.layout.directory(self.names.tables(), inode.ino)?;
        if !self.mount.layout.can_list(&prefix) {
            let is_empty = self.names.tables().entries(inode.ino, None, 1)?.is_empty();
            return if is_empty { Ok(()) } else { Err(Error::NOT_EMPTY) };
        }
        let request = ListRequest {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            limit: 2,
            ..ListRequest::default()
        };
        let page = self.mount.store.list(request).await?;
        if page.entries.iter().any(|entry| entry.text() != prefix.as_bytes()) {
            return Err(Error::NOT_EMPTY);
        }
        if !self.names.tables().entries(inode.ino, None, 1)?.is_empty() {
            // The bucket has nothing: known entries that are not being written are gone.
            self.list_page(inode.ino, &self.known.directories().get(inode.ino), b"").await?;
        }
        if self.names.tables().entries(inode.ino, None, 1)?.is_empty() {
            Ok(())
        } else {
            Err(Error::NOT_EMPTY)
        }
    }

    /// Returns a name that may be created: valid, not reserved, and not taken according to the bucket. Fails on a
    /// read-only mount.
    pub(crate) async fn free_name(&self, parent: Ino, bytes: &[u8], kind: Kind) -> Result<Name> {
        self.mount.check_writable()?;
        let name = name(bytes)?;
        self.mount.layout.check_not_reserved(self.names.tables(), parent, bytes)?;
        match self.find(parent, &name).await? {
            Some(_) => Err(Error::EXISTS),
            None => self.names.check_not_escape(parent, &name, kind).map(|()| name),
        }
    }

    /// Returns inodes with authoritative attributes, many requests at a time; `None` for inodes that are gone.
    pub(crate) async fn exact_all(&self, inodes: Vec<Option<Inode>>) -> Result<Vec<Option<Inode>>> {
        let exact = inodes.into_iter().map(|inode| async {
            match inode {
                None => Ok(None),
                Some(inode) => match self.with_exact_attributes(inode).await {
                    Ok(inode) => Ok(Some(inode)),
                    Err(error) if error.errno() == libc::ENOENT => Ok(None),
                    Err(error) => Err(error),
                },
            }
        });
        futures_util::stream::iter(exact).buffered(DESCRIBED_AT_ONCE).try_collect().await
    }

    /// Returns the inode at a path below the volume's root; ENOENT if there is none.
    pub(crate) async fn at_path(&self, path: &[u8]) -> Result<Inode> {
        let mut inode = self.names.tables().inode(Ino::ROOT)?;
        for component in path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            inode = self.must(self.find(inode.ino, &name(component)?).await?)?;
        }
        Ok(inode)
    }
}
