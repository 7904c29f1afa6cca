//! Responses, with the headers that all of them have.

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use maud::Markup;
use s3::Body;

/// Content security policy of pages: they load only files of the console, cannot be framed, and send forms only to it.
const CONTENT_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of every response that does not set them to other values.
const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-store"),
];

/// A response of the console.
pub(crate) type Reply = Response<Body>;

/// The failure of a request: a status, and a text for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Returns the failure of a request that the user's role does not allow.
    pub(crate) fn forbidden() -> Self {
        Self::new(StatusCode::FORBIDDEN, "Your role does not allow this.")
    }

    /// Returns the failure of a request for a path that is not that of a page.
    pub(crate) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "There is no such page.")
    }

    /// Returns the failure of an operation of the process, whose reason is one line.
    pub(crate) fn refused(reason: String) -> Self {
        Self::new(StatusCode::CONFLICT, reason)
    }
}

/// Returns a page as HTML.
pub(crate) fn page(status: StatusCode, markup: Markup) -> Reply {
    content(status, "text/html; charset=utf-8", markup.into_string().into())
}

/// Returns a short text without a page around it.
pub(crate) fn text(status: StatusCode, text: impl Into<String>) -> Reply {
    content(status, "text/plain; charset=utf-8", text.into().into())
}

/// Returns an asset. Browsers keep it, and ask at each use whether it has changed, so that they never use that of an older
/// version.
pub(crate) fn asset(content_type: &'static str, text: &'static str) -> Reply {
    revalidated(content(StatusCode::OK, content_type, Bytes::from_static(text.as_bytes())))
}

/// Returns the response (304) to a request for an asset that the browser has.
pub(crate) fn not_modified() -> Reply {
    let mut reply = Response::new(Full::default().map_err(|never| match never {}).boxed_unsync());
    *reply.status_mut() = StatusCode::NOT_MODIFIED;
    revalidated(reply)
}

/// Lets browsers keep a response, and ask at each use whether it has changed.
fn revalidated(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

/// Returns a redirection (303): the browser gets the page at `location` next.
pub(crate) fn see_other(location: &str) -> Reply {
    let mut reply = text(StatusCode::SEE_OTHER, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply
}

fn content(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Reply {
    let length = bytes.len();
    let body = Full::from(bytes).map_err(|never| match never {}).boxed_unsync();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    reply
}

/// Adds the headers of [`HEADERS`], unless the response has them with other values.
pub(crate) fn secure(mut reply: Reply) -> Reply {
    for (name, value) in HEADERS {
        reply.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    reply
}
