//! Buckets and objects, by requests to the S3 endpoint of this process in the name of a user.

pub(crate) mod listing;
pub(crate) mod upload;
mod xml;

use crate::display::encode;
use crate::reply::Failure;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use listing::{Listing, VersionRow};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3::{Body, Endpoint, Identity};
use std::net::IpAddr;
use xml::Element;

/// Maximum length of an XML document in a response of the endpoint, in bytes.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Maximum number of versions of an object that are shown.
const VERSIONS_MAX: usize = 200;
/// ASCII characters that are percent-encoded in a path: all but letters, digits and `-_.~/`.
const PATH: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// An object: its bucket and key, and a version of it if one is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ObjectName<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) version: Option<&'a str>,
}

impl ObjectName<'_> {
    /// Returns the encoded path of the object at the endpoint.
    pub(crate) fn path(&self) -> String {
        path(self.bucket, self.key)
    }

    /// Returns the query that names the version; empty without one.
    pub(crate) fn version_query(&self) -> String {
        self.version.map(|version| format!("versionId={}", encode(version))).unwrap_or_default()
    }
}

/// Returns the encoded path of a key at the endpoint, in path style.
fn path(bucket: &str, key: &str) -> String {
    format!("/{}/{}", encode(bucket), utf8_percent_encode(key, &PATH))
}

/// Access to buckets and objects by requests to the S3 endpoint in the name of a user.
#[derive(Clone, Copy)]
pub(crate) struct Objects<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) identity: &'a Identity,
    /// Address of the user's browser, for conditions of policies and the access log.
    pub(crate) peer: IpAddr,
}

impl Objects<'_> {
    /// Sends a request to a path and query, both encoded. An error response becomes a failure with the status and the
    /// message of the endpoint.
    pub(crate) async fn send(
        &self,
        method: Method,
        (path, query): (&str, &str),
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Body>, Failure> {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let uri = target.parse::<http::Uri>();
        let uri = uri.map_err(|_| Failure::bad_request("This name cannot be in a request."))?;
        let mut request = Request::new(body);
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
        let response = self.endpoint.send(self.identity, self.peer, request).await;
        if response.status().is_client_error() || response.status().is_server_error() {
            return Err(failure(response).await);
        }
        Ok(response)
    }

    async fn send_without_body(
        &self,
        method: Method,
        target: (&str, &str),
    ) -> Result<Response<Body>, Failure> {
        self.send(method, target, HeaderMap::new(), body("")).await
    }

    async fn send_text(
        &self,
        method: Method,
        target: (&str, &str),
        text: String,
    ) -> Result<Response<Body>, Failure> {
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(text.len()))]);
        self.send(method, target, headers, body(text)).await
    }

    /// Gets a target whose response is an XML document.
    async fn get_document(&self, target: (&str, &str)) -> Result<Element, Failure> {
        read_document(self.send_without_body(Method::GET, target).await?).await
    }

    /// Returns whether the user may perform an IAM action, such as `s3:PutObject`, on a bucket or, with `key`, an object.
    pub(crate) async fn allows(&self, action: &str, bucket: &str, key: Option<&str>) -> bool {
        self.endpoint.allows(self.identity, self.peer, action, bucket, key).await
    }

    /// Returns the names of the buckets that the user sees, with their times of creation.
    pub(crate) async fn buckets(&self) -> Result<Vec<(String, String)>, Failure> {
        let document = self.get_document(("/", "")).await?;
        let buckets = document.child("Buckets").into_iter().flat_map(|buckets| buckets.all("Bucket"));
        Ok(buckets
            .map(|bucket| (bucket.text("Name").to_owned(), bucket.text("CreationDate").to_owned()))
            .collect())
    }

    pub(crate) async fn create_bucket(&self, name: &str) -> Result<(), Failure> {
        self.send_text(Method::PUT, (&format!("/{}", encode(name)), ""), String::new()).await.map(drop)
    }

    pub(crate) async fn delete_bucket(&self, name: &str) -> Result<(), Failure> {
        self.send_without_body(Method::DELETE, (&format!("/{}", encode(name)), "")).await.map(drop)
    }

    /// Returns a page of the listing of a bucket.
    pub(crate) async fn list(&self, bucket: &str, wanted: &listing::Wanted<'_>) -> Result<Listing, Failure> {
        let document = self.get_document((&format!("/{}", encode(bucket)), &wanted.query())).await?;
        Ok(Listing::of(&document))
    }

    /// Returns the headers of an object.
    pub(crate) async fn head(&self, name: ObjectName<'_>) -> Result<HeaderMap, Failure> {
        let target = (name.path(), name.version_query());
        Ok(self.send_without_body(Method::HEAD, (&target.0, &target.1)).await?.into_parts().0.headers)
    }

    /// Returns the tags of an object, sorted.
    pub(crate) async fn tags(&self, name: ObjectName<'_>) -> Result<Vec<(String, String)>, Failure> {
        let document = self.get_document((&name.path(), &sub_resource("tagging", name))).await?;
        let tags = document.child("TagSet").into_iter().flat_map(|tags| tags.all("Tag"));
        let mut tags: Vec<_> =
            tags.map(|tag| (tag.text("Key").to_owned(), tag.text("Value").to_owned())).collect();
        tags.sort();
        Ok(tags)
    }

    /// Replaces all tags of an object by these.
    pub(crate) async fn set_tags(
        &self,
        name: ObjectName<'_>,
        tags: &[(String, String)],
    ) -> Result<(), Failure> {
        let (path, query) = (name.path(), sub_resource("tagging", name));
        if tags.is_empty() {
            return self.send_without_body(Method::DELETE, (&path, &query)).await.map(drop);
        }
        let tags: String = tags.iter().map(|(key, value)| tag_element(key, value)).collect();
        let document = format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
        self.send_text(Method::PUT, (&path, &query), document).await.map(drop)
    }

    /// Returns the versions of an object, the newest first, at most [`VERSIONS_MAX`].
    pub(crate) async fn versions(&self, bucket: &str, key: &str) -> Result<Vec<VersionRow>, Failure> {
        let query = format!("encoding-type=url&max-keys={VERSIONS_MAX}&prefix={}&versions=", encode(key));
        let document = self.get_document((&format!("/{}", encode(bucket)), &query)).await?;
        Ok(VersionRow::all_of(&document, key))
    }

    /// Deletes an object, or only the version that is named.
    pub(crate) async fn delete(&self, name: ObjectName<'_>) -> Result<(), Failure> {
        let target = (name.path(), name.version_query());
        self.send_without_body(Method::DELETE, (&target.0, &target.1)).await.map(drop)
    }

    /// Stores an empty object. Fails if there is an object with this key.
    pub(crate) async fn create_empty(&self, bucket: &str, key: &str) -> Result<(), Failure> {
        let headers = HeaderMap::from_iter([
            (CONTENT_LENGTH, HeaderValue::from(0)),
            (http::header::IF_NONE_MATCH, HeaderValue::from_static("*")),
        ]);
        self.send(Method::PUT, (&path(bucket, key), ""), headers, body("")).await.map(drop)
    }

    /// Begins to read an object. `headers` are those of the browser's request that ask for a range or set a condition.
    pub(crate) async fn read(
        &self,
        name: ObjectName<'_>,
        headers: HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        self.send(Method::GET, (&name.path(), &name.version_query()), headers, body("")).await
    }

    /// Returns a URL by which anyone can read an object for a time; `None` if the user no longer exists or has another
    /// secret. `root` is the endpoint's URL.
    pub(crate) fn presign(
        &self,
        name: ObjectName<'_>,
        root: &str,
        validity: std::time::Duration,
    ) -> Option<String> {
        self.endpoint.presign(self.identity, root, (&name.path(), &name.version_query()), validity)
    }
}

/// Returns a body with a text.
fn body(text: impl Into<Bytes>) -> Body {
    Full::from(text.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns the query of a sub-resource, such as `tagging`, of an object or of the version that is named.
fn sub_resource(name: &str, object: ObjectName<'_>) -> String {
    match object.version {
        None => format!("{name}="),
        Some(_) => format!("{name}=&{}", object.version_query()),
    }
}

fn tag_element(key: &str, value: &str) -> String {
    let escape = |text: &str| quick_xml::escape::escape(text).into_owned();
    format!("<Tag><Key>{}</Key><Value>{}</Value></Tag>", escape(key), escape(value))
}

/// Reads the body of a response, and parses it as an XML document.
async fn read_document(response: Response<Body>) -> Result<Element, Failure> {
    let unreadable = || Failure::new(StatusCode::BAD_GATEWAY, "The endpoint's response cannot be read.");
    // Boxed: the compiler cannot prove for the unnamed type that it is `Send`.
    let reading: BoxFuture<'static, _> =
        Box::pin(Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect());
    let bytes = reading.await.map_err(|_| unreadable())?.to_bytes();
    Element::parse(&String::from_utf8_lossy(&bytes)).ok_or_else(unreadable)
}

/// Returns the failure that an error response of the endpoint describes. Responses to HEAD have no message, so that the
/// status has to explain the failure.
async fn failure(response: Response<Body>) -> Failure {
    let status = response.status();
    let document = read_document(response).await.unwrap_or_default();
    let code = document.text("Code").to_owned();
    let message = match (document.text("Message"), status) {
        ("", StatusCode::NOT_FOUND) => "There is no such object.".to_owned(),
        ("", StatusCode::FORBIDDEN) => "Your role and the bucket's policy do not allow this.".to_owned(),
        ("", status) => status.to_string(),
        (message, _) if code == "AccessDenied" => {
            format!("Your role and the bucket's policy do not allow this ({message})")
        }
        (message, _) => message.to_owned(),
    };
    Failure::new(status, message)
}

/// Prefix of the headers of user metadata.
pub(crate) const METADATA_PREFIX: &str = "x-amz-meta-";

/// Returns the value of a header as text; empty if there is no such header.
pub(crate) fn header_text(headers: &HeaderMap, name: &HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}
