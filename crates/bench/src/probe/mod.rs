//! The feature matrix, filled by trying. Each feature is a function that does the thing and looks whether it took effect.
//!
//! Refuses claims: a feature that a package documents, but that does not work here, is a no with its error.

mod bucket_features;
mod features;
mod trials;

pub(crate) use bucket_features::{BothSides, probe_bucket};
pub(crate) use features::probe_files;
pub(crate) use trials::{TrialLimits, Trials};

use harness::Table;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The result of trying a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the feature.
    pub feature: String,
    /// Whether it works.
    pub verdict: Verdict,
}

/// Whether a feature works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It works. The note has a measured detail and may be empty.
    Yes(String),
    /// It does not, with the error.
    No(String),
}

impl Finding {
    pub(crate) fn of(feature: &str, tried: Result<String, String>) -> Self {
        Self { feature: feature.to_owned(), verdict: tried.map_or_else(Verdict::No, Verdict::Yes) }
    }
}

/// Makes the matrix: a row for each feature, a column for each package.
pub fn matrix(packages: &[(String, Vec<Finding>)]) -> Table {
    let mut features: Vec<&str> = Vec::new();
    for finding in packages.iter().flat_map(|(_, findings)| findings) {
        if !features.contains(&finding.feature.as_str()) {
            features.push(&finding.feature);
        }
    }
    let heads = std::iter::once("feature".to_owned()).chain(packages.iter().map(|(name, _)| name.clone()));
    let row = |feature: &str| {
        let cells = packages.iter().map(|(_, findings)| {
            let found = findings.iter().find(|finding| finding.feature == feature);
            found.map_or_else(|| "–".to_owned(), |finding| finding.verdict.to_string())
        });
        std::iter::once(feature.to_owned()).chain(cells).collect()
    };
    Table {
        title: "Features".to_owned(),
        heads: heads.collect(),
        rows: features.into_iter().map(row).collect(),
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yes(note) if note.is_empty() => write!(f, "yes"),
            Self::Yes(note) => write!(f, "yes: {note}"),
            Self::No(error) => write!(f, "no: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_a_package_was_not_asked_for_has_a_dash() {
        let one = vec![Finding::of("links", Ok(String::new())), Finding::of("locks", Err("EIO".into()))];
        let other = vec![Finding::of("locks", Ok("2 ms".into()))];
        let table = matrix(&[("a".into(), one), ("b".into(), other)]);
        assert_eq!(table.heads, ["feature", "a", "b"]);
        assert_eq!(table.rows, [["links", "yes", "–"], ["locks", "no: EIO", "yes: 2 ms"]]);
    }
}
