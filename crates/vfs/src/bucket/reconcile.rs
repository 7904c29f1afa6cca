//! Reconciles the namespace with the bucket. No other code does this.
//!
//! Level-triggered: given what was seen at a name and when, the namespace is brought to agree with it. Listings, probes, failed
//! preconditions and failed reads all end here, so that lost, late and repeated observations do no harm.
//!
//! Invariants: unpublished writes are never touched. A change made here after a look takes precedence over the look: `changes`
//! checks this for names; ops carry the moment of the look for inodes.

pub(crate) mod reported;

use meta::{Applied, Dentry, FsError, Ino, Inode, Kind, Moment, Name, Observed, Op, Origin, RenameHow};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::names::{self, KeyPrefix};
use store::{ListEntry, Timestamp};

use crate::Result;
use crate::base::Base;
use crate::bucket::changes::{FrozenChanges, Validity};
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::known_state::KnownState;
use crate::bucket::metadata::object_metadata::Metadata;
use crate::bucket::parts::BucketParts;
use crate::bucket::{headers, sort_keys};
use crate::content::Content;
use crate::layout::{etag, is_reserved};
use crate::mount::Mount;
use crate::names::Names;

/// Makes the names agree with what was seen in the bucket.
#[derive(Debug)]
pub(crate) struct Reconciler {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) content: Arc<Content>,
    pub(in crate::bucket) known: Arc<KnownState>,
    pub(in crate::bucket) exports: Arc<ExportQueue>,
    pub(in crate::bucket) metadata: Arc<Metadata>,
}

impl Reconciler {
    pub(crate) fn new(base: &Base, parts: &BucketParts) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            exports: parts.exports.clone(),
            metadata: parts.metadata.clone(),
        })
    }
}

/// The kind of a look: a page of a listing, which is recorded in the directory, or one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Page,
    Name,
}

/// Observations of one look in a directory, by visible name; `None`: nothing was found.
type Observations = BTreeMap<Name, Option<Observed>>;

/// Maximum names to reconcile in one commit. No other change of a name can begin meanwhile, so a batch takes about a millisecond.
const BATCH: usize = 64;
/// Known names to compare with a page at once.
const KNOWN_AT_ONCE: usize = 4096;

/// The names on a page of a listing.
#[derive(Debug, Default)]
struct PageNames {
    directories: BTreeSet<Name>,
    objects: BTreeSet<Name>,
}

/// The place of a look at the bucket: a directory, and its key prefix at that time.
pub(crate) type PrefixedDirectory<'p> = (Ino, &'p KeyPrefix);

impl Reconciler {
    /// Reconciles a page of a directory's listing. Known names between `after` and `end` that are not on the page are removed.
    /// Returns false if the look is not valid; the caller then repeats it.
    pub(crate) async fn reconcile_page(
        &self,
        place: PrefixedDirectory<'_>,
        (after, end): (&[u8], Option<&[u8]>),
        entries: &[ListEntry],
        looked_at: Moment,
    ) -> Result<bool> {
        let mut page = PageNames::default();
        let shown = self.known.if_look_is_valid(place, looked_at, |_| {
            let (dir, prefix) = place;
            let (objects, directories) = self.sort(dir, prefix, entries, looked_at)?;
            let mut observations = Observations::new();
            for name in directories {
                let seen =
                    headers::implicit_directory(self.mount.now(), looked_at, &self.mount.defaults, false);
                page.directories.insert(name.clone());
                observations.insert(name, Some(seen));
            }
            for (name, seen) in objects {
                let is_in_page = || covers(after, end, &name);
                let is_shadowed = match page.directories.contains(&name) {
                    true => true,
                    false => self.is_directory_too(place, &name, is_in_page(), looked_at)?,
                };
                let shown =
                    if is_shadowed { Name::new(&names::colliding(name.as_bytes()))? } else { name.clone() };
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
            let known = sort_keys::entries_between(self.names.tables(), place.0, &after, end, KNOWN_AT_ONCE)?;
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

    /// Returns whether a page contains a visible name. An object has an escaped name if a directory has its plain one.
    fn is_in_page(&self, page: &PageNames, dir: Ino, name: &Name) -> Result<bool> {
        if page.directories.contains(name) || page.objects.contains(name) {
            return Ok(true);
        }
        let Some(plain) = names::plain(name.as_bytes()) else { return Ok(false) };
        let plain = Name::new(plain)?;
        let is_directory = page.directories.contains(&plain)
            || self.names.tables().entry(dir, &plain)?.is_some_and(|entry| entry.kind == Kind::Directory);
        Ok(page.objects.contains(&plain) && is_directory)
    }

    /// Returns whether the name of a listed object is also that of a directory that is not on the page: its place in the
    /// listing is on another page, or this mount has newer knowledge.
    fn is_directory_too(
        &self,
        place: PrefixedDirectory<'_>,
        name: &Name,
        is_in_page: bool,
        looked_at: Moment,
    ) -> Result<bool> {
        match self.names.tables().lookup(place.0, name)? {
            Some(known) if known.kind == Kind::Directory => {
                Ok(!is_in_page || !self.is_gone(place, name, &known, looked_at)?)
            }
            _ => Ok(false),
        }
    }

    /// Reconciles one name with what was seen of its object and of its directory. Returns false if the look is not valid.
    pub(crate) async fn reconcile_name(
        &self,
        place: PrefixedDirectory<'_>,
        name: &Name,
        object: Option<Observed>,
        directory: Option<Observed>,
        looked_at: Moment,
    ) -> Result<bool> {
        let observations = self.known.if_look_is_valid(place, looked_at, |_| {
            let mut observations = Observations::new();
            match (object, directory) {
                (object, Some(directory)) => {
                    observations.insert(Name::new(&names::colliding(name.as_bytes()))?, object);
                    observations.insert(name.clone(), Some(directory));
                }
                (object, None) => {
                    // Without the directory, no escaped name is needed. A file that has it gets its plain name back when the
                    // directory is removed.
                    let entry = self.names.tables().entry(place.0, name)?;
                    let is_directory = entry.is_some_and(|entry| entry.kind == Kind::Directory);
                    if !(is_directory && object.is_some())
                        && let Ok(escaped) = Name::new(&names::colliding(name.as_bytes()))
                        && self.names.tables().entry(place.0, &escaped)?.is_some()
                    {
                        observations.insert(escaped, None);
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

    /// Reconciles one visible name with the object seen at its key; `None`: no object. Returns false if the look is not
    /// valid.
    pub(crate) async fn reconcile_visible_name(
        &self,
        place: PrefixedDirectory<'_>,
        name: &Name,
        seen: Option<Observed>,
        looked_at: Moment,
    ) -> Result<bool> {
        self.reconcile_entries(place, Observations::from([(name.clone(), seen)]), looked_at, Look::Name).await
    }

    /// Reconciles an inode with the headers of its object, if it still has these bytes and no unpublished writes.
    pub(crate) fn reconcile_headers(&self, ino: Ino, seen: Observed) -> Result<()> {
        let inode = self.names.tables().inode(ino)?;
        if has_other_bytes(&inode, &seen) || self.content.has_unpublished_writes(ino) {
            return Ok(());
        }
        let seen = headers::with_known_precision(stored_at(&inode), seen);
        let _telling_paused = self.names.follower().hold();
        match self.names.commit(Origin::Other, &Op::Refresh { ino, seen }) {
            Ok(Applied { inode: Some(after), .. }) => self.propagate_refresh(&inode, &after),
            outcome => is_too_late(outcome).map(drop),
        }
    }

    /// Sorts entries of a listing into objects and directories. Leaves out Tenon's own entries, and the directory's own
    /// marker, which is processed at once.
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
                (Some(names::Entry::Object(name)), ListEntry::Object(listed)) => {
                    let seen = headers::listed(listed, false, &self.mount.defaults, looked_at);
                    objects.push((Name::new(&name)?, seen));
                }
                (Some(names::Entry::Marker), ListEntry::Object(listed)) if dir != Ino::ROOT => {
                    let seen = headers::listed(listed, true, &self.mount.defaults, looked_at);
                    self.observe_own_marker(dir, seen)?;
                }
                _ => {}
            }
        }
        directories.dedup();
        Ok((objects, directories))
    }

    /// Processes a directory's own marker, found in its listing.
    fn observe_own_marker(&self, dir: Ino, mut seen: Observed) -> Result<()> {
        let inode = self.names.tables().inode(dir)?;
        if !has_other_bytes(&inode, &seen) {
            self.known.note_listing_of_shared(&inode, &seen);
            return Ok(());
        }
        // A listing without headers does not tell mode and owner, and those that were changed here are newer.
        if !seen.exact || self.names.awaits_export(dir) {
            seen = Observed { mode: inode.mode, uid: inode.uid, gid: inode.gid, ..seen };
        }
        is_too_late(self.names.commit(Origin::Other, &Op::Refresh { ino: dir, seen }))?;
        Ok(())
    }

    /// Moves a file whose plain name a directory needs to its escaped name. Returns whether there was such a file.
    fn make_room_for_directory(&self, dir: Ino, name: &Name) -> Result<bool> {
        let Some(Dentry { kind, .. }) = self.names.tables().entry(dir, name)? else { return Ok(false) };
        if kind == Kind::Directory {
            return Ok(false);
        }
        let escaped = Name::new(&names::colliding(name.as_bytes()))?;
        let how = RenameHow::Replace;
        let op = Op::Rename { from: (dir, name.clone()), to: (dir, escaped), how, keep: false };
        let has_moved = !is_too_late(self.names.commit(Origin::Other, &op))?;
        Ok(has_moved)
    }

    /// Reconciles names with the observations of a look, in bounded batches. Returns false if the look is no longer valid.
    async fn reconcile_entries(
        &self,
        place: PrefixedDirectory<'_>,
        observations: Observations,
        looked_at: Moment,
        look: Look,
    ) -> Result<bool> {
        let mut observations = observations.into_iter();
        loop {
            let batch: Vec<_> = observations.by_ref().take(BATCH).collect();
            let is_last = batch.len() < BATCH;
            let done = self.known.if_look_is_valid(place, looked_at, |changes| {
                self.reconcile_batch(place, batch, looked_at, look, changes)
            })?;
            let Some(missing) = done else { return Ok(false) };
            if !missing.is_empty() && !self.drop_directories(place, missing, looked_at).await? {
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
            self.known.changes().let_waiters_pass().await;
        }
    }

    /// Reconciles a batch of names in one commit. Returns the directories that the look did not find, each with the observation
    /// under its name.
    fn reconcile_batch(
        &self,
        place: PrefixedDirectory<'_>,
        observations: Vec<(Name, Option<Observed>)>,
        looked_at: Moment,
        look: Look,
        changes: FrozenChanges<'_>,
    ) -> Result<Vec<(Name, Option<Observed>)>> {
        let dir = place.0;
        // Do this before the import of the directory while changes are frozen: a change in between could take the free name.
        for (name, seen) in &observations {
            if seen.as_ref().is_some_and(|seen| seen.kind == Kind::Directory)
                && changes.is_valid_look_for_directory(dir, name, looked_at)
            {
                self.make_room_for_directory(dir, name)?;
            }
        }
        let mut ops = Vec::new();
        let mut missing = Vec::new();
        let mut refreshed = Vec::new();
        for (name, seen) in observations {
            let validity = changes.validity(dir, &name, looked_at);
            if validity == Validity::Nothing {
                continue;
            }
            let local = self.names.tables().lookup(dir, &name)?;
            let is_about_directory = seen.as_ref().is_some_and(|seen| seen.kind == Kind::Directory)
                || local.as_ref().is_some_and(Inode::is_dir);
            if validity == Validity::DirectoryOnly && !is_about_directory {
                continue;
            }
            if let (Some(local), Some(seen)) = (&local, &seen)
                && has_other_bytes(local, seen)
                && let Some(file) = self.content.files().get(local.ino)
            {
                file.mark_concurrently_modified();
            }
            match (local, seen) {
                (None, None) => {}
                (None, Some(seen)) => {
                    ops.push(Op::Import { parent: dir, name, ino: self.names.new_ino(dir)?, seen });
                }
                (Some(local), seen)
                    if local.is_dir()
                        && seen.as_ref().is_none_or(|seen| seen.kind != Kind::Directory)
                        && self.mount.layout.would_show(place, &name, &local) =>
                {
                    missing.push((name, seen));
                }
                (Some(local), None) => {
                    if self.is_gone(place, &name, &local, looked_at)? {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                    }
                }
                // An additional link of a file. The object at the link's own key is another one, or was left there when the key
                // was passed to another link.
                (Some(local), Some(seen)) if !self.mount.layout.would_show(place, &name, &local) => {
                    if self.mount.layout.can_show(place, &name, &local) {
                        // The object may be this file, stored by a request whose answer was lost. The export finds out.
                        self.exports.export_later(local.ino)?;
                    } else {
                        ops.push(Op::Vanish {
                            parent: dir,
                            name: name.clone(),
                            looked_at,
                            keep: self.content.is_open(local.ino),
                        });
                        ops.push(Op::Import { parent: dir, name, ino: self.names.new_ino(dir)?, seen });
                    }
                }
                // The file was being created when the last mount ended abnormally. The object is another file.
                (Some(local), Some(seen))
                    if !local.is_dir() && local.object().is_none() && seen.kind != Kind::Directory =>
                {
                    if !self.content.is_open(local.ino) {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                        ops.push(Op::Import { parent: dir, name, ino: self.names.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen)) if !local.is_dir() && seen.kind == Kind::Directory => {
                    if self.is_gone(place, &name, &local, looked_at)? {
                        self.push_vanish_ops(dir, &name, &local, looked_at, &mut ops)?;
                        ops.push(Op::Import { parent: dir, name, ino: self.names.new_ino(dir)?, seen });
                    }
                }
                (Some(local), Some(seen))
                    if has_other_bytes(&local, &seen) && self.content.has_write_in_doubt(local.ino) =>
                {
                    // The export finds out whether the object is this file's.
                    self.exports.export_later(local.ino)?;
                }
                (Some(local), Some(seen)) => {
                    if look == Look::Page && !has_other_bytes(&local, &seen) {
                        self.known.note_listing_of_shared(&local, &seen);
                    }
                    let is_confirmed = look == Look::Name
                        && local.exact
                        && local.observed_at < looked_at
                        && !has_other_bytes(&local, &seen);
                    // Confirm only that the object is unchanged; keep the attributes.
                    let confirmed = is_confirmed.then(|| Observed { exact: false, ..seen.clone() });
                    if let Some(seen) = self.new_information(&local, seen, looked_at) {
                        let is_by_headers = look == Look::Name && seen.exact;
                        if !is_by_headers
                            && has_other_bytes(&local, &seen)
                            && self.names.awaits_export(local.ino)
                        {
                            // The headers tell whether the object is a copy of this file's. The next lookup reads them.
                            self.content.files().mark_unconfirmed(local.ino);
                            continue;
                        }
                        ops.push(Op::Refresh { ino: local.ino, seen });
                        refreshed.push(local);
                    } else if let Some(seen) = confirmed {
                        ops.push(Op::Refresh { ino: local.ino, seen });
                    }
                }
            }
        }
        // A front end that was told before an open file has the new bytes would mix them with the old ones.
        let _telling_paused = self.names.follower().hold();
        self.known.commit_observations(&ops)?;
        for before in refreshed {
            match self.names.tables().inode(before.ino) {
                Ok(after) => self.propagate_refresh(&before, &after)?,
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(missing)
    }

    /// Removes directories that a look did not find, with everything below that has no reason to stay. An object found in place
    /// of a directory gets its name. Returns false if the look is no longer valid.
    async fn drop_directories(
        &self,
        place: PrefixedDirectory<'_>,
        missing: Vec<(Name, Option<Observed>)>,
        looked_at: Moment,
    ) -> Result<bool> {
        for (name, _) in &missing {
            if let Some(Dentry { ino, kind: Kind::Directory }) = self.names.tables().entry(place.0, name)?
                && self.is_gone(place, name, &self.names.tables().inode(ino)?, looked_at)?
            {
                let inside = place.1.child_dir(name.as_bytes())?;
                Box::pin(self.drop_below((ino, &inside), looked_at)).await?;
            }
        }
        let done = self.known.if_look_is_valid(place, looked_at, |changes| {
            let mut ops = Vec::new();
            for (name, seen) in &missing {
                let Some(local) = self.names.tables().lookup(place.0, name)?.filter(Inode::is_dir) else {
                    continue;
                };
                if !changes.is_valid_look_for_directory(place.0, name, looked_at)
                    || !self.is_gone(place, name, &local, looked_at)?
                {
                    continue;
                }
                ops.push(Op::Vanish { parent: place.0, name: name.clone(), looked_at, keep: false });
                if seen.is_some() {
                    ops.extend(self.names.op_to_unshadow(place.0, name)?);
                }
            }
            {
                let _telling_paused = self.names.follower().hold();
                self.known.commit_observations(&ops)?;
            }
            let mut objects = Vec::new();
            for (name, seen) in missing {
                let entry = self.names.tables().entry(place.0, &name)?;
                let staying = entry.filter(|entry| entry.kind == Kind::Directory);
                if let Some(directory) = staying
                    && self.has_newer_entries(directory.ino, looked_at, changes)?
                {
                    // It may be gone as well: the next lookup asks again.
                    self.known.directories().note_change(place.0);
                }
                let shown =
                    if staying.is_some() { Name::new(&names::colliding(name.as_bytes()))? } else { name };
                objects.extend(seen.map(|seen| (shown, Some(seen))));
            }
            self.reconcile_batch(place, objects, looked_at, Look::Name, changes).map(drop)
        });
        Ok(done?.is_some())
    }

    /// Returns whether this mount has changed entries of a directory after a look, which then does not show whether they are gone.
    fn has_newer_entries(&self, dir: Ino, looked_at: Moment, changes: FrozenChanges<'_>) -> Result<bool> {
        let entries = self.names.tables().entries(dir, None, BATCH)?;
        Ok(entries.iter().any(|(name, _)| !changes.is_valid_look(dir, name, looked_at)))
    }

    /// Removes the entries below a directory that a look showed to be gone, one commit for each batch of names.
    async fn drop_below(&self, place: PrefixedDirectory<'_>, looked_at: Moment) -> Result<()> {
        let mut after = None;
        loop {
            let batch = self.names.tables().entries(place.0, after.as_ref(), BATCH)?;
            let is_last = batch.len() < BATCH;
            after = batch.last().map(|(name, _)| name.clone());
            let observations = batch.into_iter().map(|(name, _)| (name, None)).collect();
            if !self.reconcile_entries(place, observations, looked_at, Look::Name).await? || is_last {
                return Ok(());
            }
            self.known.changes().let_waiters_pass().await;
        }
    }

    /// Returns the part of an observation that is new, or `None`. An observation without headers does not change known
    /// attributes.
    fn new_information(&self, local: &Inode, seen: Observed, looked_at: Moment) -> Option<Observed> {
        let same_bytes = !has_other_bytes(local, &seen);
        let seen = if same_bytes { headers::with_known_precision(stored_at(local), seen) } else { seen };
        let is_late = local.observed_at >= looked_at && !(seen.exact && same_bytes && !local.exact);
        if is_late || self.content.has_unpublished_writes(local.ino) {
            return None;
        }
        if let Some(sharing) = self.known.sharing()
            && same_bytes
            && !self.names.awaits_export(local.ino)
            && let Some(seen) =
                sharing.attributes(local, &seen, self.mount.moments.wall(looked_at), self.mount.now())
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
        if seen.exact || !same_bytes && self.known.reads_headers() {
            return Some(seen);
        }
        Some(Observed { mode: local.mode, uid: local.uid, gid: local.gid, ..seen })
    }

    /// If a refresh gave an inode other bytes, discards its pending metadata changes and pins its open file to the new bytes: reads
    /// through handles that have read the old bytes fail with ESTALE.
    fn propagate_refresh(&self, before: &Inode, after: &Inode) -> Result<()> {
        if etag(before) != etag(after) {
            self.metadata.forget_pending(after.ino)?;
            if let Some(file) = self.content.files().get(after.ino) {
                file.replace(|| self.names.pin_of(after.ino))?;
            }
        }
        Ok(())
    }

    /// Returns whether a known entry that a look did not find is gone. A directory stays nevertheless if it has entries: the op
    /// that removes it then fails.
    fn is_gone(
        &self,
        place: PrefixedDirectory<'_>,
        name: &Name,
        local: &Inode,
        looked_at: Moment,
    ) -> Result<bool> {
        let is_shown = self.mount.layout.would_show(place, name, local);
        if !is_shown || local.observed_at >= looked_at || self.content.has_unpublished_writes(local.ino) {
            return Ok(false);
        }
        if self.exports.rewrites().may_hide(local.ino, looked_at) {
            return Ok(false);
        }
        // A file that is neither stored nor open was being created when the last mount ended abnormally.
        Ok(local.is_dir() || local.object().is_some() || !self.content.is_open(local.ino))
    }

    /// Adds the ops that remove a file's name, together with its other links: all of them led to the same object.
    fn push_vanish_ops(
        &self,
        dir: Ino,
        name: &Name,
        local: &Inode,
        looked_at: Moment,
        ops: &mut Vec<Op>,
    ) -> Result<()> {
        let others = if local.nlink > 1 { self.names.tables().names(local.ino)? } else { Vec::new() };
        let all = others.into_iter().skip(1).chain([(dir, name.clone())]);
        let keep = self.content.is_open(local.ino);
        ops.extend(all.map(|(parent, name)| Op::Vanish { parent, name, looked_at, keep }));
        Ok(())
    }
}

impl KnownState {
    /// Runs `work` unless the directory was moved or replaced since the look; then returns `None`. No change of a name can
    /// begin meanwhile, so `work` must take a bounded number of steps.
    fn if_look_is_valid<T>(
        &self,
        (dir, prefix): PrefixedDirectory<'_>,
        looked_at: Moment,
        work: impl FnOnce(FrozenChanges<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.changes.while_frozen(|changes| {
            let home = self.names.tables().inode(dir)?.home;
            let is_settled = home
                .is_none_or(|(parent, name)| changes.is_valid_look_for_directory(parent, &name, looked_at));
            if !is_settled || self.mount.layout.directory(self.names.tables(), dir)? != *prefix {
                return Ok(None);
            }
            work(changes).map(Some)
        })
    }

    /// Commits observations together. Observations that came too late have no effect.
    fn commit_observations(&self, ops: &[Op]) -> Result<()> {
        if ops.is_empty() {
            return Ok(());
        }
        for (op, outcome) in ops.iter().zip(self.names.commit_all(Origin::Other, ops)?) {
            match (op, outcome) {
                (Op::Vanish { .. }, Ok(applied)) => {
                    if let Some(removed) = applied.removed {
                        self.directories.remove(removed.ino);
                    }
                }
                (_, Ok(_)) => {}
                (_, Err(error)) => {
                    tracing::debug!(%error, "an observation of the bucket was not applied to the metadata; the known state stays until the next one")
                }
            }
        }
        Ok(())
    }

    /// In a shared bucket: records that a listing shows the known bytes of a file, whose attributes another mount may have
    /// changed.
    fn note_listing_of_shared(&self, local: &Inode, seen: &Observed) {
        if let Some(sharing) = self.sharing.as_ref().filter(|_| local.exact) {
            sharing.listed(local, seen, self.mount.moments.wall(local.observed_at));
        }
    }

    /// Removes a name under which the bucket has another object. Returns false if the name was changed here meanwhile.
    pub(crate) fn remove_name(
        &self,
        dir: Ino,
        name: &Name,
        local: &Inode,
        looked_at: Moment,
    ) -> Result<bool> {
        let keep = self.content.files().get(local.ino).is_some();
        let op = Op::Vanish { parent: dir, name: name.clone(), looked_at, keep };
        // A front end that is told before the directory is forgotten could find it again.
        let _telling_paused = self.names.follower().hold();
        if is_too_late(self.names.commit(Origin::Other, &op))? {
            return Ok(false);
        }
        match local.kind {
            Kind::Directory => self.forget_removed_directory(local),
            _ => self.directories.remove(local.ino),
        }
        Ok(true)
    }
}

/// Returns whether a page of a listing would contain a directory of this name: its sort key is after `after` and not after
/// `end`.
fn covers(after: &[u8], end: Option<&[u8]>, name: &Name) -> bool {
    sort_keys::sort_key(name, Kind::Directory)
        .is_some_and(|text| after < text.as_slice() && end.is_none_or(|end| text.as_slice() <= end))
}

/// Returns whether the op of an observation was refused because the names have changed since, so that it has no effect.
/// Fails for any other error.
fn is_too_late<T>(outcome: Result<T, FsError>) -> Result<bool> {
    match outcome {
        Ok(_) => Ok(false),
        Err(
            FsError::NotFound | FsError::Exists | FsError::NotEmpty | FsError::IsDirectory | FsError::Late,
        ) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether an observation shows other bytes than the known ones.
fn has_other_bytes(local: &Inode, seen: &Observed) -> bool {
    etag(local) != seen.object.as_ref().map(|object| &object.etag)
}

/// Returns when an inode's object was stored, if known.
fn stored_at(inode: &Inode) -> Option<Timestamp> {
    inode.object().and_then(|object| object.last_modified)
}
