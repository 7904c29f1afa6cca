//! The list of buckets, and the creation and deletion of buckets.

use crate::display::{self, encode};
use crate::pages::layout::{Page, show_page};
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{Failure, Reply};
use crate::request::Fields;
use maud::html;

/// Shows the buckets that the user may see.
pub(crate) async fn show(visit: &Visit) -> Result<Reply, Failure> {
    let buckets = visit.objects().buckets().await?;
    let is_admin = visit.is_admin();
    let content = html! {
        @if buckets.is_empty() {
            p.empty { "There are no buckets that you may see." }
        } @else {
            div.scroll { table {
                caption { (display::counted(buckets.len() as u64, "bucket")) }
                thead { tr { th scope="col" { "Name" } th scope="col" { "Created (UTC)" } } }
                tbody {
                    @for (name, created) in &buckets {
                        tr {
                            th scope="row" { a href={ "/bucket?name=" (encode(name)) } { bdi { (display::name(name)) } } }
                            td { (display::time(created)) }
                        }
                    }
                }
            } }
        }
        @if is_admin {
            details.tools {
                summary { "Create or delete a bucket" }
                form.row method="post" action="/buckets/create" {
                    (visit.csrf_field())
                    label for="new-bucket" { "New bucket" }
                    input #new-bucket name="name" required minlength="3" maxlength="63" spellcheck="false" autocapitalize="none";
                    button type="submit" { "Create" }
                }
                form.row method="post" action="/buckets/delete" {
                    (visit.csrf_field())
                    label for="old-bucket" { "Empty bucket" }
                    select #old-bucket name="name" required {
                        @for (name, _) in &buckets { option value=(name) { (name) } }
                    }
                    button.danger type="submit" { "Delete" }
                }
            }
        }
    };
    Ok(show_page(visit, Page { title: "Buckets", entry: "/buckets", refresh_secs: None, content }))
}

pub(crate) async fn create(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let name = form.text("name").trim();
    visit.objects().create_bucket(name).await?;
    Ok(visit.redirect("/buckets", Tone::Good, format!("Created the bucket {name}.")))
}

/// Deletes a bucket, which must be empty.
pub(crate) async fn delete(visit: &Visit, form: &Fields) -> Result<Reply, Failure> {
    let name = form.text("name");
    visit.objects().delete_bucket(name).await?;
    Ok(visit.redirect("/buckets", Tone::Good, format!("Deleted the bucket {name}.")))
}
