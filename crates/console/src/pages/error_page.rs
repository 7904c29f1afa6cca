//! The page of a request that cannot be carried out.

use crate::pages::layout::{Page, show_page_with};
use crate::pages::visit::Visit;
use crate::reply::{Failure, Reply};
use http::StatusCode;
use maud::html;

/// Returns the page that shows a failure, with the failure's status.
pub(crate) fn show(visit: &Visit, failure: &Failure) -> Reply {
    let title = match failure.status {
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        status if status.is_server_error() => "That did not work",
        _ => "That is not possible",
    };
    let content = html! {
        p.notice.failure role="alert" { (failure.message) }
        p { a href="/buckets" { "Go to the buckets" } }
    };
    show_page_with(failure.status, visit, Page { title, entry: "", refresh_secs: None, content })
}
