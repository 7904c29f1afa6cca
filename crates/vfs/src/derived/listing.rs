//! Listings of derived directories.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Moment, Name};
use std::collections::BTreeMap;

use super::nodes::{DentryKey, DerivedDirectories};
use super::{DerivedEntry, DerivedFile};
use crate::Result;
use crate::derived::router::ViewRouter;
use crate::ops::DirectoryEntry;

/// An entry of a derived directory: its name, and its inode, which is `None` for a directory.
type Entry = (Name, Option<Inode>);

impl ViewRouter {
    /// Lists up to `limit` entries after a name, and created files among them, without cookies. Also returns the last name that
    /// was passed, `None` at the end.
    pub(crate) async fn list_derived(
        &self,
        views: &DerivedDirectories,
        dir: Ino,
        after: Option<&Name>,
        limit: usize,
        plus: bool,
    ) -> Result<(Vec<DirectoryEntry>, Option<Name>)> {
        let path = views.path(dir)?;
        let asked_at = self.mount.moment();
        let reported = views.tree.list(&path, after, limit).await?;
        let end = reported.last().map(|(name, _)| name.clone());
        let created = self.created_files(views, dir, after, end.as_ref())?;
        let last = end.or_else(|| created.keys().next_back().cloned());
        let mut entries = self.listed_entries(reported, created, asked_at).await?;
        if plus && self.known.reads_headers() {
            entries = self.exact_entries(entries).await?;
        }
        let inos: Vec<Ino> = entries.iter().filter_map(|(_, inode)| Some(inode.as_ref()?.ino)).collect();
        let mut referred =
            if plus { self.name_evictor.refer_all(&inos)? } else { vec![false; inos.len()] }.into_iter();
        let listed = entries.into_iter().map(|(name, inode)| match inode {
            None => self.listed_directory(views, (dir, name), plus),
            Some(inode) => self.listed_file(views, (dir, name), inode, referred.next() == Some(true)),
        });
        Ok((listed.collect(), last))
    }

    /// Returns the files that were created in a directory and that the view does not know yet, with names after one and
    /// up to another.
    fn created_files(
        &self,
        views: &DerivedDirectories,
        dir: Ino,
        after: Option<&Name>,
        to: Option<&Name>,
    ) -> Result<BTreeMap<Name, Inode>> {
        let mut created = BTreeMap::new();
        for name in views.created.names(dir, after, to) {
            if let Some(inode) = self.created_file(views, &(dir, name.clone()))? {
                created.insert(name, inode);
            }
        }
        Ok(created)
    }

    /// Returns the reported entries and the files in `created` that are not reported, in the order of names. Leaves out reported files that
    /// do not exist.
    async fn listed_entries(
        &self,
        reported: Vec<(Name, DerivedEntry)>,
        mut created: BTreeMap<Name, Inode>,
        asked_at: Moment,
    ) -> Result<Vec<Entry>> {
        let files = reported.iter().filter_map(|(_, entry)| match entry {
            DerivedEntry::File(file) => Some(file),
            DerivedEntry::Directory => None,
        });
        let files: Vec<&DerivedFile> = files.collect();
        let mut inodes = self.discovery.resolve_reported(&files, asked_at).await?.into_iter();
        let mut entries = Vec::with_capacity(reported.len() + created.len());
        for (name, entry) in &reported {
            created.remove(name);
            match entry {
                DerivedEntry::Directory => entries.push((name.clone(), None)),
                DerivedEntry::File(_) => {
                    if let Some(inode) = inodes.next().flatten() {
                        entries.push((name.clone(), Some(inode)));
                    }
                }
            }
        }
        if !created.is_empty() {
            entries.extend(created.into_iter().map(|(name, inode)| (name, Some(inode))));
            entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        Ok(entries)
    }

    /// Returns the entries with authoritative attributes, read concurrently. Leaves out files that are gone.
    async fn exact_entries(&self, entries: Vec<Entry>) -> Result<Vec<Entry>> {
        let (names, inodes): (Vec<Name>, Vec<Option<Inode>>) = entries.into_iter().unzip();
        let is_directory: Vec<bool> = inodes.iter().map(Option::is_none).collect();
        let exact = self.discovery.exact_all(inodes).await?;
        let entries = names.into_iter().zip(exact).zip(is_directory);
        let is_there =
            |((_, inode), is_directory): &((Name, Option<Inode>), bool)| *is_directory || inode.is_some();
        Ok(entries.filter(is_there).map(|(entry, _)| entry).collect())
    }

    /// Returns the listing entry of a derived directory; with `plus` the kernel gets a reference to it.
    fn listed_directory(&self, views: &DerivedDirectories, place: DentryKey, plus: bool) -> DirectoryEntry {
        let name = Bytes::copy_from_slice(place.1.as_bytes());
        let ino = if plus { views.refer(place) } else { views.number(&place) };
        let attr = plus.then(|| views.attr(ino, &self.mount.defaults));
        DirectoryEntry { name, ino, kind: Some(Kind::Directory), cookie: 0, attr, is_awaited: false }
    }

    /// Returns the listing entry of a file; with its attributes if the kernel has got a reference to it.
    fn listed_file(
        &self,
        views: &DerivedDirectories,
        place: DentryKey,
        inode: Inode,
        is_referred: bool,
    ) -> DirectoryEntry {
        let name = Bytes::copy_from_slice(place.1.as_bytes());
        let is_sure = !self.known.reads_headers() || inode.exact;
        let (ino, kind) = (inode.ino, is_sure.then_some(inode.kind));
        let is_awaited = views.created.get(&place).is_some();
        let attr = is_referred.then(|| {
            views.record_shown(ino, place);
            self.content.attr(inode)
        });
        DirectoryEntry { name, ino, kind, cookie: 0, attr, is_awaited }
    }
}
