//! Conflicts, and their resolution.

use crate::display;
use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::process::{Conflict, Keep, Side, Tone};
use crate::reply::{Failure, Reply};
use crate::request::Fields;
use maud::{Markup, html};

/// Buttons of a conflict: value in the form, label, and the side that gets the name.
const CHOICES: [(&str, &str, Keep); 3] = [
    ("file", "Keep the file", Keep::File),
    ("bucket", "Keep the bucket’s", Keep::Bucket),
    ("both", "Keep both", Keep::Both),
];

pub(crate) async fn show(visit: &Visit) -> Result<Reply, Failure> {
    let conflicts = visit.process().conflicts().await;
    let content = html! {
        p.hint { "A conflict is a file that was changed here and, at the same time, in the bucket. What is kept of both sides is shown below, and stays until you choose." }
        @if conflicts.is_empty() {
            p.empty { "There are no conflicts." }
        }
        @for conflict in &conflicts { (card(visit, conflict)) }
    };
    Ok(show_page(visit, Page { title: "Conflicts", entry: "/conflicts", refresh_secs: None, content }))
}

/// Returns the section of a conflict, for admins with the buttons that resolve it.
fn card(visit: &Visit, conflict: &Conflict) -> Markup {
    html! {
        section.card aria-label={ "Conflict of " (display::name(&conflict.path)) } {
            h2 { bdi { "/" (display::name(&conflict.path)) } @if conflict.blocks { " " span.badge.warning { "blocks writes" } } }
            dl.facts {
                div { dt { "Found" } dd { (display::time(&conflict.at)) " UTC, policy " (conflict.policy) } }
                div { dt { "Here" } dd { (side(conflict.file.as_ref(), "replaced since"))
                    @if !conflict.all_bytes_kept { " " span.badge.warning { "incomplete" } } } }
                div { dt { "In the bucket" } dd { (side(conflict.bucket.as_ref(), "deleted")) } }
            }
            @if visit.is_admin() {
                form.row method="post" action="/conflicts/resolve" {
                    (visit.csrf_field())
                    input type="hidden" name="id" value=(conflict.id);
                    @for (value, label, _) in CHOICES { button type="submit" name="keep" value=(value) { (label) } }
                }
            }
        }
    }
}

/// Returns where one side is kept, or `absent` if it is not kept.
fn side(side: Option<&Side>, absent: &str) -> Markup {
    html! {
        @match side {
            Some(side) => { code.wrap { (display::name(&side.key)) } ", etag " code { (side.etag) } },
            None => (absent),
        }
    }
}

/// Resolves a conflict as the button says.
pub(crate) async fn resolve(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let choice = CHOICES.iter().find(|(value, ..)| *value == form.text("keep"));
    let (_, label, keep) = choice.ok_or_else(|| Failure::bad_request("Choose which side to keep."))?;
    visit.process().resolve_conflict(form.text("id"), *keep).await.map_err(Failure::refused)?;
    Ok(visit.redirect("/conflicts", Tone::Good, format!("Resolved: {}.", label.to_lowercase())))
}
