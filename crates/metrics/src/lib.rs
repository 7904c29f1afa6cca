//! Figures of a running process: latency histograms, and their text for monitoring systems.
//!
//! Owns the histogram ([`Histogram`]), the switch that turns measurements of time on ([`Switch`]), the registration of functions that
//! observe single events ([`Observers`]), the choice of the events that are observed ([`Sampler`], [`SampledObserver`]), and the two text
//! formats of a collection of metrics ([`Collection`]): OpenMetrics 1.0 and the older text format of Prometheus.
//!
//! Refuses to keep a registry, to read a clock, and to serve HTTP: each layer keeps its own counters, and the program
//! collects them when it is asked.
//!
//! Invariants: a histogram's buckets are cumulative only in [`HistogramSnapshot`]; recording is one addition per
//! counter and takes no lock; an event without observers costs one load.

mod collection;
mod histogram;
mod observers;
mod sampler;
mod switch;

pub use collection::{Collection, Format, Kind, Metric};
pub use histogram::{BOUNDS_SECONDS, Histogram, HistogramSnapshot};
pub use observers::{Observation, Observers};
pub use sampler::{SampledObserver, Sampler, scramble};
pub use switch::{Switch, SwitchedOn};
