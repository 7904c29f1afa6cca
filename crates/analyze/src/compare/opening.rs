//! The first sections of a comparison's page: bars of time and CPU for each workload, then the same numbers as tables.
//!
//! The bars are HTML elements, not an image: on a narrow screen names wrap and bars shrink, while text keeps its size.

use super::Comparison;
use super::rows::{Row, Unit, three_digits};
use super::table::or_dash;
use crate::setup::System;
use crate::workload::Workload;
use harness::format::escape;
use std::fmt::Write;

/// Renders the sections as HTML for [`report::html`](crate::report::html).
pub fn opening(comparison: &Comparison) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<section><h2>Time and CPU</h2><p>Shorter is better. Time is the duration of the run divided by the work done, with many \
         operations in flight; CPU is the server&rsquo;s. A bar shows the median round; its light end reaches to the slowest round. \
         &ldquo;Cold&rdquo;: the server was restarted with an empty page cache. &ldquo;Hot&rdquo;: all objects were read once \
         before and fit into memory. Below a dashed line: systems with four devices, two of them parity.</p>"
    );
    write_legend(comparison, &mut page);
    page.push_str("<div class=\"cards\">");
    comparison.workloads().for_each(|workload| write_card(comparison, workload, &mut page));
    page.push_str("</div></section>");
    write_conditions(comparison, &mut page);
    comparison.workloads().for_each(|workload| write_table(comparison, workload, &mut page));
    write_failures(comparison, &mut page);
    page
}

/// Returns the colour of a system, by the order of systems in the figures below: a system has one colour on the whole page.
fn colour_index(comparison: &Comparison, system: System) -> usize {
    comparison.systems().position(|other| other == system).unwrap_or_default() % 8
}

fn write_legend(comparison: &Comparison, page: &mut String) {
    page.push_str("<ul class=\"legend\">");
    for (index, system) in comparison.systems().enumerate() {
        let _ = write!(page, "<li class=\"c{}\">{}</li>", index % 8, escape(system.title()));
    }
    page.push_str("</ul>");
}

fn write_card(comparison: &Comparison, workload: Workload, page: &mut String) {
    let rows = comparison.rows(workload);
    let Some(first) = rows.first() else { return };
    let scale = workload.scale(&comparison.conditions.scale);
    let _ = write!(
        page,
        "<div class=\"card\"><h3>{workload} <span class=\"badge\">{}</span></h3><p>{}: {}</p><div class=\"pair\">",
        escape(&first.caches_text()),
        escape(workload.about()),
        escape(&scale)
    );
    let unit = first.unit;
    let time = |row: &Row<'_>| Some((row.secs(), row.range.1));
    let cpu = |row: &Row<'_>| row.server_secs().map(|secs| (secs, secs));
    write_bars(comparison, (&rows, &format!("Time per {}", unit.name())), time, |row| row.rate(), page);
    write_bars(comparison, (&rows, &format!("Server CPU per {}", unit.name())), cpu, |_| String::new(), page);
    page.push_str("</div>");
    for failure in comparison.failures.iter().filter(|failure| failure.workload == workload) {
        if !rows.iter().any(|row| row.system == failure.system) {
            let _ = write!(
                page,
                "<p class=\"failed\">{}: no result, it failed</p>",
                escape(failure.system.title())
            );
        }
    }
    page.push_str("</div>");
}

/// Writes a bar for each row. `value` returns the median and the slowest round; `note` a text to show beside the number.
fn write_bars(
    comparison: &Comparison,
    (rows, title): (&[Row<'_>], &str),
    value: impl Fn(&Row<'_>) -> Option<(f64, f64)>,
    note: impl Fn(&Row<'_>) -> String,
    page: &mut String,
) {
    let slowest_rounds = rows.iter().filter_map(&value).map(|(_, slowest)| slowest);
    let max = slowest_rounds.fold(f64::MIN_POSITIVE, f64::max);
    let best = rows.iter().filter_map(&value).map(|(median, _)| median).fold(f64::INFINITY, f64::min);
    let _ = write!(page, "<div class=\"bars\"><h4>{}</h4>", escape(title));
    for row in rows {
        let name = escape(row.system.short());
        let group = if row.system.has_parity() { " parity" } else { "" };
        let Some((median, slowest)) = value(row) else {
            let _ = write!(
                page,
                "<div class=\"row{group}\"><span class=\"name\">{name}</span><span class=\"num\">no result</span></div>"
            );
            continue;
        };
        let (width, rest_width) = (median / max * 100.0, (slowest - median).max(0.0) / max * 100.0);
        let colour = colour_index(comparison, row.system);
        let number = escape(&row.unit.format(median));
        let number = if median <= best { format!("<b>{number}</b>") } else { number };
        let note = note(row);
        let note = if note.is_empty() { note } else { format!(" <small>{}</small>", escape(&note)) };
        let _ = write!(
            page,
            "<div class=\"row{group}\"><span class=\"name\">{name}</span><span class=\"num\">{number}{note}</span>\
             <span class=\"track\"><i style=\"width:{width:.2}%;background:var(--c{colour})\"></i>\
             <i class=\"end\" style=\"width:{rest_width:.2}%;background:var(--c{colour})\"></i></span></div>"
        );
    }
    page.push_str("</div>");
}

fn write_conditions(comparison: &Comparison, page: &mut String) {
    page.push_str("<section><h2>How it was measured</h2><div class=\"scroll\"><table><tbody>");
    for (name, value) in comparison.about() {
        let _ = write!(page, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    page.push_str("</tbody></table></div></section>");
}

const HEADS: [&str; 15] = [
    "system",
    "caches",
    "rate",
    "time",
    "fastest to slowest",
    "rounds",
    "server CPU",
    "other CPU",
    "client CPU",
    "p50, p99, max (ms)",
    "flushes per operation",
    "device bytes read per byte read",
    "device bytes written per byte put",
    "settle (s)",
    "run",
];

fn write_table(comparison: &Comparison, workload: Workload, page: &mut String) {
    let rows = comparison.rows(workload);
    let Some(unit) = rows.first().map(|row| row.unit) else { return };
    let scale = workload.scale(&comparison.conditions.scale);
    let _ = write!(
        page,
        "<section><h2>{workload}</h2><p>{}: {}. Time and CPU are per {}.</p><div class=\"scroll\"><table><thead><tr>",
        escape(workload.about()),
        escape(&scale),
        unit.name()
    );
    HEADS.iter().for_each(|head| {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(head));
    });
    page.push_str("</tr></thead><tbody>");
    for row in &rows {
        let cells = cells(row, unit);
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(row.system.title()));
        for cell in cells {
            let _ = write!(page, "<td class=\"n\">{}</td>", escape(&cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div></section>");
}

fn cells(row: &Row<'_>, unit: Unit) -> [String; 14] {
    let measured = row.measured;
    let latency = measured.done.latency();
    let ms = |share: f64| three_digits(latency.quantile(share).as_secs_f64() * 1e3);
    let secs = |secs: Option<f64>| or_dash(secs, |secs| unit.format(secs));
    let (low, high) = row.range;
    let errors = match measured.done.errors {
        0 => String::new(),
        errors => format!(", {errors} ERRORS"),
    };
    [
        row.caches_text(),
        row.rate(),
        unit.format(row.secs()),
        format!("{} to {}", unit.format(low), unit.format(high)),
        row.rounds.to_string(),
        secs(row.server_secs()),
        secs(row.other_secs()),
        unit.format(row.client_secs()),
        format!("{}, {}, {}", ms(0.5), ms(0.99), ms(1.0)),
        three_digits(measured.io.flushes as f64 / measured.done.operations().max(1) as f64),
        or_dash(row.read_amplification(), three_digits),
        or_dash(row.write_amplification(), three_digits),
        or_dash(measured.settle_secs, three_digits),
        format!("{}{errors}", row.duration()),
    ]
}

fn write_failures(comparison: &Comparison, page: &mut String) {
    if comparison.failures.is_empty() {
        return;
    }
    page.push_str("<section><h2>Failures</h2><ul class=\"failures\">");
    for failure in &comparison.failures {
        let _ = write!(
            page,
            "<li>{} in {}, {}: {}</li>",
            escape(failure.system.title()),
            failure.workload,
            if failure.is_traced { "traced".to_owned() } else { format!("round {}", failure.round + 1) },
            escape(&failure.reason)
        );
    }
    page.push_str("</ul></section>");
}

#[cfg(test)]
mod tests {
    use super::super::rows::tests::comparison;
    use super::*;

    /// A bug: the page began with preformatted text as wide as a terminal.
    #[test]
    fn s573_the_page_opens_with_bars_that_have_numbers() {
        let page = opening(&comparison());
        let (bars, tables) = page.split_once("<table>").unwrap();
        assert!(!page.contains("<pre"), "{page}");
        assert_eq!(bars.matches("class=\"row").count(), bars.matches("class=\"num\">").count());
        // Seven cells, each with its time and its CPU.
        assert_eq!(bars.matches("class=\"row").count(), 14);
        assert!(bars.contains("R-O <span class=\"badge\">cold, 4.0 × memory</span>"), "{bars}");
        assert!(bars.contains("MinIO on ext4: no result, it failed"), "{bars}");
        assert!(tables.contains("<th scope=\"row\">MinIO on XFS</th>"), "{tables}");
        assert!(!page.contains("goal") && !page.contains("NaN"), "{page}");
    }
}
