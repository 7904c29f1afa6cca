//! Imports files that an event handler reports, without asking the bucket.
//!
//! Missing directories on the path are created as directories that were never listed. The file is created as if it had been
//! seen when it was stored, so that an open or a lookup by path revalidates it. A report replaces a known file only if that is
//! clearly older. If the times do not tell, the bucket is asked.

use meta::{Dentry, Ino, Inode, Kind, Moment, Name, Observed, Op, Origin};
use std::collections::HashMap;
use std::time::Duration;
use store::{Attributes, ListedObject, ObjectKey, ObjectMeta, ObjectRef, Timestamp, names};

use super::{Look, etag, stored_at};
use crate::Result;
use crate::bucket::changes::FrozenChanges;
use crate::bucket::headers;
use crate::bucket::reconcile::Reconciler;
use crate::derived::DerivedFile;

/// Maximum lag of reports behind the bucket. Names that were changed here within this time are looked up.
const LAG: Duration = Duration::from_secs(10);

/// The result for one reported file.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// The file is known already.
    Known(Box<Inode>),
    /// The file is imported in this directory under this name, with this inode number unless the name was imported
    /// concurrently.
    Imported(Ino, Name, Ino),
    /// The file known in this directory under this name was updated.
    Updated(Ino, Name),
    /// The bucket must be asked for this name of a directory.
    AskBucket(Ino, Name),
    /// The key is no file's path in this volume.
    NoName,
}

/// Reports that are processed together, and when they were requested.
struct ReportBatch<'s> {
    /// When the reports were requested.
    asked_at: Moment,
    /// The wall-clock time of `asked_at`.
    time: Timestamp,
    changes: FrozenChanges<'s>,
    /// Directories found so far, by path.
    directories: HashMap<Vec<Vec<u8>>, Ino>,
    /// Ops that import files, to be committed together.
    ops: Vec<Op>,
}

impl Reconciler {
    /// Imports or updates reported files in one commit, and returns what became of each, in the order of the reports.
    pub(crate) fn apply_reports(&self, files: &[&DerivedFile], asked_at: Moment) -> Result<Vec<Resolution>> {
        self.known.changes().while_frozen(|changes| {
            let time = self.mount.moments.wall(asked_at).unwrap_or_else(|| self.mount.now());
            let mut batch =
                ReportBatch { asked_at, time, changes, directories: HashMap::new(), ops: Vec::new() };
            let resolutions = files.iter().map(|file| self.apply_report(file, &mut batch));
            let resolutions: Vec<Resolution> = resolutions.collect::<Result<_>>()?;
            for outcome in self.names.commit_all(Origin::Other, &batch.ops)? {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "a reported file could not be imported; the file known under its name, if any, is shown");
                }
            }
            Ok(resolutions)
        })
    }

    /// Decides what becomes of one reported file, and adds the op that imports it to the batch.
    fn apply_report(&self, file: &DerivedFile, batch: &mut ReportBatch<'_>) -> Result<Resolution> {
        let Some((path, name)) = self.path_of_file(&file.key)? else { return Ok(Resolution::NoName) };
        let age = batch.time.since(file.modified);
        let reported_at = batch.asked_at.before(age.min(LAG));
        let dir = match self.resolve_parent(&path, reported_at, batch)? {
            Ok(dir) => dir,
            Err((dir, name)) => return Ok(Resolution::AskBucket(dir, name)),
        };
        let (name, local) = match self.names.tables().entry(dir, &name)? {
            None => (name, None),
            Some(Dentry { kind: Kind::Directory, .. }) => {
                let name = self.names.visible_name(dir, &name)?;
                let local = self.names.tables().lookup(dir, &name)?;
                (name, local)
            }
            Some(Dentry { ino, .. }) => (name, self.names.tables().inodes(&[ino])?.pop().flatten()),
        };
        let Some(local) = local else {
            if !batch.changes.is_valid_look(dir, &name, reported_at) {
                return Ok(Resolution::AskBucket(dir, name));
            }
            let seen = self.observed_from(file, batch.asked_at.before(age));
            let ino = self.names.new_ino(dir)?;
            batch.ops.push(Op::Import { parent: dir, name: name.clone(), ino, seen });
            return Ok(Resolution::Imported(dir, name, ino));
        };
        self.apply_if_newer(file, (dir, name), local, batch)
    }

    /// Compares a report with the file that is known under its name, and updates the file if the report is clearly
    /// newer.
    fn apply_if_newer(
        &self,
        file: &DerivedFile,
        (dir, name): (Ino, Name),
        local: Inode,
        batch: &ReportBatch<'_>,
    ) -> Result<Resolution> {
        if self.content.has_unpublished_writes(local.ino)
            || self.content.files().get(local.ino).is_some_and(|file| file.has_unconfirmed_upload())
        {
            return Ok(Resolution::Known(Box::new(local)));
        }
        let is_same = etag(&local) == Some(&file.etag);
        let says_more = self.known.reads_headers() && !local.exact && file.properties.is_some();
        if is_same && !says_more {
            return Ok(Resolution::Known(Box::new(local)));
        }
        // Events have a resolution of milliseconds and headers of seconds, so times within one second have no order. An earlier
        // time proves nothing either: S3 dates an object that was uploaded in parts by the begin of the upload, and its event
        // by the end.
        let is_later = stored_at(&local).is_some_and(|known| known.secs() < file.modified.secs());
        // The object may be a copy that an export made.
        let may_be_copy = !is_same && self.names.awaits_export(local.ino);
        if local.object().is_none() || may_be_copy || !(is_same || is_later) {
            return Ok(Resolution::AskBucket(dir, name));
        }
        let prefix = self.mount.layout.directory(self.names.tables(), dir)?;
        let seen = self.observed_from(file, batch.asked_at);
        let observations = vec![(name.clone(), Some(seen))];
        self.reconcile_batch((dir, &prefix), observations, batch.asked_at, Look::Name, batch.changes)?;
        Ok(Resolution::Updated(dir, name))
    }

    /// Returns a report as an observation made at `seen_at`.
    fn observed_from(&self, file: &DerivedFile, seen_at: Moment) -> Observed {
        let object = ObjectRef {
            last_modified: Some(file.modified),
            ..ObjectRef::new(file.key.clone(), file.etag.clone())
        };
        match &file.properties {
            None => {
                let listed = ListedObject::new(object, file.size_bytes);
                headers::listed(&listed, false, &self.mount.defaults, seen_at)
            }
            Some(user) => {
                let attributes = Attributes { user: user.clone(), ..Attributes::default() };
                let meta = ObjectMeta { object, size_bytes: file.size_bytes, attributes, tag_count: None };
                headers::observed(&meta, false, &self.mount.defaults, seen_at)
            }
        }
    }

    /// Returns the directory names on the path of a key, and the file's name. Returns `None` if the key is no file's
    /// path: it is outside the volume, a directory's marker or Tenon's own, or keys are no paths.
    fn path_of_file(&self, key: &ObjectKey) -> Result<Option<(Vec<Vec<u8>>, Name)>> {
        let Some(inside) = self.mount.layout.path_in_volume(key) else { return Ok(None) };
        let mut path = names::key_to_path(&inside);
        let is_own = self.mount.layout.has_own_path(key, &path);
        match path.pop().filter(|last| !last.is_empty() && !is_own) {
            Some(last) => Ok(Some((path, Name::new(&last)?))),
            None => Ok(None),
        }
    }

    /// Returns the directory of a path, and imports missing ones. If the bucket must be asked for one of them, returns that
    /// name.
    fn resolve_parent(
        &self,
        path: &[Vec<u8>],
        reported_at: Moment,
        batch: &mut ReportBatch<'_>,
    ) -> Result<std::result::Result<Ino, (Ino, Name)>> {
        if let Some(dir) = batch.directories.get(path) {
            return Ok(Ok(*dir));
        }
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(name)?;
            dir = match self.names.tables().entry(dir, &name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => ino,
                None if batch.changes.is_valid_look_for_directory(dir, &name, reported_at) => {
                    self.import_implicit_directory(dir, name, reported_at)?
                }
                _ => return Ok(Err((dir, name))),
            };
        }
        batch.directories.insert(path.to_vec(), dir);
        Ok(Ok(dir))
    }

    /// Imports a directory that was never listed.
    pub(crate) fn import_implicit_directory(&self, parent: Ino, name: Name, seen_at: Moment) -> Result<Ino> {
        let ino = self.names.new_ino(parent)?;
        let seen = headers::implicit_directory(self.mount.now(), seen_at, &self.mount.defaults, false);
        self.names.commit(Origin::Other, &Op::Import { parent, name, ino, seen })?;
        Ok(ino)
    }
}
