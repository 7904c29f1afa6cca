//! Figures of the last hour as plots.

pub(crate) mod history;
pub(crate) mod svg;

/// A plot: its title and the samples that it shows.
#[derive(Debug)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
    pub(crate) kind: Kind,
    /// The metrics whose samples are shown, each with the rule by which its samples become series.
    pub(crate) samples: &'static [(&'static str, Grouping)],
}

/// The rule by which the samples of a metric become series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// One series for each value of a label.
    Label(&'static str),
    /// One series of this name, the sum of all samples.
    Name(&'static str),
}

/// The figure of a sample that a plot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The increase of the sample, a counter, per second.
    Rate,
    /// The value of the sample.
    Level,
}

/// The unit of the figures of a plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    BytesPerSecond,
    Bytes,
    Seconds,
    Count,
    /// Processors in use.
    Processors,
}

/// The plots, in the order of the page. A plot without samples is not shown.
pub(crate) static PLOTS: &[Plot] = &[
    rate("S3 requests", Unit::PerSecond, &[("tenon_s3_requests_total", Grouping::Label("operation"))]),
    rate(
        "S3 responses by status",
        Unit::PerSecond,
        &[("tenon_s3_requests_total", Grouping::Label("status"))],
    ),
    rate(
        "S3 transfer",
        Unit::BytesPerSecond,
        &[
            ("tenon_s3_received_bytes_total", Grouping::Name("received")),
            ("tenon_s3_sent_bytes_total", Grouping::Name("sent")),
        ],
    ),
    rate(
        "File operations",
        Unit::PerSecond,
        &[("tenon_fuse_operations_total", Grouping::Label("operation"))],
    ),
    rate(
        "File transfer",
        Unit::BytesPerSecond,
        &[
            ("tenon_fuse_read_bytes_total", Grouping::Name("read")),
            ("tenon_fuse_written_bytes_total", Grouping::Name("written")),
        ],
    ),
    rate("Store requests", Unit::PerSecond, &[("tenon_store_requests_total", Grouping::Label("operation"))]),
    rate("Store outcomes", Unit::PerSecond, &[("tenon_store_requests_total", Grouping::Label("outcome"))]),
    rate(
        "Store transfer",
        Unit::BytesPerSecond,
        &[
            ("tenon_store_received_bytes_total", Grouping::Name("received")),
            ("tenon_store_sent_bytes_total", Grouping::Name("sent")),
        ],
    ),
    rate(
        "Read cache",
        Unit::BytesPerSecond,
        &[
            ("tenon_read_cache_hit_bytes_total", Grouping::Name("in memory")),
            ("tenon_read_cache_missed_bytes_total", Grouping::Name("from the store")),
        ],
    ),
    level(
        "Memory",
        Unit::Bytes,
        &[
            ("process_resident_memory_bytes", Grouping::Name("resident")),
            ("tenon_memory_bytes", Grouping::Label("owner")),
        ],
    ),
    level("Write-back log", Unit::Bytes, &[("tenon_writeback_bytes", Grouping::Name("waiting"))]),
    level(
        "Background work",
        Unit::Count,
        &[
            ("tenon_renames_unfinished", Grouping::Name("renames")),
            ("tenon_exports_waiting", Grouping::Name("attributes")),
            ("tenon_discards_waiting", Grouping::Name("deletions")),
            ("tenon_conflicts", Grouping::Name("conflicts")),
        ],
    ),
    level("Age of the backup", Unit::Seconds, &[("tenon_backup_age_seconds", Grouping::Name("backup"))]),
    level("Free space of drives", Unit::Bytes, &[("tenon_drive_available_bytes", Grouping::Label("drive"))]),
    rate("Processors", Unit::Processors, &[("process_cpu_seconds_total", Grouping::Name("in use"))]),
];

/// Returns a plot of the increase of counters per second.
const fn rate(title: &'static str, unit: Unit, samples: &'static [(&'static str, Grouping)]) -> Plot {
    Plot { title, unit, kind: Kind::Rate, samples }
}

/// Returns a plot of values as they are.
const fn level(title: &'static str, unit: Unit, samples: &'static [(&'static str, Grouping)]) -> Plot {
    Plot { title, unit, kind: Kind::Level, samples }
}
