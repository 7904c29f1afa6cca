//! Fuzz targets: whatever a client sends, nothing panics, every response is S3's, and parsing and formatting
//! round-trip.

use aws_lc_rs::hmac;
use base64::Engine as _;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use s3s::Body;
use s3s::S3Error;
use std::sync::Arc;
use store::memory::MemoryBuckets;
use store::{Buckets, Clock, Entropy, ObjectStore, SystemClock};

use crate::authentication::{self, SigningContext};
use crate::checksums::Checksum;
use crate::operations::{Operation, ResourceKind};
use crate::policy::{self, AccessRequest, Policy};
use crate::policy_condition::RequestContext;
use crate::query::Query;
use crate::sessions::Sessions;
use crate::users::{Role, User, Users};
use crate::{Endpoint, EndpointOptions, headers, ops, part_metadata};

/// The maximum length of a response, in bytes; the stored objects are shorter.
const ANSWER_BYTES_MAX: usize = 1 << 20;

const SECRET: &str = "not-a-secret-but-long-enough";

const OPEN: &str = r#"{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::open","arn:aws:s3:::open/*"]}]}"#;

/// Sends a request to a bucket open to everybody. Input: `METHOD path`, one header per line, an empty line, the body.
pub fn request(bytes: &[u8]) {
    let Some(request) = parse_request(bytes) else { return };
    block_on(async {
        let (endpoint, _) = endpoint().await;
        send_and_check(&endpoint, request).await;
    });
}

/// Like [`request`], with arbitrary query parameters. A request that is no operation of the table must be refused, and
/// only operations that write bytes may change the object.
pub fn operations(bytes: &[u8]) {
    let [method, kind, rest @ ..] = bytes else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let (path, kind) = PATHS[usize::from(*kind) % PATHS.len()];
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (words, rest) = rest.split_at(end);
    let Some(request) =
        parse_request(&[method.as_bytes(), b" ", path.as_bytes(), b"?", words, rest].concat())
    else {
        return;
    };
    let (method, query) = (request.method().clone(), request.uri().query().unwrap_or_default().to_owned());
    let operation = Operation::find(&method, kind, &Query::parse(&query), request.headers());
    let is_operation = method != Method::OPTIONS && operation.is_ok();
    let writes = operation.is_ok_and(Operation::writes_bytes);
    block_on(async {
        let (endpoint, store) = endpoint().await;
        let status = send_and_check(&endpoint, request).await;
        assert!(is_operation || !status.is_success(), "{method} {path}?{query} is no operation: {status}");
        if !writes {
            let key = store::ObjectKey::new(b"key".as_slice()).unwrap_or_else(|error| panic!("{error}"));
            let found = store.get(&key, store::GetOptions::default()).await;
            let body = found.unwrap_or_else(|error| panic!("{method} {path}?{query}: {error}")).body;
            let body: Vec<Bytes> = body.try_collect().await.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(body.concat(), BODY.as_bytes(), "{method} {path}?{query}");
        }
    });
}

const METHODS: [&str; 7] = ["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"];
const PATHS: [(&str, ResourceKind); 5] = [
    ("/open/key", ResourceKind::Object),
    ("/open", ResourceKind::Bucket),
    ("/", ResourceKind::Service),
    ("/open/other", ResourceKind::Object),
    ("/open/", ResourceKind::Bucket),
];

/// Posts a browser's form. Input: fields as `name: value`, one per line, an empty line, the file. A field `policy` is
/// signed for the user unless the form has a signature.
pub fn form(bytes: &[u8]) {
    let cut = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let mut body = Vec::new();
    let mut add = |name: &[u8], value: &[u8]| {
        let head: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"";
        body.extend([head, name, b"\"\r\n\r\n", value, b"\r\n"].concat());
    };
    let is_signed = bytes.windows(9).any(|word| word.eq_ignore_ascii_case(b"signature"));
    for line in bytes[..cut].split(|byte| *byte == b'\n') {
        let Some(at) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..at], line[at + 1..].trim_ascii());
        if name != b"policy" {
            add(name, value);
            continue;
        }
        let policy = base64::engine::general_purpose::STANDARD.encode(value);
        if !is_signed {
            let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, SECRET.as_bytes());
            let signature = hmac::sign(&key, policy.as_bytes());
            add(b"AWSAccessKeyId", b"tests-admin");
            add(b"signature", base64::engine::general_purpose::STANDARD.encode(signature).as_bytes());
        }
        add(b"policy", policy.as_bytes());
    }
    add(b"file\"; filename=\"f", bytes.get(cut + 2..).unwrap_or_default());
    body.extend(b"--b--\r\n");
    let request = Request::post("/open")
        .header(http::header::CONTENT_TYPE, "multipart/form-data; boundary=b")
        .header(http::header::CONTENT_LENGTH, body.len());
    let request = request.body(body).unwrap_or_else(|error| panic!("{error}"));
    block_on(async {
        let (endpoint, _) = endpoint().await;
        send_and_check(&endpoint, request).await;
    });
}

fn block_on(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap_or_else(|error| panic!("no runtime: {error}")).block_on(work);
}

/// Sends a request and checks that the response is one of S3's, and no internal error.
async fn send_and_check(endpoint: &Endpoint, request: Request<Vec<u8>>) -> StatusCode {
    let is_head = request.method() == Method::HEAD;
    let answer = endpoint.handle(request.map(|body| Body::from(Bytes::from(body)))).await;
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap_or_else(|error| panic!("an answer that breaks off: {error}"));
    let body = body.to_bytes();
    assert!(head.status.as_u16() >= 200 && body.len() <= ANSWER_BYTES_MAX, "{head:?}");
    assert_ne!(head.status, StatusCode::INTERNAL_SERVER_ERROR, "{}", String::from_utf8_lossy(&body));
    if head.status.is_client_error() && !is_head {
        let text = String::from_utf8_lossy(&body);
        assert!(text.contains("<Code>") || text.starts_with("<html"), "{head:?}: {text}");
    }
    head.status
}

/// Checks authentication parameters in headers and query.
pub fn authorization(bytes: &[u8]) {
    if let Some(request) = parse_request(bytes) {
        drop(check_authentication(request.into_parts().0));
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    if let Ok(value) = HeaderValue::from_bytes(&bytes[..end]) {
        let request = Request::get("/bucket/key").header(http::header::AUTHORIZATION, value).body(());
        drop(request.map(|request| check_authentication(request.into_parts().0)));
    }
}

fn check_authentication(head: Parts) -> Result<(), S3Error> {
    let context = SigningContext { region: "us-east-1", sessions: &sessions(), now: store::Timestamp(0) };
    authentication::check(&head, &Query::of(&head.uri), context)
}

/// Parses a policy; a policy that parses must evaluate any request without a panic.
pub fn policy(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(policy) = Policy::parse(&text, "open") {
        let source = Some(std::net::IpAddr::from([10, 0, 0, 1]));
        let request_context = RequestContext { source, prefix: Some("a/b".to_owned()), delimiter: None };
        for (user, resource) in [(None, "open"), (Some("tests-admin"), "open/key"), (None, "other")] {
            policy.evaluate(AccessRequest {
                user,
                action: "s3:GetObject",
                resource,
                request_context: &request_context,
            });
        }
        policy.is_public();
        drop(policy.check_principals(&users()));
    }
    let (pattern, text) = text.split_once('\n').unwrap_or((&text, ""));
    let _ = policy::is_like(pattern, text);
    assert!(
        policy::is_like("*", text) && (pattern.contains(['*', '?']) || policy::is_like(pattern, pattern))
    );
}

/// Parses short texts of headers, forms and metadata.
pub fn texts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(sizes) = part_metadata::sizes_from_text(&text)
        && let Some(written) = part_metadata::sizes_to_text(&sizes)
    {
        assert_eq!(part_metadata::sizes_from_text(&written), Some(sizes));
    }
    for count in 0..3 {
        if let Some(found) = part_metadata::checksums_from_text(&text, count) {
            let written = part_metadata::checksums_to_text(&found.iter().collect::<Vec<_>>());
            assert!(
                count == 0
                    || part_metadata::checksums_from_text(&written.unwrap_or_default(), count) == Some(found)
            );
        }
    }
    if let Some(checksum) = Checksum::from_text(&text) {
        let again = Checksum::from_text(&checksum.to_text()).map(|again| again.to_text());
        assert_eq!(again, Some(checksum.to_text()));
    }
    drop(headers::tags_of_header(Some(&text)));
    if let Some(user) = users().get("tests-admin") {
        drop(ops::sts::assume_role(bytes, &user, &sessions(), "id"));
    }
}

fn parse_request(bytes: &[u8]) -> Option<Request<Vec<u8>>> {
    let cut = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    let mut lines = bytes[..cut].split(|byte| *byte == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let (method, target) = first.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(target);
    for line in lines {
        let at = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..at]).ok()?;
        request = request.header(name, HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok()?);
    }
    let body = bytes.get(cut + 2..).unwrap_or_default().to_vec();
    let length = HeaderValue::from(body.len());
    let mut request = request.body(body).ok()?;
    request.headers_mut().entry(http::header::CONTENT_LENGTH).or_insert(length);
    Some(request)
}

fn users() -> Users {
    let user = User {
        access_key: "tests-admin".to_owned(),
        secret_key: SECRET.to_owned(),
        role: Role::Admin,
        buckets: Vec::new(),
    };
    Users::new([user]).unwrap_or_else(|error| panic!("{error}"))
}

fn sessions() -> Sessions {
    Sessions::new(users(), Arc::new(SystemClock), Arc::new(Entropy::new(1)))
}

/// The content of the object.
const BODY: &str = "a small object";

/// Returns an endpoint whose only bucket has one object and is open to everybody, and the bucket's store.
async fn endpoint() -> (Endpoint, Arc<dyn ObjectStore>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let buckets = Arc::new(MemoryBuckets::new(clock.clone()));
    let made = async {
        buckets.create("open").await?;
        let store = buckets.open("open").await?;
        let key = store::ObjectKey::new(b"key".as_slice())?;
        store.put(&key, store::Payload::from(BODY), store::PutOptions::default()).await?;
        if let Some(settings) = store.settings() {
            settings.set("policy", Some(Bytes::from_static(OPEN.as_bytes()))).await?;
        }
        Ok::<_, store::StoreError>(store)
    };
    let store = made.await.unwrap_or_else(|error| panic!("{error}"));
    let options = EndpointOptions {
        users: users(),
        region: "us-east-1".to_owned(),
        domains: Vec::new(),
        webhooks: std::collections::BTreeMap::new(),
        md5: false,
        encrypted: false,
    };
    let entropy = Arc::new(Entropy::new(1));
    let endpoint = Endpoint::new(buckets, options, clock, entropy);
    (endpoint.unwrap_or_else(|error| panic!("{error}")), store)
}
