//! A request on its way through the endpoint.
//!
//! Each stage is a type that only the stage before makes, so that no stage can be skipped:
//!
//! [`Received`] → [`Addressed`]: what the request names, refused if that is nothing the endpoint has →
//! [`Authenticated`]: whose signature it bears → [`Admitted`]: it holds a slot → [`Authorized`]: every permission of its
//! operation was found → its response.
//!
//! Invariants: no body is read before the request is authorized, except the forms whose signature is in the body; these
//! are read within the limits for such bodies. `s3s` runs the operation that was authorized, on the authorized target.

mod addressed;
mod authenticated;
mod authorized;
#[cfg(test)]
mod tests;

use http::Response;
use s3s::{Body, S3Error};

use crate::response::error_response;

pub(crate) use addressed::{Addressed, Received};
use authenticated::{Admitted, Authenticated};
pub(crate) use authorized::Confirmation;

/// The refusal of a request: an error, or a response that `s3s` made of one.
#[derive(Debug)]
pub(crate) enum Refusal {
    Error(S3Error),
    Response(Box<Response<Body>>),
}

impl Refusal {
    pub(crate) fn into_response(self) -> Response<Body> {
        match self {
            Self::Error(error) => error_response(error),
            Self::Response(response) => *response,
        }
    }
}

impl From<S3Error> for Refusal {
    fn from(error: S3Error) -> Self {
        Self::Error(error)
    }
}

impl From<Box<Response<Body>>> for Refusal {
    fn from(response: Box<Response<Body>>) -> Self {
        Self::Response(response)
    }
}
