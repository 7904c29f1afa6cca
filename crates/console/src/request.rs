//! A request to the console, parsed.

use crate::reply::Failure;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, HeaderMap, ORIGIN};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use std::net::IpAddr;
use std::time::Duration;

/// Maximum length of a form, in bytes.
const FORM_BYTES_MAX: usize = 4 << 20;

/// Timeout for a form to arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(60);

/// The fields of a query or a form, decoded, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    fn parse(text: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(text).into_owned().collect())
    }

    /// Returns the first value of a field; empty if there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.all(name).next().unwrap_or_default()
    }

    /// Returns the first value of a field, unless it is empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        Some(self.text(name)).filter(|value| !value.is_empty())
    }

    /// Returns all values of a field.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the keys in a field of a form. Forms carry keys percent-encoded, as browsers change line breaks in values.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        self.all(name).map(decode).collect()
    }
}

/// Decodes a percent-encoded key or prefix of keys. Bytes that are not UTF-8 are replaced.
pub(crate) fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A request: its head, and its body as long as that is not read.
#[derive(Debug)]
pub(crate) struct PageRequest {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Path and query, as received.
    pub(crate) target: String,
    pub(crate) query: Fields,
    pub(crate) headers: HeaderMap,
    /// Address of the browser, or of a proxy before the console.
    pub(crate) peer: IpAddr,
    /// `None` once the body has been taken or read.
    body: Option<Incoming>,
}

impl PageRequest {
    pub(crate) fn new(request: Request<Incoming>, peer: IpAddr) -> Self {
        let (head, body) = request.into_parts();
        Self {
            method: head.method,
            path: head.uri.path().to_owned(),
            target: head.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            query: Fields::parse(head.uri.query().unwrap_or_default().as_bytes()),
            headers: head.headers,
            peer,
            body: Some(body),
        }
    }

    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the value of a cookie; `None` if the request does not have it.
    pub(crate) fn cookie(&self, name: &str) -> Option<&str> {
        let lines = self.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(cookie, _)| *cookie == name).map(|(_, value)| value)
    }

    /// Returns whether the request may come from a page of this console: false if the browser says that it comes from
    /// elsewhere, and true if the browser says nothing.
    pub(crate) fn is_same_origin(&self) -> bool {
        if self.header("sec-fetch-site").is_some_and(|site| site != "same-origin") {
            return false;
        }
        let Some(origin) = self.headers.get(ORIGIN) else { return true };
        let host = self.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        origin.to_str().ok().and_then(|origin| origin.split_once("://")).is_some_and(|(_, from)| from == host)
    }

    /// Returns the length that the head declares for the body; `None` if it declares none.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.header(CONTENT_LENGTH)?.parse().ok()
    }

    /// Takes the body, for a page that streams it; `None` if it was taken or read before.
    pub(crate) fn take_body(&mut self) -> Option<Incoming> {
        self.body.take()
    }

    /// Reads the body as a form. Fails if it is longer than [`FORM_BYTES_MAX`] or does not arrive in [`FORM_TIMEOUT`].
    pub(crate) async fn read_form(&mut self) -> Result<Fields, Failure> {
        let Some(body) = self.body.take() else { return Ok(Fields::default()) };
        let read = tokio::time::timeout(FORM_TIMEOUT, Limited::new(body, FORM_BYTES_MAX).collect()).await;
        let refused = || {
            Failure::bad_request(
                "The form is too long, or did not arrive completely in time. Nothing was changed.",
            )
        };
        let bytes: Bytes = read.map_err(|_| refused())?.map_err(|_| refused())?.to_bytes();
        Ok(Fields::parse(&bytes))
    }
}
