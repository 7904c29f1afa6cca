//! Numbers what happens in a shard, and writes it down for the log.

/// The version of a shard, and what of it is not in the log yet.
#[derive(Debug, Default)]
pub(super) struct Pen {
    version: u64,
    /// `None` where nothing is kept.
    records: Option<Vec<u8>>,
}

/// What a record says (docs/format.md, "The event handler's log").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    /// An object is so now, or gone.
    Object = 1,
    /// Somebody has to look at an object.
    Look = 2,
    /// Somebody looked at an object and nothing was new.
    Looked = 3,
}

impl Pen {
    pub(super) fn new(version: u64, keeps: bool) -> Self {
        Self { version, records: keeps.then(Vec::new) }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Of a change that the log need not know.
    pub(super) fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Of a change, with the packed record of the object.
    pub(super) fn write(&mut self, mark: Mark, container: u32, object: &[u8]) -> u64 {
        let version = self.next();
        if let Some(records) = &mut self.records {
            records.push(mark as u8);
            records.extend_from_slice(&container.to_le_bytes());
            records.extend_from_slice(&version.to_le_bytes());
            records.extend_from_slice(&(object.len() as u32).to_le_bytes());
            records.extend_from_slice(object);
        }
        version
    }

    /// What was written since the last time, which is now somebody else's.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        if let Some(records) = &mut self.records {
            into.append(records);
        }
    }
}
