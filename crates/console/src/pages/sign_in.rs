//! Signing in and out.

use crate::application::Application;
use crate::display;
use crate::pages::layout;
use crate::pages::visit::Visit;
use crate::reply::{self, Failure, Reply};
use crate::request::{Fields, PageRequest};
use http::header::{HOST, HeaderValue, SET_COOKIE};
use http::{Method, StatusCode};
use maud::{DOCTYPE, Markup, html};

/// Maximum length of the path and query of the page to go to after signing in, in bytes.
const NEXT_BYTES_MAX: usize = 8 << 10;

/// Answers a request for the sign-in page, or one with its form.
pub(crate) async fn answer(application: &Application, mut request: PageRequest) -> Reply {
    match request.method {
        Method::GET => show(StatusCode::OK, request.query.text("next"), None),
        Method::POST if !request.is_same_origin() => {
            reply::text(StatusCode::FORBIDDEN, "The request comes from another site.\n")
        }
        Method::POST => match request.read_form().await {
            Ok(form) => sign_in(application, &request, &form),
            Err(Failure { status, message }) => reply::text(status, message),
        },
        _ => reply::text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are supported.\n"),
    }
}

/// Begins a session if the form has the access key and the secret key of a user.
fn sign_in(application: &Application, request: &PageRequest, form: &Fields) -> Reply {
    let (key, secret, next) = (form.text("access_key").trim(), form.text("secret_key"), form.text("next"));
    let now = application.clock.monotonic();
    if let Some(wait) = application.sign_in_limit.begin_attempt(request.peer, now) {
        tracing::warn!(peer = %request.peer, "an attempt to sign in to the console was refused: too many attempts from its address have failed");
        let message = format!("Too many attempts. Try again in {}.", display::duration(wait));
        return show(StatusCode::TOO_MANY_REQUESTS, next, Some(&message));
    }
    let Some(identity) = application.endpoint.identify(key, secret) else {
        tracing::warn!(peer = %request.peer, access_key = ?key, "an attempt to sign in to the console failed");
        return show(StatusCode::UNAUTHORIZED, next, Some("The access key or the secret key is wrong."));
    };
    application.sign_in_limit.note_success(request.peer);
    tracing::info!(peer = %request.peer, access_key = ?key, "signed in to the console");
    let id = application.sessions.begin(identity);
    let mut reply = reply::see_other(local_path(next));
    set_cookie(&mut reply, application, request, &id);
    reply
}

/// Ends the session of a user, and removes its cookie.
pub(crate) fn sign_out(visit: &Visit, request: &PageRequest) -> Reply {
    visit.application.sessions.end(&visit.session_id);
    let mut reply = reply::see_other("/sign-in");
    set_cookie(&mut reply, &visit.application, request, "");
    reply
}

/// Answers a request without a session: a GET is redirected to the sign-in page, and every other request is refused.
pub(crate) fn demand(request: &PageRequest) -> Reply {
    if request.method != Method::GET {
        return reply::text(StatusCode::UNAUTHORIZED, "Sign in first.\n");
    }
    let next = local_path(&request.target);
    match next {
        "/" => reply::see_other("/sign-in"),
        next => reply::see_other(&format!("/sign-in?next={}", display::encode(next))),
    }
}

/// Returns the name of the cookie with the session's id. It contains the port, since browsers share cookies between the
/// ports of a host.
pub(crate) fn cookie_name(application: &Application, request: &PageRequest) -> String {
    let host = request.header(HOST).unwrap_or_default();
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    let port: String = port.chars().filter(char::is_ascii_digit).take(5).collect();
    let prefix = if application.is_tls { "__Host-" } else { "" };
    format!("{prefix}tenon-console-{port}")
}

/// Sets the cookie with the session's id; removes the cookie if the id is empty.
fn set_cookie(reply: &mut Reply, application: &Application, request: &PageRequest, id: &str) {
    let name = cookie_name(application, request);
    let secure = if application.is_tls { "; Secure" } else { "" };
    let age = if id.is_empty() { "; Max-Age=0" } else { "" };
    let cookie = format!("{name}={id}; Path=/; HttpOnly; SameSite=Strict{secure}{age}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        reply.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// Returns a path of this console as it is; `/` for every other URL, and for a path that is too long.
fn local_path(next: &str) -> &str {
    let is_local = next.starts_with('/')
        && !next.starts_with("//")
        && next.len() <= NEXT_BYTES_MAX
        && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_local { next } else { "/" }
}

/// Returns the sign-in page. `next` is the page to go to after signing in.
fn show(status: StatusCode, next: &str, failure: Option<&str>) -> Reply {
    reply::page(status, form(local_path(next), failure))
}

fn form(next: &str, failure: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (layout::head("Sign in", None))
            body.alone {
                main #main {
                    form.card.sign-in method="post" action="/sign-in" {
                        h1 { img src="/assets/icon.svg" alt="" width="28" height="28"; "Tenon" }
                        @if let Some(failure) = failure { p.notice.failure role="alert" { (failure) } }
                        label for="access_key" { "Access key" }
                        input #access_key name="access_key" autocomplete="username" autocapitalize="none" spellcheck="false" required autofocus;
                        label for="secret_key" { "Secret key" }
                        input #secret_key name="secret_key" type="password" autocomplete="current-password" required;
                        input type="hidden" name="next" value=(next);
                        button.primary type="submit" { "Sign in" }
                        p.hint { "Use a key of the endpoint’s users file." }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s743_signing_in_leads_to_no_other_site() {
        for (next, expected) in [
            ("/bucket?name=a&prefix=b%2F", "/bucket?name=a&prefix=b%2F"),
            ("//example.com", "/"),
            ("/\\example.com", "/"),
            ("https://example.com/", "/"),
            ("/a\r\nSet-Cookie: x", "/"),
            ("", "/"),
        ] {
            assert_eq!(local_path(next), expected, "{next:?}");
        }
    }
}
