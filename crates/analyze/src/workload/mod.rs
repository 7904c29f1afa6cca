//! Workloads on a storage node: those of the paper, small objects, enumeration, and ageing.
//!
//! Owns the choice of operations and objects (a pure function of a seed and the operation's number), the content of objects and its
//! verification, and the latencies.
//!
//! Refuses to depend on the system under test (a client is a [`store::ObjectStore`]), and to read the clock (time is tokio's).
//!
//! Invariants: the same seed yields the same operations at any concurrency. A run that reads a body of another object
//! or another length ends with an error; so does one that reads other bytes, in the bodies that it compares
//! ([`Scale::verify_every`]).

mod age;
mod choice;
mod content;
mod enumerate;
mod load;
mod mix;
mod usage;

pub use age::Age;
pub use choice::Choice;
pub use content::{Content, GeneratorCost};
pub use enumerate::Enumeration;
pub use load::{Done, Load, LoadError, Operations};
pub use mix::Mix;
pub use usage::{Usage, UsageMeter, load_average};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Table 1: 95 PUT to 5 GET, uniform.
    #[serde(rename = "W-O")]
    WriteOnly,
    /// Table 1: 5 PUT to 95 GET, zipfian.
    #[serde(rename = "R-O")]
    ReadOnly,
    /// Table 1: 50 PUT to 50 GET, zipfian.
    #[serde(rename = "R-W")]
    ReadWrite,
    /// PUTs of new objects of 4 KiB.
    #[serde(rename = "put-4k")]
    Put4K,
    /// GETs of objects of 4 KiB.
    #[serde(rename = "get-4k")]
    Get4K,
    /// PUTs of new objects of 64 KiB.
    #[serde(rename = "put-64k")]
    Put64K,
    /// GETs of objects of 64 KiB.
    #[serde(rename = "get-64k")]
    Get64K,
    /// GETs of objects of 64 KiB from the device: each object once, with cold caches.
    #[serde(rename = "get-64k-cold")]
    Get64KCold,
    /// Section 3.3: a listing of all objects, with cold caches.
    Enumerate,
    /// R-O on an aged store: one that was filled and overwritten several times.
    #[serde(rename = "aged-R-O")]
    AgedReadOnly,
    /// R-W on an aged store.
    #[serde(rename = "aged-R-W")]
    AgedReadWrite,
}

/// State of the caches of server and kernel when a workload begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Caches {
    /// Empty: the server was restarted after the kernel's page cache was dropped.
    Cold,
    /// Filled: every object was read once before, and all fit into the memory limit.
    Hot,
    /// As the preparation, or the workload before on the same store, left them.
    AsPrepared,
    /// Irrelevant, as the workload reads nothing.
    Unused,
}

/// Sizes and numbers of operations of workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Size of large objects, in bytes.
    pub size_bytes: u64,
    /// Number of large objects that exist before a mixed workload begins.
    pub objects: u64,
    /// Minimum number of operations of a workload with large objects.
    pub operations: u64,
    /// Minimum duration of a measurement, in seconds.
    pub seconds: f64,
    /// Number of clients, each with its own connections.
    pub clients: usize,
    /// Number of concurrent operations, over all clients.
    pub threads: usize,
    /// Minimum number of operations on small objects, and the number of objects that GETs choose from.
    pub small_operations: u64,
    /// Number of objects of 64 KiB that are read once each with cold caches.
    pub cold_objects: u64,
    /// Number of objects to enumerate.
    pub enumerated: u64,
    /// Size of objects to enumerate, in bytes.
    pub enumerated_bytes: u64,
    /// Every n-th GET compares the whole body; the others check its length and stamp only.
    pub verify_every: u64,
    /// Seed of operations and content.
    pub seed: u64,
}

impl Workload {
    /// All workloads, in the order in which they run.
    pub const ALL: [Self; 11] = [
        Self::WriteOnly,
        Self::ReadOnly,
        Self::ReadWrite,
        Self::Put4K,
        Self::Get4K,
        Self::Put64K,
        Self::Get64K,
        Self::Get64KCold,
        Self::Enumerate,
        Self::AgedReadOnly,
        Self::AgedReadWrite,
    ];

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteOnly => "W-O",
            Self::ReadOnly => "R-O",
            Self::ReadWrite => "R-W",
            Self::Put4K => "put-4k",
            Self::Get4K => "get-4k",
            Self::Put64K => "put-64k",
            Self::Get64K => "get-64k",
            Self::Get64KCold => "get-64k-cold",
            Self::Enumerate => "enumerate",
            Self::AgedReadOnly => "aged-R-O",
            Self::AgedReadWrite => "aged-R-W",
        }
    }

    /// Describes the operations, one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::WriteOnly => "95 PUT to 5 GET of large objects, uniform",
            Self::ReadOnly => "5 PUT to 95 GET of large objects, zipfian",
            Self::ReadWrite => "50 PUT to 50 GET of large objects, zipfian",
            Self::Put4K => "PUT of objects of 4 KiB",
            Self::Get4K => "GET of objects of 4 KiB, uniform",
            Self::Put64K => "PUT of objects of 64 KiB",
            Self::Get64K => "GET of objects of 64 KiB, uniform",
            Self::Get64KCold => "GET of objects of 64 KiB, each once",
            Self::Enumerate => "listing of all objects, page by page",
            Self::AgedReadOnly => "R-O after overwriting three times the capacity",
            Self::AgedReadWrite => "R-W after overwriting three times the capacity",
        }
    }

    /// Describes the scale of this workload for reports.
    pub fn scale(self, scale: &Scale) -> String {
        let Some(mix) = self.mix(scale) else {
            return format!("{} objects of {} KiB", scale.enumerated, scale.enumerated_bytes >> 10);
        };
        let objects = match (mix.objects, mix.size_bytes >> 10) {
            (u64::MAX, _) => "each a new key".to_owned(),
            (count, kib) if kib < 1024 => format!("{count} objects of {kib} KiB"),
            (count, kib) => format!("{count} objects of {} MiB", kib >> 10),
        };
        format!("{objects}, {} at a time by {} clients", mix.tasks, scale.clients)
    }

    /// Returns the total size of the objects that the workload reads from, in bytes.
    pub fn read_bytes(self, scale: &Scale) -> u64 {
        match self.mix(scale) {
            Some(mix) if mix.put_percent < 100 => mix.objects * mix.size_bytes,
            Some(_) => 0,
            None => scale.enumerated * scale.enumerated_bytes,
        }
    }

    /// Returns the state of the caches that the workload begins with.
    pub fn caches(self) -> Caches {
        match self {
            Self::ReadOnly | Self::Get64KCold | Self::Enumerate | Self::AgedReadOnly => Caches::Cold,
            Self::Get4K | Self::Get64K => Caches::Hot,
            Self::WriteOnly | Self::ReadWrite | Self::AgedReadWrite => Caches::AsPrepared,
            Self::Put4K | Self::Put64K => Caches::Unused,
        }
    }

    /// Returns whether the workload ends after all objects. It is then repeated with cold caches until the minimum duration is reached.
    pub fn is_repeated(self) -> bool {
        matches!(self, Self::Get64KCold | Self::Enumerate)
    }

    /// Returns whether the workload needs an aged store.
    pub fn is_aged(self) -> bool {
        matches!(self, Self::AgedReadOnly | Self::AgedReadWrite)
    }

    /// Creates the objects that the workload needs, in a store with `room_bytes` of free space.
    ///
    /// # Errors
    /// [`LoadError::NoRoom`] if they do not fit, or any error of [`Load::mix`].
    pub async fn prepare(self, load: &Load, scale: &Scale, room_bytes: u64) -> Result<(), LoadError> {
        prepare(&[self], load, scale, room_bytes).await
    }

    /// Reads every object once to fill the caches.
    ///
    /// # Errors
    /// Any error of [`Load::mix`].
    pub async fn warm(self, load: &Load, scale: &Scale) -> Result<(), LoadError> {
        let Some(mix) = self.mix(scale) else { return Ok(()) };
        let once =
            Mix { put_percent: 0, choice: Choice::InTurn, operations: mix.objects, seconds: 0.0, ..mix };
        load.mix(&once).await.map(drop)
    }

    /// Runs the workload.
    ///
    /// # Errors
    /// Any error of [`Load::mix`] or [`Load::enumerate`].
    pub async fn perform(self, load: &Load, scale: &Scale) -> Result<Done, LoadError> {
        match self.mix(scale) {
            Some(mix) => load.mix(&mix).await,
            None => Ok(load.enumerate(scale.enumerated).await?.0),
        }
    }

    /// Returns whether the workload begins with cold caches, as the objects that it reads are meant to be written long ago.
    pub fn is_cold(self) -> bool {
        self.caches() == Caches::Cold
    }

    /// Returns the objects to create before the workload: (number, size of each in bytes).
    pub fn filling(self, scale: &Scale) -> (u64, u64) {
        match self {
            Self::Enumerate => (scale.enumerated, scale.enumerated_bytes),
            _ => self.mix(scale).map_or((0, 0), |mix| (mix.filled, mix.size_bytes)),
        }
    }

    /// Returns the mix of operations; `None` for [`Workload::Enumerate`], which only lists.
    pub fn mix(self, scale: &Scale) -> Option<Mix> {
        let large = |put_percent, choice, objects| Mix {
            put_percent,
            choice,
            size_bytes: scale.size_bytes,
            objects,
            filled: objects,
            operations: scale.operations,
            seconds: scale.seconds,
            tasks: scale.threads,
        };
        // Every PUT creates a new object.
        let put = |size_bytes| Mix {
            put_percent: 100,
            choice: Choice::InTurn,
            size_bytes,
            objects: u64::MAX,
            filled: 0,
            operations: scale.small_operations,
            seconds: scale.seconds,
            tasks: SMALL_TASKS,
        };
        let get = |size_bytes| Mix {
            put_percent: 0,
            choice: Choice::Uniform,
            objects: scale.small_operations,
            filled: scale.small_operations,
            ..put(size_bytes)
        };
        let cold = Mix {
            choice: Choice::Scattered,
            objects: scale.cold_objects,
            filled: scale.cold_objects,
            operations: scale.cold_objects,
            seconds: 0.0,
            ..get(64 << 10)
        };
        let (few, many) = (scale.objects.min(WRITTEN_OBJECTS_MAX), scale.objects);
        match self {
            Self::WriteOnly => Some(large(95, Choice::Uniform, few)),
            Self::ReadOnly | Self::AgedReadOnly => Some(large(5, Choice::Zipfian, many)),
            Self::ReadWrite | Self::AgedReadWrite => Some(large(50, Choice::Zipfian, many)),
            Self::Put4K => Some(put(4 << 10)),
            Self::Get4K => Some(get(4 << 10)),
            Self::Put64K => Some(put(64 << 10)),
            Self::Get64K => Some(get(64 << 10)),
            Self::Get64KCold => Some(cold),
            Self::Enumerate => None,
        }
    }
}

/// Maximum number of objects of W-O. It reads too little for a larger set to matter, and servers keep replaced objects for a while, which
/// takes space.
const WRITTEN_OBJECTS_MAX: u64 = 64;

/// Creates the objects that these workloads need, after ageing the store if one of them needs that. All of them must
/// need objects of the same size.
///
/// # Errors
/// As [`Workload::prepare`].
pub async fn prepare(
    workloads: &[Workload],
    load: &Load,
    scale: &Scale,
    room_bytes: u64,
) -> Result<(), LoadError> {
    let fillings = workloads.iter().map(|workload| workload.filling(scale));
    let (objects, size_bytes) = fillings.max().unwrap_or_default();
    let mixes = workloads.iter().filter_map(|workload| workload.mix(scale));
    let in_flight_bytes = mixes.map(|mix| mix.tasks as u64 * mix.size_bytes).max().unwrap_or_default();
    let needed_bytes = objects * size_bytes + in_flight_bytes;
    if needed_bytes > room_bytes {
        return Err(LoadError::NoRoom { needed_bytes, room_bytes });
    }
    if workloads.iter().any(|workload| workload.is_aged()) {
        load.age(&Age::before(needed_bytes, room_bytes, scale.size_bytes)).await?;
    }
    load.fill(objects, size_bytes, scale.threads.min(SMALL_TASKS)).await?;
    Ok(())
}

impl Caches {
    /// Returns the name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Hot => "hot",
            Self::AsPrepared => "as prepared",
            Self::Unused => "nothing read",
        }
    }
}

/// Number of concurrent operations on small objects.
pub(crate) const SMALL_TASKS: usize = 32;

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|workload| workload.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("unknown workload '{name}'; choose from {}", names()))
    }
}

impl Scale {
    /// Returns the paper's scale: objects of 128 MiB, 3 clients with 128 threads, a million objects to enumerate. A
    /// [`compare`](crate::compare) with it needs a device of 96 GiB.
    pub fn paper() -> Self {
        Self {
            size_bytes: 128 << 20,
            objects: 256,
            operations: 1024,
            seconds: 20.0,
            clients: 3,
            threads: 128,
            small_operations: 100_000,
            cold_objects: 100_000,
            enumerated: 1_000_000,
            enumerated_bytes: 4 << 10,
            verify_every: 8,
            seed: 1,
        }
    }

    /// Returns a scale that fits into 20 GiB: objects of 16 MiB and runs of 20 s.
    pub fn small() -> Self {
        Self {
            size_bytes: 16 << 20,
            objects: 64,
            operations: 128,
            threads: 32,
            small_operations: 4000,
            cold_objects: 16_384,
            enumerated: 20_000,
            ..Self::paper()
        }
    }

    /// Returns a scale that takes 1 GiB and some seconds. It shows whether everything works; its figures mean nothing.
    pub fn tiny() -> Self {
        Self {
            size_bytes: 5 << 20,
            objects: 8,
            operations: 32,
            seconds: 0.0,
            threads: 6,
            small_operations: 200,
            cold_objects: 200,
            enumerated: 1500,
            ..Self::paper()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
            assert_eq!(workload.name().to_lowercase().parse(), Ok(workload));
            assert_eq!(serde_json::to_value(workload).unwrap(), workload.name());
        }
        assert!("w-x".parse::<Workload>().unwrap_err().contains("W-O, R-O"));
    }
}
