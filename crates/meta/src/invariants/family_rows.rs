//! The records of a family, in the order of their keys and one inode after another.

use super::findings::Findings;
use crate::codec::DecodeError;
use crate::engine::Reader;
use crate::error::EngineError;
use crate::record::{KeyRange, Value, Versioned};
use crate::{Ino, schema};
use std::ops::Bound;

/// Rows read at a time, which bounds how long one call occupies the engine.
pub(super) const PAGE_ROWS: usize = 4096;

/// Rows of large values, extended attributes, read at a time.
pub(super) const PAGE_LARGE_ROWS: usize = 256;

/// A family of records whose keys begin with an inode number, read page by page.
pub(super) struct FamilyRows<'r, R: ?Sized> {
    reader: &'r R,
    range: KeyRange,
    page_rows: usize,
    page: std::vec::IntoIter<(Vec<u8>, Versioned)>,
    /// Key of the last record of the page; `None` before the first page.
    last: Option<Vec<u8>>,
    is_last_page: bool,
    /// The next record, with the inode of its key.
    next: Option<(Ino, Vec<u8>, Value)>,
}

impl<'r, R: Reader + ?Sized> FamilyRows<'r, R> {
    pub(super) fn new(reader: &'r R, range: KeyRange, page_rows: usize) -> Self {
        let page = Vec::new().into_iter();
        Self { reader, range, page_rows, page, last: None, is_last_page: false, next: None }
    }

    /// Returns the inode of the next record; `None` at the end. Reports keys that have no inode.
    pub(super) fn next_ino(&mut self, findings: &mut Findings) -> Result<Option<Ino>, EngineError> {
        while self.next.is_none() {
            let Some((key, found)) = self.page.next() else {
                if self.is_last_page {
                    return Ok(None);
                }
                self.read_page()?;
                continue;
            };
            match schema::ino_of(&key) {
                Ok(ino) => self.next = Some((ino, key, found.value)),
                Err(error) => findings.report_undecodable(&key, &error),
            }
        }
        Ok(self.next.as_ref().map(|(ino, ..)| *ino))
    }

    fn read_page(&mut self) -> Result<(), EngineError> {
        let from = match &self.last {
            Some(key) => Bound::Excluded(key.as_slice()),
            None => Bound::Included(self.range.from.as_slice()),
        };
        let rows = self.reader.scan(from, Bound::Excluded(&self.range.to), self.page_rows)?;
        self.is_last_page = rows.is_empty();
        if let Some((key, _)) = rows.last() {
            self.last = Some(key.clone());
        }
        self.page = rows.into_iter();
        Ok(())
    }

    /// Visits the records of an inode, which must be the next ones. A record that `visit` cannot decode is a violation.
    pub(super) fn for_each_of(
        &mut self,
        ino: Ino,
        findings: &mut Findings,
        mut visit: impl FnMut(&mut Findings, &[u8], &Value) -> Result<(), DecodeError>,
    ) -> Result<(), EngineError> {
        while self.next_ino(findings)? == Some(ino) {
            let Some((_, key, value)) = self.next.take() else { break };
            if let Err(error) = visit(findings, &key, &value) {
                findings.report_undecodable(&key, &error);
            }
        }
        Ok(())
    }

    /// Visits all records. A record that `visit` cannot decode is a violation.
    pub(super) fn for_each(
        mut self,
        findings: &mut Findings,
        mut visit: impl FnMut(&[u8], &Value) -> Result<(), DecodeError>,
    ) -> Result<(), EngineError> {
        while let Some(ino) = self.next_ino(findings)? {
            self.for_each_of(ino, findings, |_, key, value| visit(key, value))?;
        }
        Ok(())
    }
}
