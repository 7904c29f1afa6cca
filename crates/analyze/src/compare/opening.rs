//! The opening of a comparison's page: bars of time and of CPU for each workload, then the same as tables.
//!
//! Bars are elements of the page, not a picture: on a narrow screen names wrap and bars shrink while text keeps its size.

use super::Comparison;
use super::rows::{Row, Unit, three_digits};
use super::table::or_dash;
use crate::report::escape;
use crate::setup::System;
use crate::workload::Workload;
use std::fmt::Write;

/// The opening, as HTML for [`report::html`](crate::report::html).
pub fn opening(comparison: &Comparison) -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "<section><h2>Time and CPU</h2><p>Shorter is better. Time is that of the whole run divided by what was done, with many \
         operations at once; CPU is the server&rsquo;s. The middle one of the rounds; a light end of a bar reaches to the slowest. \
         &ldquo;Cold&rdquo;: the server was started anew with an empty page cache. &ldquo;Hot&rdquo;: everything was read once \
         before and fits into the memory. Below a dashed line: four devices, of which two hold parity.</p>"
    );
    legend(comparison, &mut page);
    page.push_str("<div class=\"cards\">");
    comparison.workloads().for_each(|workload| card(comparison, workload, &mut page));
    page.push_str("</div></section>");
    about(comparison, &mut page);
    comparison.workloads().for_each(|workload| table(comparison, workload, &mut page));
    failures(comparison, &mut page);
    page
}

/// A system has one colour on the whole page: the order is that of the figures below.
fn class(comparison: &Comparison, system: System) -> usize {
    comparison.systems().position(|other| other == system).unwrap_or_default() % 8
}

fn legend(comparison: &Comparison, page: &mut String) {
    page.push_str("<ul class=\"legend\">");
    for (index, system) in comparison.systems().enumerate() {
        let _ = write!(page, "<li class=\"c{}\">{}</li>", index % 8, escape(system.title()));
    }
    page.push_str("</ul>");
}

fn card(comparison: &Comparison, workload: Workload, page: &mut String) {
    let rows = comparison.rows(workload);
    let Some(first) = rows.first() else { return };
    let scale = workload.scale(&comparison.conditions.scale);
    let _ = write!(
        page,
        "<div class=\"card\"><h3>{workload} <span class=\"badge\">{}</span></h3><p>{}: {}</p><div class=\"pair\">",
        escape(&first.caches()),
        escape(workload.about()),
        escape(&scale)
    );
    let unit = first.unit;
    let time = |row: &Row<'_>| Some((row.secs(), row.range.1));
    let cpu = |row: &Row<'_>| row.server_secs().map(|secs| (secs, secs));
    bars(comparison, (&rows, &format!("Time per {}", unit.name())), time, |row| row.rate(), page);
    bars(comparison, (&rows, &format!("Server CPU per {}", unit.name())), cpu, |_| String::new(), page);
    page.push_str("</div>");
    for failure in comparison.failures.iter().filter(|failure| failure.workload == workload) {
        if !rows.iter().any(|row| row.system == failure.system) {
            let _ = write!(
                page,
                "<p class=\"failed\">{}: no figure, it failed</p>",
                escape(failure.system.title())
            );
        }
    }
    page.push_str("</div>");
}

fn bars(
    comparison: &Comparison,
    (rows, title): (&[Row<'_>], &str),
    value: impl Fn(&Row<'_>) -> Option<(f64, f64)>,
    beside: impl Fn(&Row<'_>) -> String,
    page: &mut String,
) {
    let ends = rows.iter().filter_map(&value).map(|(_, end)| end);
    let most = ends.fold(f64::MIN_POSITIVE, f64::max);
    let best = rows.iter().filter_map(&value).map(|(middle, _)| middle).fold(f64::INFINITY, f64::min);
    let _ = write!(page, "<div class=\"bars\"><h4>{}</h4>", escape(title));
    for row in rows {
        let name = escape(row.system.short());
        let group = if row.system.has_parity() { " parity" } else { "" };
        let Some((middle, end)) = value(row) else {
            let _ = write!(
                page,
                "<div class=\"row{group}\"><span class=\"name\">{name}</span><span class=\"num\">no figure</span></div>"
            );
            continue;
        };
        let (width, further) = (middle / most * 100.0, (end - middle).max(0.0) / most * 100.0);
        let colour = class(comparison, row.system);
        let number = escape(&row.unit.show(middle));
        let number = if middle <= best { format!("<b>{number}</b>") } else { number };
        let more = beside(row);
        let more = if more.is_empty() { more } else { format!(" <small>{}</small>", escape(&more)) };
        let _ = write!(
            page,
            "<div class=\"row{group}\"><span class=\"name\">{name}</span><span class=\"num\">{number}{more}</span>\
             <span class=\"track\"><i style=\"width:{width:.2}%;background:var(--c{colour})\"></i>\
             <i class=\"end\" style=\"width:{further:.2}%;background:var(--c{colour})\"></i></span></div>"
        );
    }
    page.push_str("</div>");
}

fn about(comparison: &Comparison, page: &mut String) {
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
    "p50, p99, most (ms)",
    "flushes per operation",
    "device reads per byte read",
    "device writes per byte written",
    "settle (s)",
    "run",
];

fn table(comparison: &Comparison, workload: Workload, page: &mut String) {
    let rows = comparison.rows(workload);
    let Some(unit) = rows.first().map(|row| row.unit) else { return };
    let scale = workload.scale(&comparison.conditions.scale);
    let _ = write!(
        page,
        "<section><h2>{workload}</h2><p>{}: {}. Time and CPU are for each {}.</p><div class=\"scroll\"><table><thead><tr>",
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
    let secs = |secs: Option<f64>| or_dash(secs, |secs| unit.show(secs));
    let (low, high) = row.range;
    let errors = match measured.done.errors {
        0 => String::new(),
        errors => format!(", {errors} ERRORS"),
    };
    [
        row.caches(),
        row.rate(),
        unit.show(row.secs()),
        format!("{} to {}", unit.show(low), unit.show(high)),
        row.rounds.to_string(),
        secs(row.server_secs()),
        secs(row.other_secs()),
        unit.show(row.client_secs()),
        format!("{}, {}, {}", ms(0.5), ms(0.99), ms(1.0)),
        three_digits(measured.io.flushes as f64 / measured.done.operations().max(1) as f64),
        or_dash(row.read_share(), three_digits),
        or_dash(row.written_share(), three_digits),
        or_dash(measured.settle_secs, three_digits),
        format!("{}{errors}", row.length()),
    ]
}

fn failures(comparison: &Comparison, page: &mut String) {
    if comparison.failures.is_empty() {
        return;
    }
    page.push_str("<section><h2>What failed</h2><ul class=\"failures\">");
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

    /// The page began with a wall of text as wide as a terminal.
    #[test]
    fn s573_the_page_opens_with_bars_that_have_numbers() {
        let page = opening(&comparison());
        let (bars, tables) = page.split_once("<table>").unwrap();
        assert!(!page.contains("<pre"), "{page}");
        assert_eq!(bars.matches("class=\"row").count(), bars.matches("class=\"num\">").count());
        // Seven cells, each with its time and its CPU.
        assert_eq!(bars.matches("class=\"row").count(), 14);
        assert!(bars.contains("R-O <span class=\"badge\">cold, 4.0 × memory</span>"), "{bars}");
        assert!(bars.contains("MinIO on ext4: no figure, it failed"), "{bars}");
        assert!(tables.contains("<th scope=\"row\">MinIO on XFS</th>"), "{tables}");
        assert!(!page.contains("goal") && !page.contains("NaN"), "{page}");
    }
}
