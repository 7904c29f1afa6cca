//! The frame of all pages: head, navigation, user, notice.

use crate::display;
use crate::pages::visit::Visit;
use crate::process::Tone;
use crate::reply::{self, Reply};
use crate::session::Notice;
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};
use s3::Role;

/// A page inside of the frame.
pub(crate) struct Page<'a> {
    /// Title, which is the heading too.
    pub(crate) title: &'a str,
    /// Path of the entry in the navigation that the page belongs to.
    pub(crate) entry: &'static str,
    /// Interval after which the script loads the contents again, in seconds; `None` for a page that stays as it is.
    pub(crate) refresh_secs: Option<u32>,
    pub(crate) content: Markup,
}

/// Returns a page with status 200, and with the notice of the last change.
pub(crate) fn show_page(visit: &Visit, page: Page<'_>) -> Reply {
    show_page_with(StatusCode::OK, visit, page)
}

/// Returns a page with a status, and with the notice of the last change.
pub(crate) fn show_page_with(status: StatusCode, visit: &Visit, page: Page<'_>) -> Reply {
    let notice = visit.application.sessions.take_notice(&visit.session_id);
    reply::page(status, render(visit, page, notice.as_ref()))
}

/// Returns a whole page for a user who has signed in.
fn render(visit: &Visit, page: Page<'_>, notice: Option<&Notice>) -> Markup {
    let csrf = &visit.signed_in.session.csrf;
    let user = visit.signed_in.session.identity.access_key();
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(page.title, Some(csrf)))
            body {
                a.skip href="#main" { "Skip to the content" }
                header.bar {
                    a.brand href="/buckets" { img src="/assets/icon.svg" alt="" width="20" height="20"; "Tenon" }
                    span.volume title="What this process serves" { (display::name(&visit.process().name())) }
                    form.user method="post" action="/sign-out" {
                        (visit.csrf_field())
                        span { bdi { (user) } " " span.role { (role_name(visit.signed_in.role)) } }
                        button.quiet type="submit" { "Sign out" }
                    }
                }
                nav.pages aria-label="Pages" { ul {
                    @for (path, title) in entries(visit) {
                        li { a href=(path) aria-current=[(path == page.entry).then_some("page")] { (title) } }
                    }
                } }
                main #main tabindex="-1" data-refresh=[page.refresh_secs] {
                    h1 { (page.title) }
                    @if let Some(notice) = notice {
                        p.notice.(tone_class(notice.tone)) role="status" { (notice.text) }
                    }
                    (page.content)
                }
            }
        }
    }
}

/// Returns the `head` element of a page. The script takes the CSRF token from it.
pub(crate) fn head(title: &str, csrf: Option<&str>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            @if let Some(csrf) = csrf { meta name="csrf" content=(csrf); }
            title { (title) " – Tenon" }
            link rel="stylesheet" href="/assets/console.css";
            link rel="icon" type="image/svg+xml" href="/assets/icon.svg";
            script src="/assets/console.js" defer {}
        }
    }
}

/// Returns the entries of the navigation that a user sees: path and title, in order.
fn entries(visit: &Visit) -> impl Iterator<Item = (&'static str, &'static str)> {
    let abilities = visit.process().abilities();
    let (sees_process, is_admin) = (visit.signed_in.sees_process(), visit.is_admin());
    [
        ("/buckets", "Buckets", true),
        ("/status", "Status", sees_process),
        ("/metrics", "Metrics", sees_process),
        ("/conflicts", "Conflicts", sees_process && abilities.files),
        ("/batches", "Batches", sees_process && abilities.mounted),
        ("/views", "Views", sees_process),
        ("/drives", "Drives", sees_process && abilities.drives),
        ("/users", "Users", is_admin),
        ("/log", "Log", is_admin),
    ]
    .into_iter()
    .filter(|(_, _, is_seen)| *is_seen)
    .map(|(path, title, _)| (path, title))
}

/// Returns the name of a role, as in the users file.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::ReadWrite => "read-write",
        Role::ReadOnly => "read-only",
        Role::PolicyOnly => "policy-only",
    }
}

/// Returns the style class of a tone.
pub(crate) fn tone_class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Warning => "warning",
        Tone::Failure => "failure",
    }
}

/// Returns a list of labels and values.
pub(crate) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, String)>) -> Markup {
    html! {
        dl.facts {
            @for (label, value) in facts { div { dt { (label) } dd { (value) } } }
        }
    }
}
