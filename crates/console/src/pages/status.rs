//! The state of the process.

use crate::display;
use crate::pages::layout::{Page, show_page, tone_class};
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{Failure, Reply};
use maud::html;

/// Interval of updates, in seconds.
const REFRESH_SECS: u32 = 5;

pub(crate) fn show(visit: &Visit) -> Result<Reply, Failure> {
    let sections = visit.process().report();
    let content = html! {
        div.cards {
            @for section in &sections {
                section.card {
                    h2 { (section.title) }
                    dl.facts { @for fact in &section.facts {
                        div {
                            dt { (fact.label) }
                            dd.(tone_class(fact.tone)) {
                                @match fact.tone {
                                    Tone::Warning => span.unseen { "Warning: " },
                                    Tone::Failure => span.unseen { "Failure: " },
                                    Tone::Plain | Tone::Good => {},
                                }
                                (display::name(&fact.value))
                            }
                        }
                    } }
                }
            }
        }
    };
    let refresh_secs = Some(REFRESH_SECS);
    Ok(show_page(visit, Page { title: "Status", entry: "/status", refresh_secs, content }))
}
