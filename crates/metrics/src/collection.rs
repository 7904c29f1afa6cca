//! Metrics of one moment, and their text: OpenMetrics 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>) and the text
//! format 0.0.4 of Prometheus, which differ in the names of counters and in the end.

use crate::histogram::{BOUNDS_SECONDS, HistogramSnapshot};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows. Its samples end in `_total`.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Durations by bucket.
    Histogram,
    /// Facts as labels of a sample with the value 1, whose name ends in `_info`.
    Info,
}

impl Kind {
    /// Returns the name in both formats; the older one shows facts as a gauge.
    fn name(self, format: Format) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Info if format == Format::OpenMetrics => "info",
            Self::Gauge | Self::Info => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// Returns the end of the names of its samples.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// The description of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name without the suffix of its kind, such as `tenon_store_requests`.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Description, one sentence without a full stop.
    pub help: &'static str,
}

impl Metric {
    /// Returns the name of its samples; of a histogram, their common beginning.
    pub fn sample_name(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }
}

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// Returns the format for the value of an `Accept` header.
    pub fn for_accept(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Returns the value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The samples of all metrics at one moment.
#[derive(Debug, Default)]
pub struct Collection {
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    /// Each sample with the end of its name, its labels as text, and its value.
    samples: Vec<(&'static str, String, f64)>,
}

impl Collection {
    /// Returns a collection without samples. The text describes all metrics, including those without samples.
    pub fn of(metrics: &'static [Metric]) -> Self {
        let family = |metric| Family { metric, samples: Vec::new() };
        Self { families: metrics.iter().map(family).collect() }
    }

    /// Adds a sample. `labels` are the values of the metric's labels, in their order.
    ///
    /// # Panics
    /// If the metric is not one of the collection, or has another number of labels.
    pub fn add(&mut self, name: &str, labels: &[&str], value: f64) {
        let family = self.family(name, labels);
        let (suffix, labels) = (family.metric.kind.suffix(), family.labels(labels));
        family.samples.push((suffix, labels, value));
    }

    /// Adds the samples of a histogram.
    ///
    /// # Panics
    /// As [`Collection::add`].
    pub fn add_histogram(&mut self, name: &str, labels: &[&str], counts: &HistogramSnapshot) {
        let family = self.family(name, labels);
        let plain = family.labels(labels);
        for (at, count) in counts.cumulative.iter().enumerate() {
            let bound = BOUNDS_SECONDS.get(at).map_or("+Inf".to_owned(), ToString::to_string);
            let separator = if plain.is_empty() { "" } else { "," };
            family.samples.push(("_bucket", format!("{plain}{separator}le=\"{bound}\""), *count as f64));
        }
        family.samples.push(("_sum", plain.clone(), counts.sum_seconds));
        family.samples.push(("_count", plain, counts.count() as f64));
    }

    /// Returns the text of all metrics.
    pub fn to_text(&self, format: Format) -> String {
        let mut text = String::new();
        for Family { metric, samples } in &self.families {
            let name = match format {
                Format::OpenMetrics => metric.name.to_owned(),
                Format::Prometheus => metric.sample_name(),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# TYPE {name} {}", metric.kind.name(format));
            let unit =
                ["seconds", "bytes"].into_iter().find(|unit| metric.name.ends_with(&format!("_{unit}")));
            if let (Format::OpenMetrics, Some(unit)) = (format, unit) {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            let _ = writeln!(text, "# HELP {name} {}.", escaped(metric.help));
            for (suffix, labels, value) in samples {
                let _ = writeln!(text, "{}{suffix}{} {value}", metric.name, braced(labels));
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    /// Returns the value of each sample by its name with labels, such as `tenon_store_requests_total{operation="GET",outcome="ok"}`.
    pub fn samples(&self) -> BTreeMap<String, f64> {
        let samples = self.families.iter().flat_map(|family| {
            family.samples.iter().map(|(suffix, labels, value)| {
                (format!("{}{suffix}{}", family.metric.name, braced(labels)), *value)
            })
        });
        samples.collect()
    }

    /// Returns the family of a metric. Panics if there is none with these labels.
    fn family(&mut self, name: &str, labels: &[&str]) -> &mut Family {
        let family = self.families.iter_mut().find(|family| family.metric.name == name);
        match family {
            Some(family) if family.metric.labels.len() == labels.len() => family,
            _ => panic!("the metric {name} is not in the table, or has other labels than {labels:?}"),
        }
    }
}

impl Family {
    /// Returns the labels of a sample as text, without braces.
    fn labels(&self, values: &[&str]) -> String {
        let pairs = self.metric.labels.iter().zip(values);
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        pairs.join(",")
    }
}

fn braced(labels: &str) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{labels}}}") }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use std::time::Duration;

    static METRICS: [Metric; 4] = [
        Metric { name: "t_requests", kind: Kind::Counter, labels: &["of"], help: "Requests sent" },
        Metric { name: "t_held_bytes", kind: Kind::Gauge, labels: &[], help: "Bytes held" },
        Metric { name: "t_wait_seconds", kind: Kind::Histogram, labels: &["of"], help: "Time waited" },
        Metric { name: "t_build", kind: Kind::Info, labels: &["version"], help: "Version" },
    ];

    fn collection() -> Collection {
        let mut collection = Collection::of(&METRICS);
        collection.add("t_requests", &["a \"b\"\n\\"], 3.0);
        collection.add("t_held_bytes", &[], 1.5e9);
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(2));
        collection.add_histogram("t_wait_seconds", &["x"], &histogram.snapshot());
        collection.add("t_build", &["1.0"], 1.0);
        collection
    }

    #[test]
    fn the_text_is_openmetrics() {
        let text = collection().to_text(Format::OpenMetrics);
        let beginning = "# TYPE t_requests counter\n# HELP t_requests Requests sent.\n\
            t_requests_total{of=\"a \\\"b\\\"\\n\\\\\"} 3\n\
            # TYPE t_held_bytes gauge\n# UNIT t_held_bytes bytes\n# HELP t_held_bytes Bytes held.\n\
            t_held_bytes 1500000000\n";
        assert!(text.starts_with(beginning), "{text}");
        assert!(text.contains("t_wait_seconds_bucket{of=\"x\",le=\"0.001\"} 0\n"), "{text}");
        assert!(text.contains("t_wait_seconds_bucket{of=\"x\",le=\"+Inf\"} 1\n"), "{text}");
        assert!(text.contains("t_wait_seconds_sum{of=\"x\"} 0.002\n"), "{text}");
        assert!(text.ends_with(
            "# TYPE t_build info\n# HELP t_build Version.\nt_build_info{version=\"1.0\"} 1\n# EOF\n"
        ));
    }

    #[test]
    fn the_older_text_has_the_names_of_samples() {
        let text = collection().to_text(Format::Prometheus);
        assert!(text.starts_with("# TYPE t_requests_total counter\n"), "{text}");
        assert!(text.contains("# TYPE t_build_info gauge\n") && !text.contains("# EOF"), "{text}");
        assert_eq!(Format::for_accept("application/openmetrics-text;version=1.0.0,*/*"), Format::OpenMetrics);
        assert_eq!(Format::for_accept("*/*"), Format::Prometheus);
    }

    #[test]
    fn samples_have_their_labels() {
        let samples = collection().samples();
        assert_eq!(samples["t_wait_seconds_count{of=\"x\"}"], 1.0);
        assert_eq!(samples["t_held_bytes"], 1.5e9);
    }

    #[test]
    #[should_panic(expected = "not in the table")]
    fn an_unknown_metric_is_a_defect() {
        collection().add("t_other", &[], 1.0);
    }
}
