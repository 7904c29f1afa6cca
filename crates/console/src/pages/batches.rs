//! Batches, their refused changes, and discarding them.

use crate::display::{self, encode};
use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::process::{Batch, Tone};
use crate::reply::{Failure, Reply};
use crate::request::Fields;
use maud::{Markup, html};

/// Shows the batches.
pub(crate) async fn show(visit: &Visit) -> Result<Reply, Failure> {
    let batches = visit.process().batches().await.map_err(Failure::refused)?;
    let content = html! {
        p.hint { "A batch collects the changes of a job in one directory, and adds them all at once at its end." }
        @if batches.is_empty() {
            p.empty { "There are no batches." }
        } @else {
            div.scroll { table {
                caption { (display::counted_with_plural(batches.len() as u64, "batch", "batches")) }
                thead { tr {
                    th scope="col" { "Directory" } th scope="col" { "State" } th scope="col" { "Began" }
                    th.number scope="col" { "Changes" } th.number scope="col" { "Refused" }
                    @if visit.is_admin() { th scope="col" { span.unseen { "Actions" } } }
                } }
                tbody { @for batch in &batches { (row(visit, batch)) } }
            } }
        }
    };
    Ok(show_page(visit, Page { title: "Batches", entry: "/batches", refresh_secs: Some(5), content }))
}

/// Returns the row of a batch, for admins with the form that discards or forgets it.
fn row(visit: &Visit, batch: &Batch) -> Markup {
    let is_over = matches!(batch.state.as_str(), "merged" | "expired");
    html! {
        tr {
            th.name scope="row" { bdi { @match &batch.path { Some(path) => { "/" (display::name(path)) }, None => "(gone)" } } br; code { (batch.id) } }
            td { (batch.state) }
            td.time { (display::time(&batch.began)) }
            td.number { (display::count(batch.changes)) }
            td.number { @if batch.refused > 0 { a href={ "/batch?id=" (encode(&batch.id)) } { (display::count(batch.refused)) } } @else { "0" } }
            @if visit.is_admin() {
                td { details {
                    summary { @if is_over { "Forget…" } @else { "Discard…" } }
                    form method="post" action="/batches/discard" {
                        (visit.csrf_field())
                        input type="hidden" name="id" value=(batch.id);
                        p { @if is_over { "Its refused changes are forgotten." } @else { "All its changes are lost." } }
                        button.danger type="submit" { @if is_over { "Forget" } @else { "Discard" } }
                    }
                } }
            }
        }
    }
}

/// Shows a page of the refused changes of a merged batch.
pub(crate) async fn show_refused(visit: &Visit, query: &Fields) -> Result<Reply, Failure> {
    let (id, from) = (query.text("id"), query.text("from").parse().unwrap_or(0));
    let refused = visit.process().refused_changes(id, from).await.map_err(Failure::refused)?;
    let next = refused.last().map(|last| last.index + 1);
    let content = html! {
        p { a href="/batches" { "All batches" } }
        @if refused.is_empty() {
            p.empty { "There are no further refused changes." }
        } @else {
            div.scroll { table {
                caption { "Changes that the merge refused" }
                thead { tr { th.number scope="col" { "Number" } th scope="col" { "Change" } th scope="col" { "Reason" } th scope="col" { "Bytes kept as" } } }
                tbody { @for change in &refused { tr {
                    td.number { (change.index) }
                    th.wrap scope="row" { (display::name(&change.change)) }
                    td.wrap { (display::name(&change.reason)) }
                    td.wrap { @if let Some(path) = &change.kept_as { "/" (display::name(path)) } }
                } } }
            } }
            @if let Some(next) = next { nav.paging aria-label="More refused changes" { a rel="next" href={ "/batch?id=" (encode(id)) "&from=" (next) } { "Next page" } } }
        }
    };
    Ok(show_page(visit, Page { title: "Refused changes", entry: "/batches", refresh_secs: None, content }))
}

/// Discards an open batch with its changes, or forgets a merged one.
pub(crate) async fn discard(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    visit.process().discard_batch(form.text("id")).await.map_err(Failure::refused)?;
    Ok(visit.redirect("/batches", Tone::Good, "Removed the batch."))
}
