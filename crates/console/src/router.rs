//! The pages by method and path. Checks the session, the CSRF token and the role before a page other than that for
//! signing in is called.

use crate::application::Application;
use crate::assets;
use crate::pages::visit::Visit;
use crate::pages::{
    batches, buckets, conflicts, deletion, directory, download, drives, error_page, log, metrics, object,
    sign_in, status, upload, users, views,
};
use crate::reply::{self, Failure, Reply};
use crate::request::{Fields, PageRequest};
use crate::session::{CSRF_FIELD, CSRF_HEADER, SignedIn};
use futures_util::FutureExt as _;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Answers a request. A panic becomes an error response.
pub(crate) async fn answer(application: Arc<Application>, request: Request<Incoming>, peer: IpAddr) -> Reply {
    let request = PageRequest::new(request, peer);
    let answered = AssertUnwindSafe(route(application, request)).catch_unwind().await;
    // A broken invariant costs one request, not the connection. The log has the panic's message.
    reply::secure(answered.unwrap_or_else(|_| {
        reply::text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "The console failed to answer this request; the log of the process says why.\n",
        )
    }))
}

/// Answers requests for assets and the sign-in page, and passes others on if they have a session.
async fn route(application: Arc<Application>, request: PageRequest) -> Reply {
    if request.method == Method::GET
        && let Some(asset) = assets::find(&request.path, &request.headers)
    {
        return asset;
    }
    if request.path == "/sign-in" {
        return sign_in::answer(&application, request).await;
    }
    let id = request.cookie(&sign_in::cookie_name(&application, &request)).unwrap_or_default().to_owned();
    let Some(signed_in) = application.session(&id) else { return sign_in::demand(&request) };
    let visit = Visit { application, signed_in, session_id: id, peer: request.peer };
    dispatch(&visit, request).await.unwrap_or_else(|failure| error_page::show(&visit, &failure))
}

/// Checks a request of a user who has signed in, and passes it to its page.
async fn dispatch(visit: &Visit, mut request: PageRequest) -> Result<Reply, Failure> {
    match request.method {
        Method::GET => {
            check_role(&visit.signed_in, &request.path)?;
            show(visit, &request).await
        }
        Method::POST => {
            if !request.is_same_origin() {
                return Err(Failure::new(StatusCode::FORBIDDEN, "The request comes from another site."));
            }
            if request.path == "/upload" {
                check_csrf(visit, request.header(CSRF_HEADER).unwrap_or_default())?;
                return upload::store(visit, request).await;
            }
            let form = request.read_form().await?;
            check_csrf(visit, form.text(CSRF_FIELD))?;
            check_role(&visit.signed_in, &request.path)?;
            change(visit, &request, &form).await
        }
        _ => Err(Failure::new(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are supported.")),
    }
}

/// Refuses a page about the process, or a change of it, that the user's role does not allow. Access to buckets and
/// objects is checked by the endpoint.
fn check_role(signed_in: &SignedIn, path: &str) -> Result<(), Failure> {
    let is_allowed = match path {
        "/users" | "/log" | "/conflicts/resolve" | "/batches/discard" | "/drives/scrub" => {
            signed_in.is_admin()
        }
        "/status" | "/metrics" | "/conflicts" | "/batches" | "/batch" | "/views" | "/views/preview"
        | "/drives" => signed_in.sees_process(),
        _ => true,
    };
    is_allowed.then_some(()).ok_or_else(Failure::forbidden)
}

/// Refuses a request that does not have the token of its session, as the console's own pages do.
fn check_csrf(visit: &Visit, token: &str) -> Result<(), Failure> {
    if visit.signed_in.session.has_csrf(token) {
        return Ok(());
    }
    Err(Failure::new(StatusCode::FORBIDDEN, "The form is no longer valid: load the page again."))
}

/// Answers a GET request.
async fn show(visit: &Visit, request: &PageRequest) -> Result<Reply, Failure> {
    let query = &request.query;
    match request.path.as_str() {
        "/" => Ok(reply::see_other("/buckets")),
        "/buckets" => buckets::show(visit).await,
        "/bucket" => directory::show(visit, query).await,
        "/object" => object::show(visit, request).await,
        "/download" => download::send(visit, request).await,
        "/status" => status::show(visit),
        "/metrics" => metrics::show(visit),
        "/conflicts" => conflicts::show(visit).await,
        "/batches" => batches::show(visit).await,
        "/batch" => batches::show_refused(visit, query).await,
        "/views" => views::show(visit, query).await,
        "/drives" => drives::show(visit),
        "/users" => users::show(visit),
        "/log" => log::show(visit, query).await,
        _ => Err(Failure::not_found()),
    }
}

/// Answers a POST request with a form.
async fn change(visit: &Visit, request: &PageRequest, form: &Fields) -> Result<Reply, Failure> {
    match request.path.as_str() {
        "/sign-out" => Ok(sign_in::sign_out(visit, request)),
        "/buckets/create" => buckets::create(visit, form).await,
        "/buckets/delete" => buckets::delete(visit, form).await,
        "/directories/create" => directory::create(visit, form).await,
        "/delete/confirm" => deletion::confirm(visit, form).await,
        "/delete" => deletion::delete(visit, form).await,
        "/object/tags" => object::set_tags(visit, form).await,
        "/conflicts/resolve" => conflicts::resolve(visit, form).await,
        "/batches/discard" => batches::discard(visit, form).await,
        "/views/preview" => views::preview(visit, form).await,
        "/drives/scrub" => drives::scrub(visit),
        _ => Err(Failure::not_found()),
    }
}
