//! How much room there is where the objects lie, as far as somebody knows.

use std::fmt;
use std::sync::OnceLock;

/// The room of a disk or a drive that keeps the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The whole, in bytes.
    pub total_bytes: u64,
    /// The free part, in bytes.
    pub available_bytes: u64,
}

/// Says how much room there is now; `None` where it cannot be found out. Must answer at once.
pub type MeasureRoom = Box<dyn Fn() -> Option<Room> + Send + Sync>;

/// Where room is measured; nowhere for a store that has no end.
#[derive(Default)]
pub(crate) struct Rooms(OnceLock<MeasureRoom>);

impl Rooms {
    /// Measures by `measure` from now on; the first one stays.
    pub(crate) fn set(&self, measure: MeasureRoom) {
        let _ = self.0.set(measure);
    }

    /// The room there is now, if it is known.
    pub(crate) fn now(&self) -> Option<Room> {
        self.0.get()?()
    }
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rooms").field(&self.now()).finish()
    }
}
