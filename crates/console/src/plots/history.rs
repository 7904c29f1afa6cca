//! The figures of the last hour, in memory.
//!
//! Invariants: a series has at most one point per interval of the last hour; a measurement adds points to at most
//! [`SERIES_MAX`] series of a plot, whatever the labels of samples are; a series without points in the last hour is
//! dropped.

use super::{Grouping, Kind, PLOTS, Plot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Span of the plots.
pub(crate) const SPAN: Duration = Duration::from_secs(60 * 60);
/// Maximum number of series of a plot in one measurement. Further ones, in the order of their names, are left out.
const SERIES_MAX: usize = 24;

/// Points of a series, the oldest first, with their times on the monotonic clock of the console.
pub(crate) type Points = VecDeque<(Duration, f64)>;

/// Series by the title of their plot and their name.
pub(crate) type AllSeries = BTreeMap<(&'static str, String), Points>;

/// The points of all series in the last hour.
#[derive(Debug)]
pub(crate) struct History {
    /// Maximum number of points of a series.
    points_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    series: AllSeries,
    /// Sums of the samples of the last measurement, for rates, by plot and series: also of those that were left out.
    last: BTreeMap<(&'static str, String), f64>,
    /// Time of the last measurement.
    last_at: Option<Duration>,
}

impl History {
    /// Returns an empty history for measurements at an interval.
    pub(crate) fn new(interval: Duration) -> Self {
        let points_max = SPAN.as_millis() / interval.as_millis().max(1) + 1;
        Self {
            points_max: usize::try_from(points_max).unwrap_or(usize::MAX).min(3601),
            inner: Mutex::default(),
        }
    }

    /// Adds a measurement: the values of all samples at a time. Rates have a point from the second measurement on.
    pub(crate) fn record(&self, now: Duration, samples: &BTreeMap<String, f64>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { series, last, last_at } = &mut *inner;
        let elapsed =
            last_at.map(|last_at| now.saturating_sub(last_at).as_secs_f64()).filter(|secs| *secs > 0.0);
        let before = std::mem::take(last);
        for plot in PLOTS {
            for (at, (name, sum)) in sums(plot, samples).into_iter().enumerate() {
                let key = (plot.title, name);
                if plot.kind == Kind::Rate {
                    last.insert(key.clone(), sum);
                }
                if at >= SERIES_MAX {
                    continue;
                }
                let value = match plot.kind {
                    Kind::Level => Some(sum),
                    Kind::Rate => {
                        // A counter that appears later than the first measurement began at 0.
                        let before = before.get(&key).copied().unwrap_or(0.0);
                        // A counter that has become smaller was reset; its rate counts as 0.
                        elapsed.map(|secs| (sum - before).max(0.0) / secs)
                    }
                };
                if let Some(value) = value {
                    push(series.entry(key).or_default(), (now, value), self.points_max);
                }
            }
        }
        series.retain(|_, points| points.back().is_some_and(|(at, _)| now.saturating_sub(*at) <= SPAN));
        *last_at = Some(now);
    }

    /// Calls a function with all series.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&AllSeries) -> T) -> T {
        read(&self.inner.lock().unwrap_or_else(PoisonError::into_inner).series)
    }
}

/// Adds a point to a series, and removes those that are too old or too many.
fn push(points: &mut Points, point: (Duration, f64), points_max: usize) {
    points.push_back(point);
    let oldest = point.0.saturating_sub(SPAN);
    while points.len() > points_max || points.front().is_some_and(|(at, _)| *at < oldest) {
        points.pop_front();
    }
}

/// Returns the values of a plot's series by name: each is the sum of the samples that belong to it.
fn sums(plot: &Plot, samples: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for (metric, grouping) in plot.samples {
        let from = samples.range((*metric).to_owned()..);
        for (sample, value) in from.take_while(|(sample, _)| sample.starts_with(metric)) {
            let labels = &sample[metric.len()..];
            if !labels.is_empty() && !labels.starts_with('{') {
                continue;
            }
            let name = match grouping {
                Grouping::Name(name) => Some((*name).to_owned()),
                Grouping::Label(label) => label_value(labels, label),
            };
            if let Some(name) = name {
                *sums.entry(name).or_insert(0.0) += value;
            }
        }
    }
    sums
}

/// Returns the value of a label in a text such as `{operation="GetObject",status="200"}`; `None` if it has no such label.
fn label_value(labels: &str, wanted: &str) -> Option<String> {
    let mut rest = labels.strip_prefix('{')?;
    loop {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(characters.next().map(|(_, c)| if c == 'n' { '\n' } else { c })?),
                (_, character) => value.push(character),
            }
        };
        if name == wanted {
            return Some(value);
        }
        rest = after[end + 1..].strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(requests: f64, memory: f64) -> BTreeMap<String, f64> {
        BTreeMap::from([
            (r#"tenon_s3_requests_total{operation="Get",status="200"}"#.to_owned(), requests),
            (r#"tenon_s3_requests_total{operation="Get",status="404"}"#.to_owned(), 1.0),
            (r#"tenon_s3_requests_totally{operation="Other"}"#.to_owned(), 7.0),
            ("process_resident_memory_bytes".to_owned(), memory),
        ])
    }

    fn values(history: &History, plot: &'static str, name: &str) -> Vec<f64> {
        history.read(|series| {
            let points = series.get(&(plot, name.to_owned()));
            points.map(|points| points.iter().map(|(_, value)| *value).collect()).unwrap_or_default()
        })
    }

    #[test]
    fn counters_become_rates_and_gauges_stay() {
        let history = History::new(Duration::from_secs(10));
        for (at, requests) in [(100, 10.0), (110, 30.0), (120, 5.0), (130, 15.0)] {
            history.record(Duration::from_secs(at), &samples(requests, at as f64));
        }
        assert_eq!(values(&history, "S3 requests", "Get"), [2.0, 0.0, 1.0]);
        assert_eq!(values(&history, "S3 responses by status", "200"), [2.0, 0.0, 1.0]);
        assert_eq!(values(&history, "S3 responses by status", "404"), [0.0, 0.0, 0.0]);
        assert_eq!(values(&history, "Memory", "resident"), [100.0, 110.0, 120.0, 130.0]);
        assert_eq!(values(&history, "S3 requests", "Other"), [0.0; 0]);
    }

    #[test]
    fn s749_the_history_is_bounded() {
        let history = History::new(Duration::from_secs(10));
        for round in 0..1000_u64 {
            let name = |number| format!(r#"tenon_s3_requests_total{{operation="o{number}",status="200"}}"#);
            let many = (0..100).map(|number| (name(number), round as f64));
            let many = many.chain([("process_resident_memory_bytes".to_owned(), 1.0)]);
            history.record(Duration::from_secs(10 * round), &many.collect());
        }
        let (series, points_max) = history.read(|series| {
            let of_requests = series.keys().filter(|(plot, _)| *plot == "S3 requests").count();
            (of_requests, series.values().map(VecDeque::len).max().unwrap())
        });
        assert_eq!((series, points_max), (SERIES_MAX, 361));
        // A series without samples is forgotten after the span.
        history.record(Duration::from_secs(20_000), &BTreeMap::new());
        assert_eq!(history.read(BTreeMap::len), 0);
    }

    /// Regression: the first rate of a series that had been left out was that of its whole count, and what was known of gone ones stayed.
    #[test]
    fn a_series_that_was_left_out_has_its_own_rate_and_gone_ones_are_forgotten() {
        let history = History::new(Duration::from_secs(10));
        let name = |number| format!(r#"tenon_s3_requests_total{{operation="o{number:03}",status="200"}}"#);
        for (round, first) in [(0, 0), (1, 0), (2, 10)] {
            let count = f64::from(100 + 10 * round);
            let samples = (first..SERIES_MAX + 10).map(|number| (name(number), count)).collect();
            history.record(Duration::from_secs(10 * u64::try_from(round).unwrap()), &samples);
        }
        assert_eq!(values(&history, "S3 requests", "o025"), [1.0]);
        let known = history.inner.lock().unwrap().last.len();
        assert_eq!(known, SERIES_MAX + 1, "the operations that are left, and the status");
    }

    #[test]
    fn labels_may_contain_anything() {
        let labels = r#"{a="x\"},\\",b="2"}"#;
        assert_eq!(label_value(labels, "a").as_deref(), Some("x\"},\\"));
        assert_eq!(label_value(labels, "b").as_deref(), Some("2"));
        assert_eq!(label_value(labels, "c"), None);
        assert_eq!(label_value("", "a"), None);
    }
}
