//! Plots of the last hour, and all metrics.

use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::plots::{PLOTS, svg};
use crate::reply::{Failure, Reply};
use maud::html;

pub(crate) fn show(visit: &Visit) -> Result<Reply, Failure> {
    let history = &visit.application.history;
    let samples = visit.process().samples();
    let drawn =
        history.read(|series| PLOTS.iter().filter_map(|plot| svg::figure(plot, series)).collect::<Vec<_>>());
    let content = html! {
        @if drawn.is_empty() { p.empty { "The plots begin with the first measurements. This takes some seconds." } }
        div.plots { @for figure in &drawn { (figure) } }
        details {
            summary { "All metrics" }
            div.scroll { table.samples {
                caption { "Values at the moment" }
                thead { tr { th scope="col" { "Metric" } th.number scope="col" { "Value" } } }
                tbody { @for (name, value) in &samples { tr { th.wrap scope="row" { code { (name) } } td.number { (value) } } } }
            } }
        }
    };
    let refresh_secs = Some(visit.application.options.sample_interval.as_secs().clamp(1, 60) as u32);
    Ok(show_page(visit, Page { title: "Metrics", entry: "/metrics", refresh_secs, content }))
}
