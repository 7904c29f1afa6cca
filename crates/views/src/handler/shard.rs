//! A part of the state behind one lock: a table for each container.

use super::change_log::{Page, Pen};
use super::matcher::{Matcher, Moment};
use super::table::Table;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Shard {
    tables: Vec<Option<Box<Table>>>,
    pub(super) pen: Pen,
}

impl Shard {
    pub(super) fn new(version: u64, page: Option<Page>) -> Self {
        Self { tables: Vec::new(), pen: Pen::new(version, page) }
    }

    /// The table of a container, with what numbers its changes; `None` before rulesets were put in force.
    pub(super) fn table(&mut self, container: u32) -> Option<(&mut Table, &mut Pen)> {
        let table = self.tables.get_mut(container as usize)?.as_deref_mut()?;
        Some((table, &mut self.pen))
    }

    /// Nobody wants to know of a container any more.
    pub(super) fn forget(&mut self, container: u32) {
        if let Some(table) = self.tables.get_mut(container as usize) {
            *table = None;
        }
    }

    /// Nobody knows what was gone before a version.
    pub(super) fn forget_until(&mut self, version: u64) {
        self.tables.iter_mut().flatten().for_each(|table| table.forget_until(version));
    }

    /// Up to which version nobody knows what left views of a container.
    pub(super) fn left_floor(&self, container: u32) -> u64 {
        let table = self.tables.get(container as usize).and_then(Option::as_deref);
        table.map_or(0, |table| table.left_floor)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter_map(|table| table.as_deref())
    }

    /// Puts rulesets in force.
    pub(super) fn switch(&mut self, container: u32, matcher: &Arc<Matcher>, moment: &Arc<Moment>) {
        let place = container as usize;
        if self.tables.len() <= place {
            self.tables.resize_with(place + 1, || None);
        }
        match &mut self.tables[place] {
            Some(table) => table.switch(matcher, moment, &mut self.pen),
            none => *none = Some(Box::new(Table::new(container, Arc::clone(matcher), Arc::clone(moment)))),
        }
    }
}
