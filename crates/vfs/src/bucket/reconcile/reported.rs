//! What somebody else says that files are, such as an event handler: known without a look at the bucket.
//!
//! Directories on the way to a file are made as ones that were never listed, and the file as one that was seen when it was
//! stored: who opens it, or comes to it by its path, looks. Of what is known here already only what is clearly older gives way; where
//! the times do not tell, the bucket does.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use meta::{Dentry, Ino, Inode, Kind, Moment, Name, Observed, Op};
use std::collections::HashMap;
use std::time::Duration;
use store::{Attributes, ObjectKey, ObjectMeta, ObjectRef, Timestamp, names};

use super::{Counts, Look, etag, stored_at};
use crate::bucket::headers;
use crate::derived::DerivedFile;
use crate::layout::is_reserved;
use crate::{Error, Filesystem, Result};

/// Who says what files are may lag behind the bucket by so long: what was changed here since is looked at.
const LAG: Duration = Duration::from_secs(10);

/// Files that are looked at in the bucket at the same time.
const LOOKS_AT_ONCE: usize = 32;

/// What becomes of a file that somebody spoke of.
#[derive(Debug)]
enum Told {
    /// It is this one.
    Is(Box<Inode>),
    /// It was made known under this name, by this number unless somebody else was faster.
    Made(Ino, Name, Ino),
    /// It is what is known under this name now.
    New(Ino, Name),
    /// Only the bucket can say what is under this name of a directory.
    LookAt(Ino, Name),
    /// No name leads to it.
    Nothing,
}

/// What was said, and when it was asked for.
struct Saying<'s> {
    asked_at: Moment,
    /// The wall-clock time of `asked_at`.
    time: Timestamp,
    counts: Counts<'s>,
    /// Directories by what the keys of their entries begin with.
    directories: HashMap<Vec<Vec<u8>>, Ino>,
    ops: Vec<Op>,
}

impl Filesystem {
    /// The files that were spoken of, in their order; `None` for what is not there. Costs no request but where the bucket alone
    /// can say which of two states is the newer one.
    pub(crate) async fn told(&self, files: &[&DerivedFile], asked_at: Moment) -> Result<Vec<Option<Inode>>> {
        self.evict_if_needed(files.len())?;
        let (mut found, mut looks) = (Vec::with_capacity(files.len()), Vec::new());
        let told = self.believe(files, asked_at)?;
        let made =
            told.iter().filter_map(|told| if let Told::Made(_, _, ino) = told { Some(*ino) } else { None });
        let mut made = self.names.inodes(&made.collect::<Vec<_>>())?.into_iter();
        for (file, told) in files.iter().zip(told) {
            found.push(match told {
                Told::Is(inode) => Some(*inode),
                Told::Made(dir, name, _) => match made.next().flatten() {
                    Some(inode) => Some(inode),
                    None => self.names.lookup(dir, &name)?,
                },
                Told::New(dir, name) => self.names.lookup(dir, &name)?,
                Told::LookAt(dir, name) => {
                    looks.push((found.len(), dir, name, file.key.clone()));
                    None
                }
                Told::Nothing => None,
            });
        }
        let looks = looks.into_iter().map(|(number, dir, name, key)| async move {
            Ok::<_, Error>((number, self.look_on_the_way(dir, name, &key).await?))
        });
        let mut looks = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
        while let Some((number, inode)) = looks.try_next().await? {
            found[number] = inode;
        }
        drop(looks);
        Ok(found)
    }

    fn believe(&self, files: &[&DerivedFile], asked_at: Moment) -> Result<Vec<Told>> {
        self.changes.frozen(|counts| {
            let time = self.moments.wall(asked_at).unwrap_or_else(|| self.now());
            let mut saying = Saying { asked_at, time, counts, directories: HashMap::new(), ops: Vec::new() };
            let told = files.iter().map(|file| self.believe_one(file, &mut saying));
            let told: Vec<Told> = told.collect::<Result<_>>()?;
            for outcome in self.names.commit_all(&self.ctx(), &saying.ops)? {
                if let Err(error) = outcome {
                    tracing::debug!(%error, "somebody else made it known");
                }
            }
            Ok(told)
        })
    }

    fn believe_one(&self, file: &DerivedFile, saying: &mut Saying<'_>) -> Result<Told> {
        let Some((path, name)) = self.path_of_file(&file.key)? else { return Ok(Told::Nothing) };
        let age = saying.time.since(file.modified);
        let said_at = saying.asked_at.before(age.min(LAG));
        let dir = match self.directory_on_the_way(&path, said_at, saying)? {
            Ok(dir) => dir,
            Err((dir, name)) => return Ok(Told::LookAt(dir, name)),
        };
        let (name, local) = match self.names.entry(dir, &name)? {
            None => (name, None),
            Some(Dentry { kind: Kind::Directory, .. }) => {
                let name = self.shown_name(dir, &name)?;
                let local = self.names.lookup(dir, &name)?;
                (name, local)
            }
            Some(Dentry { ino, .. }) => (name, self.names.inodes(&[ino])?.pop().flatten()),
        };
        let Some(local) = local else {
            if !(saying.counts)(dir, &name, said_at) {
                return Ok(Told::LookAt(dir, name));
            }
            let seen = self.said(file, saying.asked_at.before(age));
            let ino = self.new_ino(dir)?;
            saying.ops.push(Op::Import { parent: dir, name: name.clone(), ino, seen });
            return Ok(Told::Made(dir, name, ino));
        };
        self.believe_newer(file, (dir, name), local, saying)
    }

    /// Something is known under the name already.
    fn believe_newer(
        &self,
        file: &DerivedFile,
        (dir, name): (Ino, Name),
        local: Inode,
        saying: &Saying<'_>,
    ) -> Result<Told> {
        if self.has_unpublished_writes(local.ino)
            || self.files.get(local.ino).is_some_and(|file| file.has_tried_any())
        {
            return Ok(Told::Is(Box::new(local)));
        }
        let is_same = etag(&local) == Some(&file.etag);
        let says_more = self.reads_headers && !local.exact && file.properties.is_some();
        if is_same && !says_more {
            return Ok(Told::Is(Box::new(local)));
        }
        // An event says milliseconds and headers say seconds, so times within one second have no order. An earlier time proves
        // nothing: S3 dates an object that was uploaded in parts when the upload began, and its event when it ended.
        let is_later = stored_at(&local).is_some_and(|known| known.secs() < file.modified.secs());
        if local.object().is_none() || !(is_same || is_later) {
            return Ok(Told::LookAt(dir, name));
        }
        let prefix = self.layout.directory(&self.names, dir)?;
        let seen = self.said(file, saying.asked_at);
        let sightings = vec![(name.clone(), Some(seen))];
        self.agree_on((dir, &prefix), sightings, saying.asked_at, Look::Name, saying.counts)?;
        Ok(Told::New(dir, name))
    }

    /// What was said of a file, as if it had been seen at a time.
    fn said(&self, file: &DerivedFile, seen_at: Moment) -> Observed {
        let object = ObjectRef {
            last_modified: Some(file.modified),
            ..ObjectRef::new(file.key.clone(), file.etag.clone())
        };
        match &file.properties {
            None => headers::listed(&object, file.size_bytes, false, &self.defaults, seen_at),
            Some(user) => {
                let attributes = Attributes { user: user.clone(), ..Attributes::default() };
                let meta = ObjectMeta { object, size_bytes: file.size_bytes, attributes, tag_count: None };
                headers::observed(&meta, false, &self.defaults, seen_at)
            }
        }
    }

    /// The names of the directories on the way to a file, and its own.
    fn path_of_file(&self, key: &ObjectKey) -> Result<Option<(Vec<Vec<u8>>, Name)>> {
        let inside = key.as_bytes().strip_prefix(self.config.prefix.as_slice());
        let inside =
            inside.filter(|_| self.layout.follows_paths()).and_then(|key| ObjectKey::try_from(key).ok());
        let Some(inside) = inside else { return Ok(None) };
        let mut path = names::key_to_path(&inside);
        let is_own = path.first().is_some_and(|first| is_reserved(Ino::ROOT, first));
        match path.pop().filter(|last| !last.is_empty() && !is_own) {
            Some(last) => Ok(Some((path, Name::new(&last)?))),
            None => Ok(None),
        }
    }

    /// The directory of a path, made known where it was not; or the name at which the bucket must be asked.
    fn directory_on_the_way(
        &self,
        path: &[Vec<u8>],
        said_at: Moment,
        saying: &mut Saying<'_>,
    ) -> Result<std::result::Result<Ino, (Ino, Name)>> {
        if let Some(dir) = saying.directories.get(path) {
            return Ok(Ok(*dir));
        }
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(name)?;
            dir = match self.names.entry(dir, &name)? {
                Some(Dentry { ino, kind: Kind::Directory }) => ino,
                None if (saying.counts)(dir, &name, said_at) => self.know_directory(dir, name, said_at)?,
                _ => return Ok(Err((dir, name))),
            };
        }
        saying.directories.insert(path.to_vec(), dir);
        Ok(Ok(dir))
    }

    /// Makes a directory known that nobody listed.
    fn know_directory(&self, parent: Ino, name: Name, seen_at: Moment) -> Result<Ino> {
        let ino = self.new_ino(parent)?;
        let seen = headers::implicit_directory(self.now(), seen_at, &self.defaults, false);
        self.names.commit(&self.ctx(), &Op::Import { parent, name, ino, seen })?;
        Ok(ino)
    }

    /// Asks the bucket for a name, and if it is that of a directory on the way for the file's own.
    async fn look_on_the_way(&self, dir: Ino, name: Name, key: &ObjectKey) -> Result<Option<Inode>> {
        self.probe(dir, &name).await?;
        let Some(known) = self.known_way(key)? else { return Ok(None) };
        match known.next {
            Some(name) if known.is_last => {
                if known.dir != dir {
                    self.probe(known.dir, &name).await?;
                }
                Ok(self.names.lookup(known.dir, &self.shown_name(known.dir, &name)?)?)
            }
            _ => Ok(None),
        }
    }

    /// The directory of a path for a file that is made there; what is not there is made, as what its contents' keys name.
    pub(crate) async fn directory_for(&self, path: &[Vec<u8>]) -> Result<Ino> {
        let mut dir = Ino::ROOT;
        for name in path {
            let name = Name::new(name)?;
            dir = match self.find(dir, &name).await? {
                Some(inode) if inode.is_dir() => inode.ino,
                Some(_) => return Err(crate::Error::NOT_DIRECTORY),
                None => {
                    let _changing = self.changes.begin(dir, &name);
                    self.must_be_plain(dir, &name, Kind::Directory)?;
                    let made = self.know_directory(dir, name, self.moment())?;
                    self.directories.get(made).is_ours(self.moment());
                    made
                }
            };
        }
        Ok(dir)
    }
}
