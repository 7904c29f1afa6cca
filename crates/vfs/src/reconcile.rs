//! The one place where what the bucket holds becomes what the namespace says.
//!
//! Level-triggered: given what was seen at a name and when it was looked at, the namespace is brought to agree.
//! Listings, probes, failed preconditions and broken reads all end here, so that a lost, late or repeated
//! observation does no harm.
//!
//! Invariants: unpublished writes are never touched; what was changed here after the look wins over the look: names
//! by `changes`, inodes because the ops say when the look was made.

mod told;

use meta::{Applied, Dentry, FsError, Ino, Inode, Kind, Name, Observed, Op, RenameHow};
use std::collections::BTreeMap;
use store::names::{self, KeyPrefix};
use store::{ETag, ListEntry, Timestamp};

use crate::attr::Attr;
use crate::headers;
use crate::layout::is_reserved;
use crate::texts;
use crate::{Error, Filesystem, Result};

/// What was looked at: a page of a listing, which the directory remembers having seen, or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Page,
    Name,
}

/// What one look found in a directory, by the name it shows under; `None`: nothing.
type Sightings = BTreeMap<Name, Option<Observed>>;

/// Whether a look at a time counts for a name, see `changes`.
type Counts<'c> = &'c dyn Fn(Ino, &Name, Timestamp) -> bool;

/// Where a look was made: a directory, and the keys that were its own then.
pub(crate) type Place<'p> = (Ino, &'p KeyPrefix);

impl Filesystem {
    /// A page of a directory's listing: everything known between `after` and `end` that it does not show is gone.
    /// False if the look does not count: whoever made it looks again.
    pub(crate) fn reconcile_page(
        &self,
        place: Place<'_>,
        (after, end): (&[u8], Option<&[u8]>),
        entries: &[ListEntry],
        looked_at: Timestamp,
    ) -> Result<bool> {
        self.if_it_counts(place, looked_at, |counts| {
            let (dir, prefix) = place;
            let (objects, directories) = self.sort(dir, prefix, entries, looked_at)?;
            let mut sightings = Sightings::new();
            for entry in texts::known(&self.names, dir, after, end, usize::MAX)? {
                sightings.insert(entry.name, None);
            }
            for name in directories {
                if self.make_room_for_directory(dir, &name)? && after < name.as_bytes() {
                    // This page would have shown its object; it is shown beside if it was.
                    sightings.insert(Name::new(&names::beside(name.as_bytes()))?, None);
                }
                let seen = headers::implicit_directory(looked_at, &self.defaults, false);
                sightings.insert(name, Some(seen));
            }
            for (name, seen) in objects {
                let is_beside = self.is_directory_too(place, &name, sightings.get(&name), looked_at)?;
                let shown = if is_beside { Name::new(&names::beside(name.as_bytes()))? } else { name };
                sightings.insert(shown, Some(seen));
            }
            self.agree(place, sightings, looked_at, Look::Page, counts)
        })
    }

    /// Does something with a look unless its directory has moved, or is being replaced, since. Nobody changes a name
    /// meanwhile.
    fn if_it_counts(
        &self,
        (dir, prefix): Place<'_>,
        looked_at: Timestamp,
        work: impl FnOnce(Counts<'_>) -> Result<()>,
    ) -> Result<bool> {
        self.changes.frozen(|counts| {
            let home = self.names.inode(dir)?.home;
            let is_settled = home.is_none_or(|(parent, name)| counts(parent, &name, looked_at));
            if !is_settled || self.layout.directory(&self.names, dir)? != *prefix {
                return Ok(false);
            }
            work(counts).map(|()| true)
        })
    }

    /// Whether the name of a listed object is a directory's as well, by the same page or, where that does not
    /// reach so far, by what is known.
    fn is_directory_too(
        &self,
        place: Place<'_>,
        name: &Name,
        sighting: Option<&Option<Observed>>,
        looked_at: Timestamp,
    ) -> Result<bool> {
        if let Some(Some(seen)) = sighting {
            return Ok(seen.kind == Kind::Directory);
        }
        match self.names.lookup(place.0, name)? {
            Some(known) if known.kind == Kind::Directory => {
                Ok(sighting.is_none() || !self.is_gone(place, name, &known, looked_at)?)
            }
            _ => Ok(false),
        }
    }

    /// One name: what its object and its directory were seen to be.
    /// False if the look does not count.
    pub(crate) fn reconcile_name(
        &self,
        place: Place<'_>,
        name: &Name,
        object: Option<Observed>,
        directory: Option<Observed>,
        looked_at: Timestamp,
    ) -> Result<bool> {
        self.if_it_counts(place, looked_at, |counts| {
            let mut sightings = Sightings::new();
            match (object, directory) {
                (object, Some(directory)) => {
                    self.make_room_for_directory(place.0, name)?;
                    sightings.insert(Name::new(&names::beside(name.as_bytes()))?, object);
                    sightings.insert(name.clone(), Some(directory));
                }
                (object, None) => {
                    // Nothing needs to show beside a directory that is not there.
                    if let Ok(beside) = Name::new(&names::beside(name.as_bytes()))
                        && self.names.entry(place.0, &beside)?.is_some()
                    {
                        sightings.insert(beside, None);
                    }
                    sightings.insert(name.clone(), object);
                }
            }
            self.agree(place, sightings, looked_at, Look::Name, counts)
        })
    }

    /// What shows under one name was looked at by its key: this is what it is (`None`: gone).
    pub(crate) fn reconcile_shown(
        &self,
        place: Place<'_>,
        name: &Name,
        seen: Option<Observed>,
        looked_at: Timestamp,
    ) -> Result<bool> {
        self.if_it_counts(place, looked_at, |counts| {
            self.agree(place, Sightings::from([(name.clone(), seen)]), looked_at, Look::Name, counts)
        })
    }

    /// The headers of bytes that an inode has, or had.
    pub(crate) fn reconcile_headers(&self, ino: Ino, seen: Observed) -> Result<()> {
        let inode = self.names.inode(ino)?;
        if is_other(&inode, &seen) || self.has_unpublished_writes(ino) {
            return Ok(());
        }
        let seen = headers::as_fine_as(stored_at(&inode), seen);
        match self.names.commit(&self.ctx(), &Op::Refresh { ino, seen }) {
            Ok(Applied { inode: Some(after), .. }) => self.refreshed(&inode, &after),
            outcome => came_too_late(outcome).map(drop),
        }
    }

    /// Entries of a listing as names: objects, and directories. Tenon's own are left out.
    #[expect(clippy::type_complexity, reason = "two lists of one loop")]
    fn sort(
        &self,
        dir: Ino,
        prefix: &KeyPrefix,
        entries: &[ListEntry],
        looked_at: Timestamp,
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
                    self.see_marker(
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
    fn see_marker(&self, dir: Ino, seen: Observed) -> Result<()> {
        let inode = self.names.inode(dir)?;
        if dir == Ino::ROOT {
            return Ok(());
        }
        if !is_other(&inode, &seen) {
            self.share_look(&inode, &seen);
            return Ok(());
        }
        let seen = Observed { mode: inode.mode, uid: inode.uid, gid: inode.gid, ..seen };
        came_too_late(self.names.commit(&self.ctx(), &Op::Refresh { ino: dir, seen }))?;
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
        let has_moved = !came_too_late(self.names.commit(&self.ctx(), &op))?;
        self.invalidations.entry(dir, name.as_bytes());
        self.invalidations.entry(dir, beside.as_bytes());
        Ok(has_moved)
    }

    fn agree(
        &self,
        place: Place<'_>,
        sightings: Sightings,
        looked_at: Timestamp,
        look: Look,
        counts: Counts<'_>,
    ) -> Result<()> {
        let dir = place.0;
        let mut ops = Vec::new();
        let mut refreshed = Vec::new();
        for (name, seen) in sightings {
            if !counts(dir, &name, looked_at) {
                continue;
            }
            let local = self.names.lookup(dir, &name)?;
            if let (Some(local), Some(seen)) = (&local, &seen)
                && is_other(local, seen)
                && let Some(file) = self.files.get(local.ino)
            {
                file.overtake();
            }
            match (local, seen) {
                (None, None) => {}
                (None, Some(seen)) => {
                    ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                }
                (Some(local), None) => {
                    self.vanish_if_gone(place, &name, &local, looked_at)?;
                }
                // A further name of a file shows what lies under its own key, also what was left there when its file
                // was handed on.
                (Some(local), Some(seen)) if !self.layout.shows(place, &name, &local) => {
                    if self.layout.may_show(place, &name, &local) {
                        // It may be the file itself, unheard of: that is found out when it is stored there.
                        self.export_later(local.ino)?;
                    } else if self.take_name_away(dir, &name, &local, looked_at)? {
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                // It was being made when the last mount died: this is another one.
                (Some(local), Some(seen))
                    if !local.is_dir() && local.object().is_none() && seen.kind != Kind::Directory =>
                {
                    if self.files.get(local.ino).is_none() && self.vanish(dir, &name, &local, looked_at)? {
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen))
                    if (local.kind == Kind::Directory) != (seen.kind == Kind::Directory) =>
                {
                    if self.vanish_if_gone(place, &name, &local, looked_at)? {
                        ops.push(Op::Import { parent: dir, name, ino: self.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen)) if is_other(&local, &seen) && self.awaits_answer(local.ino) => {
                    // Its export finds out whose it is.
                    self.export_later(local.ino)?;
                }
                (Some(local), Some(seen)) => {
                    if look == Look::Page && !is_other(&local, &seen) {
                        self.share_look(&local, &seen);
                    }
                    let is_confirmed = look == Look::Name
                        && local.exact
                        && local.observed_at < looked_at
                        && !is_other(&local, &seen);
                    // Only that it is so: its attributes stay.
                    let confirmed = is_confirmed.then(|| Observed { exact: false, ..seen.clone() });
                    if let Some(seen) = self.news(&local, seen, looked_at) {
                        ops.push(Op::Refresh { ino: local.ino, seen });
                        refreshed.push(local);
                    } else if let Some(seen) = confirmed {
                        ops.push(Op::Refresh { ino: local.ino, seen });
                    }
                }
            }
        }
        for outcome in self.names.commit_all(&self.ctx(), &ops)? {
            if let Err(error) = outcome {
                tracing::debug!(%error, "an observation came too late");
            }
        }
        for before in refreshed {
            match self.names.inode(before.ino) {
                Ok(after) => self.refreshed(&before, &after)?,
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What of a look is new; a look without headers leaves the attributes that are known.
    fn news(&self, local: &Inode, seen: Observed, looked_at: Timestamp) -> Option<Observed> {
        let same_bytes = !is_other(local, &seen);
        let seen = if same_bytes { headers::as_fine_as(stored_at(local), seen) } else { seen };
        let is_late = local.observed_at >= looked_at && !(seen.exact && same_bytes && !local.exact);
        if is_late || self.has_unpublished_writes(local.ino) {
            return None;
        }
        if let Some(sharing) = &self.sharing
            && same_bytes
            && !self.exports.contains(local.ino)
            && let Some(seen) = sharing.attributes(local, &seen)
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
    fn share_look(&self, local: &Inode, seen: &Observed) {
        if let Some(sharing) = self.sharing.as_ref().filter(|_| local.exact) {
            sharing.listed(local, seen);
        }
    }

    /// An inode was refreshed: its open handles and the kernel hear of it.
    fn refreshed(&self, before: &Inode, after: &Inode) -> Result<()> {
        if etag(before) != etag(after) {
            self.forget_waiting(after.ino)?;
            if let Some(file) = self.files.get(after.ino) {
                file.replace(|| self.pin_of(after.ino))?;
            }
            self.invalidations.inode(after.ino);
        } else if Attr::from(before) != Attr::from(after) {
            self.invalidations.attributes(after.ino);
        }
        Ok(())
    }

    /// Whether the absence of a known entry from a look means that it is gone.
    fn is_gone(&self, place: Place<'_>, name: &Name, local: &Inode, looked_at: Timestamp) -> Result<bool> {
        let is_told = self.layout.shows(place, name, local);
        if !is_told || local.observed_at >= looked_at || self.has_unpublished_writes(local.ino) {
            return Ok(false);
        }
        if local.kind != Kind::Directory {
            // What is not stored and not open was being made when the last mount died.
            return Ok(local.object().is_some() || self.files.get(local.ino).is_none());
        }
        let inside = place.1.child_dir(name.as_bytes())?;
        for (name, entry) in self.names.entries(local.ino, None, usize::MAX)? {
            match self.names.inode(entry.ino) {
                Ok(child) if !self.is_gone((local.ino, &inside), &name, &child, looked_at)? => {
                    return Ok(false);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// Drops a name, and what is below it, if the bucket dropped it. Whether it did.
    fn vanish_if_gone(
        &self,
        place: Place<'_>,
        name: &Name,
        local: &Inode,
        looked_at: Timestamp,
    ) -> Result<bool> {
        Ok(self.is_gone(place, name, local, looked_at)? && self.vanish(place.0, name, local, looked_at)?)
    }

    fn vanish(&self, dir: Ino, name: &Name, local: &Inode, looked_at: Timestamp) -> Result<bool> {
        if local.kind == Kind::Directory {
            for (child_name, _) in self.names.entries(local.ino, None, usize::MAX)? {
                if let Some(child) = self.names.lookup(local.ino, &child_name)? {
                    self.vanish(local.ino, &child_name, &child, looked_at)?;
                }
            }
        }
        // The others of a file's names led to the same object.
        for (dir, name) in self.names.names(local.ino)?.into_iter().skip(1) {
            self.take_name_away(dir, &name, local, looked_at)?;
        }
        self.take_name_away(dir, name, local, looked_at)
    }

    /// The bucket has something else under a name. Whether it does still.
    pub(crate) fn take_name_away(
        &self,
        dir: Ino,
        name: &Name,
        local: &Inode,
        looked_at: Timestamp,
    ) -> Result<bool> {
        let keep = self.files.get(local.ino).is_some();
        let op = Op::Vanish { parent: dir, name: name.clone(), looked_at, keep };
        if came_too_late(self.names.commit(&self.ctx(), &op))? {
            return Ok(false);
        }
        self.directories.remove(local.ino);
        self.invalidations.entry(dir, name.as_bytes());
        Ok(true)
    }

    /// Whether something is being stored for an open file, or was and nobody heard of it: what is seen may be that.
    fn awaits_answer(&self, ino: Ino) -> bool {
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

/// Whether an observation met a change made here meanwhile, which then stands.
fn came_too_late<T>(outcome: Result<T, FsError>) -> Result<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(
            FsError::NotFound | FsError::Exists | FsError::NotEmpty | FsError::IsDirectory | FsError::Late,
        ) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether other bytes were seen than are known.
fn is_other(local: &Inode, seen: &Observed) -> bool {
    etag(local) != seen.object.as_ref().map(|object| &object.etag)
}

fn stored_at(inode: &Inode) -> Option<Timestamp> {
    inode.object().and_then(|object| object.last_modified)
}

/// The tag of the object that a file is, if it is one.
pub(crate) fn etag(inode: &Inode) -> Option<&ETag> {
    inode.object().map(|object| &object.etag)
}
