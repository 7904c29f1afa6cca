//! The one place where what the bucket holds becomes what the namespace says.
//!
//! Level-triggered: given what was seen at a name and when it was looked at, the namespace is brought to agree.
//! Listings, probes, failed preconditions and broken reads all end here, so that a lost, late or repeated
//! observation does no harm.
//!
//! Invariants: unpublished writes are never touched; what was changed here after the look wins over the look: names
//! by `changes`, inodes because the ops say when the look was made.

mod reported;

use meta::{Applied, Dentry, FsError, Ino, Inode, Kind, Moment, Name, Observed, Op, RenameHow};
use std::collections::{BTreeMap, BTreeSet};
use store::names::{self, KeyPrefix};
use store::{ETag, ListEntry, Timestamp};

use crate::attr::Attr;
use crate::bucket::headers;
use crate::bucket::sort_keys;
use crate::layout::is_reserved;
use crate::{Error, Filesystem, Result};

/// What was looked at: a page of a listing, which the directory remembers having seen, or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Page,
    Name,
}

/// What one look found in a directory, by the name it shows under; `None`: nothing.
type Observations = BTreeMap<Name, Option<Observed>>;

/// Names agreed on in one commit, while nobody else begins to change a name.
const BATCH: usize = 256;
/// Known names that are compared with a page at once.
const KNOWN_AT_ONCE: usize = 4096;

/// The names that a page of a listing shows.
#[derive(Debug, Default)]
struct PageNames {
    directories: BTreeSet<Name>,
    objects: BTreeSet<Name>,
}

/// Whether a look at a time is_valid for a name, see `changes`.
type IsValidLook<'c> = &'c dyn Fn(Ino, &Name, Moment) -> bool;

/// Where a look was made: a directory, and the keys that were its own then.
pub(crate) type Place<'p> = (Ino, &'p KeyPrefix);

impl Filesystem {
    /// A page of a directory's listing: everything known between `after` and `end` that it does not show is gone.
    /// False if the look does not count: whoever made it looks again.
    pub(crate) async fn reconcile_page(
        &self,
        place: Place<'_>,
        (after, end): (&[u8], Option<&[u8]>),
        entries: &[ListEntry],
        looked_at: Moment,
    ) -> Result<bool> {
        let mut page = PageNames::default();
        let shown = self.if_look_is_valid(place, looked_at, |_| {
            let (dir, prefix) = place;
            let (objects, directories) = self.sort(dir, prefix, entries, looked_at)?;
            let mut observations = Observations::new();
            for name in directories {
                let seen = headers::implicit_directory(self.now(), looked_at, &self.defaults, false);
                page.directories.insert(name.clone());
                observations.insert(name, Some(seen));
            }
            for (name, seen) in objects {
                let is_in_page = || covers(after, end, &name);
                let is_beside = match page.directories.contains(&name) {
                    true => true,
                    false => self.is_directory_too(place, &name, is_in_page(), looked_at)?,
                };
                let shown =
                    if is_beside { Name::new(&names::beside(name.as_bytes()))? } else { name.clone() };
                page.objects.insert(name);
                observations.insert(shown, Some(seen));
            }
            Ok(observations)
        })?;
        let Some(shown) = shown else { return Ok(false) };
        if !self.reconcile_entries(place, shown, looked_at, Look::Page).await? {
            return Ok(false);
        }
        let mut after = after.to_vec();
        loop {
            let known = sort_keys::entries_between(&self.names, place.0, &after, end, KNOWN_AT_ONCE)?;
            let Some(last) = known.last() else { return Ok(true) };
            after = last.sort_key.clone();
            let mut missing = Observations::new();
            for entry in known {
                if !self.is_in_page(&page, place.0, &entry.name)? {
                    missing.insert(entry.name, None);
                }
            }
            if !missing.is_empty() && !self.reconcile_entries(place, missing, looked_at, Look::Page).await? {
                return Ok(false);
            }
        }
    }

    /// Whether a page shows a name: that of an object is another one where a directory has its plain one.
    fn is_in_page(&self, page: &PageNames, dir: Ino, name: &Name) -> Result<bool> {
        if page.directories.contains(name) || page.objects.contains(name) {
            return Ok(true);
        }
        let Some(plain) = names::plain(name.as_bytes()) else { return Ok(false) };
        let plain = Name::new(plain)?;
        let is_directory = page.directories.contains(&plain)
            || self.names.entry(dir, &plain)?.is_some_and(|entry| entry.kind == Kind::Directory);
        Ok(page.objects.contains(&plain) && is_directory)
    }

    /// Does something with a look unless its directory has moved, or is being replaced, since: `None` then. Nobody changes a
    /// name meanwhile, so it must be a bounded number of steps.
    fn if_look_is_valid<T>(
        &self,
        (dir, prefix): Place<'_>,
        looked_at: Moment,
        work: impl FnOnce(IsValidLook<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.changes.while_frozen(|is_valid| {
            let home = self.names.inode(dir)?.home;
            let is_settled = home.is_none_or(|(parent, name)| is_valid(parent, &name, looked_at));
            if !is_settled || self.layout.directory(&self.names, dir)? != *prefix {
                return Ok(None);
            }
            work(is_valid).map(Some)
        })
    }

    /// Whether the name of a listed object is a directory's as well, although the page does not show one: the page does not
    /// reach so far, or this mount knows better.
    fn is_directory_too(
        &self,
        place: Place<'_>,
        name: &Name,
        is_in_page: bool,
        looked_at: Moment,
    ) -> Result<bool> {
        match self.names.lookup(place.0, name)? {
            Some(known) if known.kind == Kind::Directory => {
                Ok(!is_in_page || !self.is_gone(place, name, &known, looked_at)?)
            }
            _ => Ok(false),
        }
    }

    /// One name: what its object and its directory were seen to be.
    /// False if the look does not count.
    pub(crate) async fn reconcile_name(
        &self,
        place: Place<'_>,
        name: &Name,
        object: Option<Observed>,
        directory: Option<Observed>,
        looked_at: Moment,
    ) -> Result<bool> {
        let observations = self.if_look_is_valid(place, looked_at, |_| {
            let mut observations = Observations::new();
            match (object, directory) {
                (object, Some(directory)) => {
                    observations.insert(Name::new(&names::beside(name.as_bytes()))?, object);
                    observations.insert(name.clone(), Some(directory));
                }
                (object, None) => {
                    // Nothing needs to show beside a directory that is not there.
                    if let Ok(beside) = Name::new(&names::beside(name.as_bytes()))
                        && self.names.entry(place.0, &beside)?.is_some()
                    {
                        observations.insert(beside, None);
                    }
                    observations.insert(name.clone(), object);
                }
            }
            Ok(observations)
        })?;
        match observations {
            Some(observations) => self.reconcile_entries(place, observations, looked_at, Look::Name).await,
            None => Ok(false),
        }
    }

    /// What shows under one name was looked at by its key: this is what it is (`None`: gone).
    pub(crate) async fn reconcile_shown(
        &self,
        place: Place<'_>,
        name: &Name,
        seen: Option<Observed>,
        looked_at: Moment,
    ) -> Result<bool> {
        self.reconcile_entries(place, Observations::from([(name.clone(), seen)]), looked_at, Look::Name).await
    }

    /// The headers of bytes that an inode has, or had.
    pub(crate) fn reconcile_headers(&self, ino: Ino, seen: Observed) -> Result<()> {
        let inode = self.names.inode(ino)?;
        if has_other_bytes(&inode, &seen) || self.has_unpublished_writes(ino) {
            return Ok(());
        }
        let seen = headers::with_known_precision(stored_at(&inode), seen);
        match self.names.commit(&self.ctx(), &Op::Refresh { ino, seen }) {
            Ok(Applied { inode: Some(after), .. }) => self.propagate_refresh(&inode, &after),
            outcome => is_too_late(outcome).map(drop),
        }
    }

    /// Entries of a listing as names: objects, and directories. Tenon's own are left out.
    #[expect(clippy::type_complexity, reason = "two lists of one loop")]
    fn sort(
        &self,
        dir: Ino,
        prefix: &KeyPrefix,
        entries: &[ListEntry],
        looked_at: Moment,
    ) -> Result<(Vec<(Name, Observed)>, Vec<Name>)> {
        let (mut objects, mut directories) = (Vec::new(), Vec::new());
        for entry in entries {
            match (prefix.entry(entry.text()), entry) {
                (Some(names::Entry::Directory(name)), _) if !is_reserved(dir, &name) => {
                    directories.push(Name::new(&name)?);
                }
                (Some(names::Entry::Object(name)), ListEntry::Object { object, size_bytes }) => {
                    let seen = headers::listed(object, *size_bytes, false, &self.defaults, looked_at);
                    objects.push((Name::new(&name)?, seen));
                }
                (Some(names::Entry::Marker), ListEntry::Object { object, size_bytes }) => {
                    self.observe_own_marker(
                        dir,
                        headers::listed(object, *size_bytes, true, &self.defaults, looked_at),
                    )?;
                }
                _ => {}
            }
        }
        directories.dedup();
        Ok((objects, directories))
    }

    /// A directory's own marker was listed inside it.
    fn observe_own_marker(&self, dir: Ino, seen: Observed) -> Result<()> {
        let inode = self.names.inode(dir)?;
        if dir == Ino::ROOT {
            return Ok(());
        }
        if !has_other_bytes(&inode, &seen) {
            self.note_listing_of_shared(&inode, &seen);
            return Ok(());
        }
        let seen = Observed { mode: inode.mode, uid: inode.uid, gid: inode.gid, ..seen };
        is_too_late(self.names.commit(&self.ctx(), &Op::Refresh { ino: dir, seen }))?;
        Ok(())
    }

    /// A file whose name a directory needs shows beside it from now on. Whether there was one.
    fn make_room_for_directory(&self, dir: Ino, name: &Name) -> Result<bool> {
        let Some(Dentry { kind, .. }) = self.names.entry(dir, name)? else { return Ok(false) };
        if kind == Kind::Directory {
            return Ok(false);
        }
        let beside = Name::new(&names::beside(name.as_bytes()))?;
        let how = RenameHow::Replace;
        let op = Op::Rename { from: (dir, name.clone()), to: (dir, beside.clone()), how, keep: false };
        let has_moved = !is_too_late(self.names.commit(&self.ctx(), &op))?;
        self.invalidations.entry(dir, name.as_bytes());
        self.invalidations.entry(dir, beside.as_bytes());
        Ok(has_moved)
    }

    /// Brings names to agree with what a look found under them, a bounded number at a time. False if the look does not count
    /// any more.
    async fn reconcile_entries(
        &self,
        place: Place<'_>,
        observations: Observations,
        looked_at: Moment,
        look: Look,
    ) -> Result<bool> {
        let mut observations = observations.into_iter();
        loop {
            let batch: Vec<_> = observations.by_ref().take(BATCH).collect();
            let is_last = batch.len() < BATCH;
            let done = self.if_look_is_valid(place, looked_at, |is_valid| {
                self.reconcile_batch(place, batch, looked_at, look, is_valid)
            })?;
            let Some(missing) = done else { return Ok(false) };
            if !missing.is_empty() && !self.drop_directories(place, missing, looked_at).await? {
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Agrees on a batch in one commit. Returns directories that the look did not find, with what it found in their place.
    fn reconcile_batch(
        &self,
        place: Place<'_>,
        observations: Vec<(Name, Option<Observed>)>,
        looked_at: Moment,
        look: Look,
        is_valid: IsValidLook<'_>,
    ) -> Result<Vec<(Name, Option<Observed>)>> {
        let dir = place.0;
        // Together with the import that takes the name: a change that began in between would leave it to nobody.
        for (name, seen) in &observations {
            if seen.as_ref().is_some_and(|seen| seen.kind == Kind::Directory)
                && is_valid(dir, name, looked_at)
            {
                self.make_room_for_directory(dir, name)?;
            }
        }
        let mut ops = Vec::new();
        let mut missing = Vec::new();
        let mut refreshed = Vec::new();
        for (name, seen) in observations {
            if !is_valid(dir, &name, looked_at) {
                continue;
            }
            let local = self.names.lookup(dir, &name)?;
            if let (Some(local), Some(seen)) = (&local, &seen)
                && has_other_bytes(local, seen)
                && let Some(file) = self.files.get(local.ino)
            {
                file.overtake();
            }
            match (local, seen) {
                (None, None) => {}
                (None, Some(seen)) => {
                    ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                }
                (Some(local), seen)
                    if local.is_dir()
                        && seen.as_ref().is_none_or(|seen| seen.kind != Kind::Directory)
                        && self.layout.shows(place, &name, &local) =>
                {
                    missing.push((name, seen));
                }
                (Some(local), None) => {
                    if self.is_gone(place, &name, &local, looked_at)? {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                    }
                }
                // A further name of a file shows what lies under its own key, also what was left there when its file
                // was handed on.
                (Some(local), Some(seen)) if !self.layout.shows(place, &name, &local) => {
                    if self.layout.may_show(place, &name, &local) {
                        // It may be the file itself, unheard of: that is found out when it is stored there.
                        self.export_later(local.ino)?;
                    } else {
                        ops.push(Op::Vanish {
                            parent: dir,
                            name: name.clone(),
                            looked_at,
                            keep: self.is_open(local.ino),
                        });
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                // It was being made when the last mount died: this is another one.
                (Some(local), Some(seen))
                    if !local.is_dir() && local.object().is_none() && seen.kind != Kind::Directory =>
                {
                    if !self.is_open(local.ino) {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen)) if !local.is_dir() && seen.kind == Kind::Directory => {
                    if self.is_gone(place, &name, &local, looked_at)? {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen))
                    if has_other_bytes(&local, &seen) && self.has_write_in_doubt(local.ino) =>
                {
                    // Its export finds out whose it is.
                    self.export_later(local.ino)?;
                }
                (Some(local), Some(seen)) => {
                    if look == Look::Page && !has_other_bytes(&local, &seen) {
                        self.note_listing_of_shared(&local, &seen);
                    }
                    let is_confirmed = look == Look::Name
                        && local.exact
                        && local.observed_at < looked_at
                        && !has_other_bytes(&local, &seen);
                    // Only that it is so: its attributes stay.
                    let confirmed = is_confirmed.then(|| Observed { exact: false, ..seen.clone() });
                    if let Some(seen) = self.new_information(&local, seen, looked_at) {
                        ops.push(Op::Refresh { ino: local.ino, seen });
                        refreshed.push(local);
                    } else if let Some(seen) = confirmed {
                        ops.push(Op::Refresh { ino: local.ino, seen });
                    }
                }
            }
        }
        self.commit_observations(&ops)?;
        for before in refreshed {
            match self.names.inode(before.ino) {
                Ok(after) => self.propagate_refresh(&before, &after)?,
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(missing)
    }

    /// Commits observations as one. One that came too late changes nothing.
    fn commit_observations(&self, ops: &[Op]) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        for (op, outcome) in ops.iter().zip(self.names.commit_all(&self.ctx(), ops)?) {
            match (op, outcome) {
                (Op::Vanish { parent, name, .. }, Ok(applied)) => {
                    if let Some(removed) = applied.removed {
                        self.directories.remove(removed.ino);
                    }
                    self.invalidations.entry(*parent, name.as_bytes());
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => tracing::debug!(%error, "an observation came too late"),
            }
        }
        Ok(())
    }

    /// Drops directories that a look did not find, with all below them that nothing here keeps; what it found in the place of
    /// one takes its name. False if the look does not count any more.
    async fn drop_directories(
        &self,
        place: Place<'_>,
        missing: Vec<(Name, Option<Observed>)>,
        looked_at: Moment,
    ) -> Result<bool> {
        for (name, _) in &missing {
            if let Some(Dentry { ino, kind: Kind::Directory }) = self.names.entry(place.0, name)?
                && self.is_gone(place, name, &self.names.inode(ino)?, looked_at)?
            {
                let inside = place.1.child_dir(name.as_bytes())?;
                Box::pin(self.drop_below((ino, &inside), looked_at)).await?;
            }
        }
        let done = self.if_look_is_valid(place, looked_at, |is_valid| {
            let mut ops = Vec::new();
            for (name, seen) in &missing {
                let Some(local) = self.names.lookup(place.0, name)?.filter(Inode::is_dir) else { continue };
                if !is_valid(place.0, name, looked_at) || !self.is_gone(place, name, &local, looked_at)? {
                    continue;
                }
                let (parent, name) = (place.0, name.clone());
                ops.push(Op::Vanish { parent, name: name.clone(), looked_at, keep: false });
                if let Some(seen) = seen.clone() {
                    ops.push(Op::Import { parent, name, ino: self.new_ino(parent)?, seen });
                }
            }
            self.commit_observations(&ops)?;
            let mut beside = Vec::new();
            for (name, seen) in missing.into_iter().filter(|(_, seen)| seen.is_some()) {
                // Something below the directory stays, and so does the directory.
                if self.names.entry(place.0, &name)?.is_some_and(|entry| entry.kind == Kind::Directory) {
                    beside.push((Name::new(&names::beside(name.as_bytes()))?, seen));
                }
            }
            match beside.is_empty() {
                true => Ok(()),
                false => self.reconcile_batch(place, beside, looked_at, Look::Name, is_valid).map(drop),
            }
        });
        Ok(done?.is_some())
    }

    /// Drops what is known in a directory that a look showed to be gone, one commit for a batch of names.
    async fn drop_below(&self, place: Place<'_>, looked_at: Moment) -> Result<()> {
        let mut after = None;
        loop {
            let batch = self.names.entries(place.0, after.as_ref(), BATCH)?;
            let is_last = batch.len() < BATCH;
            after = batch.last().map(|(name, _)| name.clone());
            let observations = batch.into_iter().map(|(name, _)| (name, None)).collect();
            if !self.reconcile_entries(place, observations, looked_at, Look::Name).await? || is_last {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some()
    }

    /// What of a look is new; a look without headers leaves the attributes that are known.
    fn new_information(&self, local: &Inode, seen: Observed, looked_at: Moment) -> Option<Observed> {
        let same_bytes = !has_other_bytes(local, &seen);
        let seen = if same_bytes { headers::with_known_precision(stored_at(local), seen) } else { seen };
        let is_late = local.observed_at >= looked_at && !(seen.exact && same_bytes && !local.exact);
        if is_late || self.has_unpublished_writes(local.ino) {
            return None;
        }
        if let Some(sharing) = &self.sharing
            && same_bytes
            && !self.awaits_export(local.ino)
            && let Some(seen) = sharing.attributes(local, &seen, self.moments.wall(looked_at), self.now())
        {
            return Some(seen);
        }
        if seen.kind == Kind::Directory {
            let is_better = seen.exact && (!local.exact || !same_bytes);
            return (is_better && local.kind == Kind::Directory).then_some(seen);
        }
        if same_bytes && (local.exact || !seen.exact) {
            return None;
        }
        if seen.exact || !same_bytes && self.reads_headers {
            return Some(seen);
        }
        Some(Observed { mode: local.mode, uid: local.uid, gid: local.gid, ..seen })
    }

    /// Where other machines mount the bucket too: a listing of the bytes that are known may show that one of them changed
    /// attributes.
    fn note_listing_of_shared(&self, local: &Inode, seen: &Observed) {
        if let Some(sharing) = self.sharing.as_ref().filter(|_| local.exact) {
            sharing.listed(local, seen, self.moments.wall(local.observed_at));
        }
    }

    /// An inode was refreshed: its open handles and the kernel hear of it.
    fn propagate_refresh(&self, before: &Inode, after: &Inode) -> Result<()> {
        if etag(before) != etag(after) {
            self.forget_pending(after.ino)?;
            if let Some(file) = self.files.get(after.ino) {
                file.replace(|| self.pin_of(after.ino))?;
            }
            match self.has_older_readers(after.ino) {
                // What they have open is what the pages are of; who opens the file now reads past these.
                true => self.invalidations.attributes(after.ino),
                false => self.invalidations.inode(after.ino),
            }
        } else if Attr::from(before) != Attr::from(after) {
            self.invalidations.attributes(after.ino);
        }
        Ok(())
    }

    /// Whether the absence of a known entry from a look means that it is gone; of a directory, unless something below it stays.
    fn is_gone(&self, place: Place<'_>, name: &Name, local: &Inode, looked_at: Moment) -> Result<bool> {
        let is_told = self.layout.shows(place, name, local);
        if !is_told || local.observed_at >= looked_at || self.has_unpublished_writes(local.ino) {
            return Ok(false);
        }
        // A file that is neither stored nor open was being created when the last mount died.
        Ok(local.is_dir() || local.object().is_some() || !self.is_open(local.ino))
    }

    /// The ops that drop a file's name: the others of its names led to the same object.
    fn push_vanish_ops(
        &self,
        dir: Ino,
        name: &Name,
        local: &Inode,
        looked_at: Moment,
        ops: &mut Vec<Op>,
    ) -> Result<()> {
        let others = if local.nlink > 1 { self.names.names(local.ino)? } else { Vec::new() };
        let all = others.into_iter().skip(1).chain([(dir, name.clone())]);
        let keep = self.is_open(local.ino);
        ops.extend(all.map(|(parent, name)| Op::Vanish { parent, name, looked_at, keep }));
        Ok(())
    }

    /// The bucket has something else under a name. Whether it does still.
    pub(crate) fn remove_name(
        &self,
        dir: Ino,
        name: &Name,
        local: &Inode,
        looked_at: Moment,
    ) -> Result<bool> {
        let keep = self.files.get(local.ino).is_some();
        let op = Op::Vanish { parent: dir, name: name.clone(), looked_at, keep };
        if is_too_late(self.names.commit(&self.ctx(), &op))? {
            return Ok(false);
        }
        match local.kind {
            Kind::Directory => self.forget_removed(local),
            _ => self.directories.remove(local.ino),
        }
        self.invalidations.entry(dir, name.as_bytes());
        Ok(true)
    }

    /// Whether something is being stored for an open file, or was and nobody heard of it: what is seen may be that.
    fn has_write_in_doubt(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.has_tried_any())
    }

    pub(crate) fn has_unpublished_writes(&self, ino: Ino) -> bool {
        self.files.get(ino).is_some_and(|file| file.pending().is_edited)
    }

    /// A name that must exist.
    pub(crate) fn must(&self, found: Option<Inode>) -> Result<Inode> {
        found.ok_or(Error::NOT_FOUND)
    }
}

/// Whether a page of a listing, after one text and up to another, reaches to where a directory of this name would show.
fn covers(after: &[u8], end: Option<&[u8]>, name: &Name) -> bool {
    sort_keys::sort_key(name, Kind::Directory)
        .is_some_and(|text| after < text.as_slice() && end.is_none_or(|end| text.as_slice() <= end))
}

/// Whether an observation met a change made here meanwhile, which then stands.
fn is_too_late<T>(outcome: Result<T, FsError>) -> Result<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(
            FsError::NotFound | FsError::Exists | FsError::NotEmpty | FsError::IsDirectory | FsError::Late,
        ) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether other bytes were seen than are known.
fn has_other_bytes(local: &Inode, seen: &Observed) -> bool {
    etag(local) != seen.object.as_ref().map(|object| &object.etag)
}

fn stored_at(inode: &Inode) -> Option<Timestamp> {
    inode.object().and_then(|object| object.last_modified)
}

/// The tag of the object that a file is, if it is one.
pub(crate) fn etag(inode: &Inode) -> Option<&ETag> {
    inode.object().map(|object| &object.etag)
}
