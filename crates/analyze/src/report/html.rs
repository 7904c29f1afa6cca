//! The HTML report: a self-contained page without scripts, fonts or images from elsewhere.

use super::figures::{Figure, Panel, figures};
use super::tables::tables;
use crate::model::SystemResult;
use harness::format::escape;
use harness::page;
use std::fmt::Write;

/// Renders the page: `opening` (HTML, may be empty), Figures 2 to 6 for the compared systems, and the numbers as tables.
pub fn html(systems: &[SystemResult], opening: &str) -> String {
    let names: Vec<String> = systems.iter().map(|system| escape(&system.system)).collect();
    let mut page = "<h1>I/O of storage nodes, layer by layer</h1>".to_owned();
    page.push_str(opening);
    let _ = write!(
        page,
        "<p class=\"source\">{}. Figures after &ldquo;Learnings from an Under the Hood Analysis of an Object Storage Node IO \
         Stack&rdquo; (Mishra, Pitchumani, Kee), drawn by <code>tenon analyze</code> from the kernel's tracepoints. Every metric \
         names its source. A metric that approximates another quantity is called a proxy for it; a metric that this kernel does not \
         provide is shown as not available.</p>",
        names.join(", ")
    );
    for figure in figures(systems) {
        draw_figure(&mut page, &figure);
    }
    for table in tables(systems) {
        page.push_str(&table.to_html());
    }
    page::page("tenon analyze", &page)
}

fn draw_figure(page: &mut String, figure: &Figure) {
    let _ = write!(page, "<section><h2>{}</h2><figure>", escape(&figure.title));
    if figure.legend.len() > 1 {
        page.push_str("<ul class=\"legend\">");
        for (class, name) in &figure.legend {
            let _ = write!(page, "<li class=\"{class}\">{}</li>", escape(name));
        }
        page.push_str("</ul>");
    }
    page.push_str("<div class=\"panels\">");
    for Panel { title, svg, is_wide } in &figure.panels {
        let class = if *is_wide { " class=\"wide\"" } else { "" };
        let _ = write!(page, "<div{class}><h3>{}</h3>{svg}</div>", escape(title));
    }
    let _ = write!(page, "</div><figcaption>{}</figcaption></figure></section>", escape(&figure.caption));
}
