//! Reads the state directory's files, except for the objects, and cuts an incomplete end of the last log off.

use super::frames::{FileName, FrameReader};
use super::listing_state::{Coverage, read_coverage};
use super::objects::{LogRecord, RecordKind};
use crate::Rule;
use hashbrown::HashMap;
use log::{BadPlace, Found, NextFrame, Verdict};
use std::io;
use std::path::Path;
use store::Timestamp;

/// Content of the files, except the objects.
#[derive(Debug, Default)]
pub(super) struct SavedState {
    /// The newest snapshot, if there is one, and the logs from its number on, in the order in which they are read.
    pub(super) files: Vec<FileName>,
    /// The epoch of the last file; `None` if there are no files.
    pub(super) epoch: Option<u64>,
    /// Number of the last incarnation; 0 before the first.
    pub(super) incarnation: u32,
    /// The machine's boot id during the last incarnation.
    pub(super) boot: Vec<u8>,
    /// Views with the incarnation in which each was opened, indexed by number; `None` for a forgotten view.
    pub(super) views: Vec<Option<(u32, Vec<Rule>)>>,
    /// Names of the containers, indexed by number; `None` for a forgotten container.
    pub(super) containers: Vec<Option<String>>,
    /// By container: what was listed, and whether it has to be listed again.
    pub(super) listed: HashMap<u32, (Coverage, bool)>,
    /// By container: the last moment for which clients were told the content of views with rules on ages.
    pub(super) times: HashMap<u32, Timestamp>,
    /// Whether the last log ended in an incomplete frame, which was cut off.
    pub(super) is_torn_at_end: bool,
}

/// Reads everything except the objects. The inner error says which file is damaged and how.
pub(super) fn read_saved_state(dir: &Path) -> io::Result<Result<SavedState, String>> {
    let names = FileName::all(dir)?;
    let snapshot = names.iter().rev().find(|name| matches!(name, FileName::Snapshot(_))).copied();
    let first = snapshot.map_or(0, FileName::number);
    let logs = names.into_iter().filter(|name| matches!(name, FileName::Log(number) if *number >= first));
    let files: Vec<FileName> = snapshot.into_iter().chain(logs).collect();
    let mut saved = SavedState { files: files.clone(), ..SavedState::default() };
    for name in &files {
        let is_last = Some(name) == files.last();
        if let Err(broken) = saved.read(dir, *name, is_last)? {
            return Ok(Err(broken));
        }
    }
    Ok(Ok(saved))
}

/// Reads everything except the objects, for the fuzz target.
#[cfg(feature = "fuzz")]
pub(super) fn fuzz_saved_state(dir: &Path) -> io::Result<()> {
    read_saved_state(dir).map(drop)
}

impl SavedState {
    /// Applies the records of a file. The inner error says how the file is damaged; only the last one may have an
    /// incomplete end.
    fn read(&mut self, dir: &Path, name: FileName, is_last: bool) -> io::Result<Result<(), String>> {
        let path = name.path(dir);
        let broken = |what: &str| Ok(Err(format!("{} {what}", path.display())));
        let Some(FrameReader { mut frames, epoch }) = FrameReader::open(&path)? else {
            // A last log without a complete header holds no records.
            return if is_last && matches!(name, FileName::Log(_)) {
                Ok(Ok(()))
            } else {
                broken("has an unknown format")
            };
        };
        self.epoch = Some(epoch);
        let mut is_whole = matches!(name, FileName::Log(_));
        let is_torn = loop {
            match frames.next()? {
                NextFrame::End => break false,
                NextFrame::Bad => break true,
                NextFrame::Frame(frame) => {
                    let Some(records) = LogRecord::read_all(frame) else {
                        return broken("has a malformed record");
                    };
                    for record in records {
                        is_whole |= record.kind == RecordKind::End;
                        if self.apply(&record).is_none() {
                            return broken("has a record that cannot be decoded");
                        }
                    }
                }
            }
        };
        if !is_whole || (is_torn && !is_last) {
            return broken("is damaged");
        }
        if is_torn {
            let found = frames.search(|frame| LogRecord::read_all(frame).is_some())?;
            // The log is never synced, so that a power cut may take any part of it.
            let place = BadPlace { is_synced: Some(false), is_followed: found != Found::Nothing };
            let Verdict::Torn { must_be_kept } = place.verdict() else { return broken("is damaged") };
            self.is_torn_at_end = true;
            log::cut_torn_tail(&path, frames.position(), must_be_kept)?;
        }
        Ok(Ok(()))
    }

    /// Applies a record; ignores those about objects. Returns `None` if the record cannot be decoded.
    fn apply(&mut self, record: &LogRecord<'_>) -> Option<()> {
        match record.kind {
            RecordKind::View if record.number as usize == self.views.len() => {
                let rules = crate::read(std::str::from_utf8(record.body).ok()?).ok()?.pop()?.rules;
                self.views.push(Some((record.version as u32, rules)));
            }
            RecordKind::Container if record.number as usize == self.containers.len() => {
                self.containers.push(Some(String::from_utf8(record.body.to_vec()).ok()?));
            }
            // A log may repeat records that the snapshot has.
            RecordKind::View if record.number as usize > self.views.len() => return None,
            RecordKind::Container if record.number as usize > self.containers.len() => return None,
            RecordKind::View | RecordKind::Container => {}
            RecordKind::ViewForgotten => *entry_mut(&mut self.views, record.number)? = None,
            RecordKind::ContainerForgotten => *entry_mut(&mut self.containers, record.number)? = None,
            RecordKind::Listed => {
                drop(self.listed.insert(record.number, (read_coverage(record.body)?, false)))
            }
            RecordKind::Stale => self.listed.entry(record.number).or_default().1 = true,
            RecordKind::Incarnation => {
                self.incarnation = record.number;
                self.boot = record.body.to_vec();
            }
            RecordKind::Time => drop(self.times.insert(record.number, Timestamp(record.version as i64))),
            RecordKind::Object
            | RecordKind::VerifyPending
            | RecordKind::Verified
            | RecordKind::Shard
            | RecordKind::End => {}
        }
        Some(())
    }
}

/// Returns the entry of a number, which is added if it is the next one; `None` if the number is greater than that.
fn entry_mut<T>(all: &mut Vec<Option<T>>, number: u32) -> Option<&mut Option<T>> {
    if number as usize == all.len() {
        all.push(None);
    }
    all.get_mut(number as usize)
}
