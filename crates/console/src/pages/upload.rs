//! Uploads: one request of the script for each file, whose body is the file.

use crate::objects::upload::NewObject;
use crate::pages::visit::Visit;
use crate::reply::{self, Failure, Reply};
use crate::request::PageRequest;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;

/// Stores the body of a request as an object. The response is a text for the script.
pub(crate) async fn store(visit: &Visit, mut request: PageRequest) -> Result<Reply, Failure> {
    let length = request.content_length();
    let size_bytes =
        length.ok_or_else(|| Failure::new(StatusCode::LENGTH_REQUIRED, "The upload has no length."))?;
    let body = request.take_body().ok_or_else(|| Failure::bad_request("The upload has no body."))?;
    let object = NewObject {
        bucket: request.query.text("bucket"),
        key: request.query.text("key"),
        content_type: request.headers.get(CONTENT_TYPE).cloned(),
        size_bytes,
        replaces: request.query.text("replace") == "true",
    };
    let body = body.map_err(Into::into).boxed_unsync();
    let stored = visit.objects().upload(&object, body, visit.application.options.part_bytes).await;
    Ok(match stored {
        Ok(()) => reply::text(StatusCode::OK, "stored\n"),
        Err(failure) if failure.status == StatusCode::PRECONDITION_FAILED => reply::text(
            failure.status,
            "An object of this name exists. Choose “Replace existing objects” to replace it.",
        ),
        Err(failure) => reply::text(failure.status, failure.message),
    })
}
