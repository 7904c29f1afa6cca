//! The users of the endpoint. Secrets are never shown.

use crate::display;
use crate::pages::layout::{Page, role_name, show_page};
use crate::pages::visit::Visit;
use crate::reply::{Failure, Reply};
use maud::html;

/// Shows the users with their roles and buckets.
pub(crate) fn show(visit: &Visit) -> Result<Reply, Failure> {
    let users = visit.application.endpoint.users().all();
    let content = html! {
        p.hint { "Users are changed in the users file, which is read again when it changes. Secrets are not shown." }
        div.scroll { table {
            caption { (display::counted(users.len() as u64, "user")) }
            thead { tr { th scope="col" { "Access key" } th scope="col" { "Role" } th scope="col" { "Own buckets" } } }
            tbody { @for user in &users { tr {
                th scope="row" { code { (user.access_key) } }
                td { (role_name(user.role)) }
                td.wrap { (user.buckets.join(", ")) }
            } } }
        } }
    };
    Ok(show_page(visit, Page { title: "Users", entry: "/users", refresh_secs: None, content }))
}
