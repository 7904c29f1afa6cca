//! What a mount that died left behind.

use meta::{Ino, Name, Op, RenameHow};
use store::mover::Renamed;
use store::{ListEntry, ListRequest, ObjectKey, Pages};

use crate::learn::PAGE_ENTRIES;
use crate::{Filesystem, Result};

/// Orphans looked at in one step.
const BATCH: usize = 256;

impl Filesystem {
    /// Removes files that had lost their names but were still open when the last mount of this metadata ended, and
    /// assembles those that were being written. Uploads under way stay. How many were removed.
    pub async fn recover(&self) -> Result<usize> {
        if let Some(mover) = &self.mover {
            self.rename_again(&mover.pending())?;
            mover.resume();
        }
        if self.layout.follows_paths() {
            self.assemble_interrupted().await?;
        }
        let (mut after, mut found) = (None, 0);
        loop {
            let orphans = self.names.orphans(after, BATCH)?;
            let Some(last) = orphans.last() else { return Ok(found) };
            after = Some(*last);
            for ino in orphans {
                if self.files.get(ino).is_none() && !self.is_upload(ino)? {
                    self.purge(&self.names.inode(ino)?).await?;
                    found += 1;
                }
            }
        }
    }

    /// What the journal of moves says was renamed has its new name, also where the loss of power took that from the names: the
    /// bucket shows it there, and knows neither further names nor extended attributes.
    fn rename_again(&self, renamed: &[Renamed]) -> Result<()> {
        for Renamed { from, to, etag } in renamed {
            let (Some(from), Some(to)) = (self.place_of(from)?, self.place_of(to)?) else { continue };
            let Some(inode) = self.names.lookup(from.0, &from.1)? else { continue };
            let is_it = match etag {
                Some(etag) => inode.object().is_some_and(|object| object.etag == *etag),
                // One that was made since has nothing in it yet.
                None => inode.object().is_some() || !self.names.entries(inode.ino, None, 1)?.is_empty(),
            };
            if is_it && self.names.entry(to.0, &to.1)?.is_none() {
                let op = Op::Rename { from, to, how: RenameHow::NoReplace, keep: false };
                self.names.commit(&self.ctx(), &op)?;
            }
        }
        Ok(())
    }

    /// The name of a key, or of what keys begin with, if the way there is known.
    fn place_of(&self, text: &[u8]) -> Result<Option<(Ino, Name)>> {
        let Ok(key) = ObjectKey::new(text.strip_suffix(b"/").unwrap_or(text).to_vec()) else { return Ok(None) };
        let known = self.known_way(&key)?.filter(|known| known.is_last);
        Ok(known.and_then(|known| Some((known.dir, known.next?))))
    }

    /// What lies beside the paths says which files, those among them that stay there included.
    async fn assemble_interrupted(&self) -> Result<()> {
        let request =
            ListRequest { prefix: self.layout.content(), limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::of(self.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                let ListEntry::Object { object, .. } = entry else { continue };
                let Some(ino) = self.layout.owner(&object.key) else { continue };
                if self.names.inode(ino).is_ok_and(|inode| !inode.is_orphan()) {
                    let file = self.open_file(ino)?;
                    let shown = self.show(&file, &mut *file.work.lock().await).await;
                    shown.and(self.close_file(&file).await)?;
                }
            }
        }
        Ok(())
    }
}
