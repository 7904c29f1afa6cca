//! A shard of the state, behind one lock: a table of objects for each container.

use super::change_log::{ChangeLog, LogBuffer};
use super::matcher::{Matcher, TimeCuts};
use super::table::Table;
use std::sync::Arc;

/// The tables of a shard, and the log of their changes.
#[derive(Debug)]
pub(super) struct Shard {
    /// Tables, indexed by container number; `None` for a container that has no matcher yet or is forgotten.
    tables: Vec<Option<Box<Table>>>,
    pub(super) log: ChangeLog,
}

impl Shard {
    pub(super) fn new(version: u64, buffer: Option<LogBuffer>) -> Self {
        Self { tables: Vec::new(), log: ChangeLog::new(version, buffer) }
    }

    /// Returns the table of a container and the log of its changes; `None` before the container's first matcher was set
    /// and after it was forgotten.
    pub(super) fn table(&mut self, container: u32) -> Option<(&mut Table, &mut ChangeLog)> {
        let table = self.tables.get_mut(container as usize)?.as_deref_mut()?;
        Some((table, &mut self.log))
    }

    /// Drops the table of a container that no view names any more.
    pub(super) fn forget(&mut self, container: u32) {
        if let Some(table) = self.tables.get_mut(container as usize) {
            *table = None;
        }
    }

    /// Notes that departures up to a version are not known.
    pub(super) fn set_departures_floor(&mut self, version: u64) {
        self.tables.iter_mut().flatten().for_each(|table| table.set_departures_floor(version));
    }

    /// Returns the version up to which departures from a container's views are not known.
    pub(super) fn departures_floor(&self, container: u32) -> u64 {
        let table = self.tables.get(container as usize).and_then(Option::as_deref);
        table.map_or(0, Table::departures_floor)
    }

    pub(super) fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter_map(|table| table.as_deref())
    }

    /// Sets the matcher of a container, and recomputes the views of its objects.
    pub(super) fn set_matcher(&mut self, container: u32, matcher: &Arc<Matcher>, time_cuts: &Arc<TimeCuts>) {
        let index = container as usize;
        if self.tables.len() <= index {
            self.tables.resize_with(index + 1, || None);
        }
        match &mut self.tables[index] {
            Some(table) => table.set_matcher(matcher, time_cuts, &mut self.log),
            none => *none = Some(Box::new(Table::new(container, Arc::clone(matcher), Arc::clone(time_cuts)))),
        }
    }
}
