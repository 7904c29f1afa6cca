//! Samples of metrics at two moments, and what changed between them: rates, means and quantiles.

use std::collections::BTreeMap;
use tokio::time::Instant;

/// All samples of one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Values by the sample's name with its labels, like `name{label="value"}`.
    pub(crate) values: BTreeMap<String, f64>,
}

impl Sample {
    /// Returns the sum of all samples of this name that have the labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has_labels =
            |found: &str| labels.iter().all(|(label, value)| found.contains(&format!("{label}=\"{value}\"")));
        self.of_name(name).filter(|(found, _)| has_labels(found)).map(|(_, value)| value).sum()
    }

    /// Returns the values of a label of the samples of this name, sorted, each once.
    pub(crate) fn label_values<'a>(&'a self, name: &str, label: &str) -> Vec<&'a str> {
        let mut values: Vec<&'a str> =
            self.of_name(name).filter_map(|(labels, _)| label_value(labels, label)).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Returns the samples of a name: their labels in braces, and their values.
    fn of_name<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a str, f64)> + use<'a> {
        let name = name.to_owned();
        let samples = self.values.range(name.clone()..);
        samples
            .map_while(move |(sample, value)| Some((sample.strip_prefix(&name)?, *value)))
            .filter(|(labels, _)| labels.is_empty() || labels.starts_with('{'))
    }
}

/// Returns the value of a label in the text of labels, in braces.
fn label_value<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let start = labels.find(&format!("{label}=\""))? + label.len() + 2;
    labels[start..].split('"').next()
}

/// Two samples, of the beginning and of the end of an interval.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) before: &'a Sample,
    pub(crate) now: &'a Sample,
}

impl Change<'_> {
    /// Returns the length of the interval in seconds.
    pub(crate) fn secs(&self) -> f64 {
        (self.now.at - self.before.at).as_secs_f64().max(1e-3)
    }

    /// Returns the growth in the interval of the sum of all samples of this name that have the labels.
    pub(crate) fn difference(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.now.sum(name, labels) - self.before.sum(name, labels)
    }

    /// Returns the growth per second of the sum of all samples of this name that have the labels.
    pub(crate) fn per_sec(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.difference(name, labels) / self.secs()
    }

    /// Returns the mean of the times that a histogram got in the interval, in milliseconds; `None` if it got none.
    pub(crate) fn mean_ms(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let count = self.difference(&format!("{name}_count"), labels);
        let sum = self.difference(&format!("{name}_sum"), labels);
        (count > 0.0).then(|| 1000.0 * sum / count)
    }

    /// Returns the least bound of a histogram's buckets that this part (0 to 1) of the times in the interval does not exceed, in
    /// milliseconds; `None` if there were no times. The last bound is infinite.
    pub(crate) fn quantile_ms(&self, name: &str, labels: &[(&str, &str)], part: f64) -> Option<f64> {
        let buckets = format!("{name}_bucket");
        let mut bounds: Vec<(f64, &str)> = self
            .now
            .label_values(&buckets, "le")
            .into_iter()
            .filter_map(|bound| Some((bound.trim_start_matches('+').parse::<f64>().ok()?, bound)))
            .collect();
        bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let count = self.difference(&format!("{name}_count"), labels);
        let within = |bound: &str| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound)]).collect();
            self.difference(&buckets, &labels)
        };
        let found = bounds.iter().find(|(_, bound)| within(bound) >= part * count);
        found.map(|(bound, _)| 1000.0 * bound).filter(|_| count > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sample(values: &[(&str, f64)], at: Instant) -> Sample {
        Sample { at, values: values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect() }
    }

    #[test]
    fn changes_are_rates_means_and_quantiles() {
        let at = Instant::now();
        let before = sample(
            &[("a_total{operation=\"GET\",outcome=\"ok\"}", 5.0), ("t_sum", 1.0), ("t_count", 10.0)],
            at,
        );
        let now = sample(
            &[
                ("a_total{operation=\"GET\",outcome=\"ok\"}", 15.0),
                ("a_total{operation=\"PUT\",outcome=\"ok\"}", 2.0),
                ("a_total_other", 7.0),
                ("t_sum", 1.5),
                ("t_count", 20.0),
                ("t_bucket{le=\"0.01\"}", 8.0),
                ("t_bucket{le=\"0.1\"}", 9.0),
                ("t_bucket{le=\"+Inf\"}", 10.0),
            ],
            at + Duration::from_secs(2),
        );
        let change = Change { before: &before, now: &now };
        assert_eq!(change.per_sec("a_total", &[("operation", "GET")]), 5.0);
        assert_eq!(change.per_sec("a_total", &[]), 6.0);
        assert_eq!(change.mean_ms("t", &[]), Some(50.0));
        assert_eq!(change.mean_ms("u", &[]), None);
        assert_eq!(change.quantile_ms("t", &[], 0.5), Some(10.0));
        assert_eq!(change.quantile_ms("t", &[], 0.9), Some(100.0));
        assert_eq!(change.quantile_ms("t", &[], 0.99), Some(f64::INFINITY));
        assert_eq!(now.label_values("a_total", "operation"), ["GET", "PUT"]);
    }
}
