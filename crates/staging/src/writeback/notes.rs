//! Notes: records that another component keeps in this log, in order with the changes, such as names with the data
//! that they name.
//!
//! A note holds its segment, with everything else in it. When the log has grown by a segment, and when it is full,
//! the owner of the notes is therefore asked to make them unnecessary.

use super::Writeback;
use super::extent::Extent;
use super::kept_notes::TrimCallback;
use super::log_record::{self, Record};
use bytes::Bytes;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::Payload;

impl Writeback {
    /// Appends a note under a number higher than all before. The note survives the end of the process at once, and
    /// the loss of power after [`Writeback::sync_now`].
    pub fn append_note(&self, number: u64, body: Bytes) -> io::Result<()> {
        let mut kept = self.notes.kept();
        let appended = log_record::append(&self.log, &Record::Note { number }, &Payload::from(body));
        match appended {
            Ok((segment, range)) => kept.push_back((number, Extent::Log(segment, range))),
            Err(error) => {
                drop(kept);
                if error.kind() == ErrorKind::StorageFull {
                    // Trimming makes room for later notes; this one fails all the same.
                    self.trim_notes();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns the notes that are still needed, ascending.
    pub fn read_notes(&self) -> io::Result<Vec<(u64, Bytes)>> {
        let read = |(number, extent): &(u64, Extent)| match extent {
            Extent::Log(segment, range) => Ok((*number, segment.read(range)?)),
            Extent::Bucket(..) => unreachable!("notes are never in the bucket"),
        };
        self.notes.kept().iter().map(read).collect()
    }

    /// Forgets the notes up to a number. Their owner must tolerate finding them again after a restart.
    pub fn forget_notes(&self, up_to: u64) -> io::Result<()> {
        match log_record::append(&self.log, &Record::NotesDone { number: up_to }, &Payload::default()) {
            Err(error) if error.kind() == ErrorKind::StorageFull => {
                tracing::debug!(
                    "the write-back log has no room to record that notes are not needed any more; a restart finds them again"
                );
            }
            appended => drop(appended?),
        }
        self.notes.kept().retain(|(number, _)| *number > up_to);
        self.log.reclaim()
    }

    /// Makes everything acknowledged so far, changes and notes, survive the loss of power.
    pub fn sync_now(&self) -> io::Result<()> {
        self.log.sync()
    }

    /// Sets the callback that asks the owner of the notes to forget them ([`Writeback::forget_notes`]). It runs on a
    /// thread that may block. Only the first call has an effect.
    pub fn notes_are_kept_by(&self, ask: impl Fn() + Send + Sync + 'static) {
        let _ = self.notes.on_trim.set(TrimCallback(Box::new(ask)));
    }

    /// Asks the owner of the notes to forget them, in a task of its own.
    pub(super) fn trim_notes(&self) {
        if let (Some(me), Ok(runtime)) = (self.me.upgrade(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { me.request_trim().await });
        }
    }

    /// Asks the owner of the notes to forget them, and waits for it, unless the owner is being asked already. Returns
    /// false if there are no notes or no owner.
    pub(super) async fn request_trim(self: &Arc<Self>) -> bool {
        let has_notes = !self.notes.kept().is_empty() && self.notes.on_trim.get().is_some();
        if !has_notes || self.notes.is_trimming.swap(true, Ordering::AcqRel) {
            return has_notes;
        }
        let me = self.clone();
        let trimmed = tokio::task::spawn_blocking(move || {
            if let Some(callback) = me.notes.on_trim.get() {
                (callback.0)();
            }
            me.notes.is_trimming.store(false, Ordering::Release);
        });
        trimmed.await.ok();
        self.activity.progress.notify_waiters();
        true
    }
}
