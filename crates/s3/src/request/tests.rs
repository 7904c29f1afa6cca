//! Tests by the table of operations: every method with every sub-resource, for the service, a bucket and an object.

use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use s3s::Body;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::memory::MemoryBuckets;
use store::{Buckets, Clock, Entropy, GetOptions, ObjectKey, ObjectStore, Payload, PutOptions, SystemClock};

use crate::operations::{Handler, OPERATIONS, Operation, ResourceKind, Subject};
use crate::query::Query;
use crate::users::Users;
use crate::{Endpoint, EndpointOptions};

const METHODS: [&str; 6] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"];
const KINDS: [ResourceKind; 3] = [ResourceKind::Service, ResourceKind::Bucket, ResourceKind::Object];

const ALLOW: &str = r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]}"#;

/// An endpoint without users, whose only bucket has one object and a policy.
struct World {
    endpoint: Endpoint,
    store: Arc<dyn ObjectStore>,
}

impl World {
    async fn new(statements: &[&str]) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let buckets = Arc::new(MemoryBuckets::new(clock.clone()));
        buckets.create("bucket").await.unwrap();
        let store = buckets.open("bucket").await.unwrap();
        store.put(&key(), Payload::from("kept"), PutOptions::default()).await.unwrap();
        let policy = format!("{{\"Statement\":[{}]}}", statements.join(","));
        let policy = (!statements.is_empty()).then(|| policy.into());
        store.settings().unwrap().set("policy", policy).await.unwrap();
        let options = EndpointOptions {
            users: Users::default(),
            region: "us-east-1".to_owned(),
            domains: Vec::new(),
            webhooks: BTreeMap::new(),
            md5: false,
            encrypted: false,
        };
        let endpoint = Endpoint::new(buckets, options, clock, Arc::new(Entropy::new(1))).unwrap();
        Self { endpoint, store }
    }

    /// Sends an unsigned request and returns the status and the code of an error.
    async fn send(&self, asked: &Asked) -> (StatusCode, String) {
        let (head, body) = self.endpoint.handle(asked.request()).await.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
        (head.status, code.map(|(code, _)| code.to_owned()).unwrap_or_default())
    }

    async fn is_unchanged(&self) -> bool {
        let found = self.store.get(&key(), GetOptions::default()).await;
        found.is_ok_and(|object| object.meta.size_bytes == 4)
    }
}

fn key() -> ObjectKey {
    ObjectKey::try_from("key").unwrap()
}

/// A request in the terms of the table.
#[derive(Debug)]
struct Asked {
    method: &'static str,
    kind: ResourceKind,
    query: String,
    is_copy: bool,
}

impl Asked {
    fn new(method: &'static str, kind: ResourceKind, word: &str, is_copy: bool) -> Self {
        let query = match (method, word) {
            ("PUT", "uploadId") => "uploadId=1&partNumber=1".to_owned(),
            _ => word.to_owned(),
        };
        Self { method, kind, query, is_copy }
    }

    /// Returns the request for a row of the table.
    fn of(row: &Operation) -> Self {
        let mut asked = Self::new(row.method, row.kind, row.sub_resource, row.is_copy());
        if row.name == "ListObjectsV2" {
            asked.query = "list-type=2".to_owned();
        }
        asked
    }

    fn request(&self) -> Request<Body> {
        let path = match self.kind {
            ResourceKind::Service => "/",
            ResourceKind::Bucket => "/bucket",
            ResourceKind::Object => "/bucket/key",
        };
        let request = Request::builder().method(self.method).uri(format!("{path}?{}", self.query));
        let request = request.header("content-length", 0);
        let request = match self.is_copy {
            true => request.header("x-amz-copy-source", "bucket/key"),
            false => request,
        };
        request.body(Body::empty()).unwrap()
    }

    fn find(&self) -> s3s::S3Result<&'static Operation> {
        let request = self.request();
        let method: Method = self.method.parse().unwrap();
        Operation::find(&method, self.kind, &Query::parse(&self.query), request.headers())
    }
}

/// Returns every method × resource × sub-resource, with and without a copy source.
fn requests() -> impl Iterator<Item = Asked> {
    let words: BTreeSet<&str> = OPERATIONS.iter().map(|row| row.sub_resource).collect();
    let kinds = METHODS.into_iter().flat_map(|method| KINDS.map(|kind| (method, kind)));
    let words =
        kinds.flat_map(move |(method, kind)| words.clone().into_iter().map(move |word| (method, kind, word)));
    words
        .flat_map(|(method, kind, word)| [false, true].map(|is_copy| Asked::new(method, kind, word, is_copy)))
}

fn served_rows() -> impl Iterator<Item = &'static Operation> {
    OPERATIONS.iter().filter(|row| row.handler != Handler::Missing && row.kind != ResourceKind::Service)
}

#[tokio::test]
async fn s460_requests_outside_the_table_are_refused_and_change_nothing() {
    let world = World::new(&[ALLOW]).await;
    for asked in requests() {
        let Err(expected) = asked.find() else { continue };
        let (status, code) = world.send(&asked).await;
        assert!([400, 405, 501].contains(&status.as_u16()), "{asked:?}: {status}");
        assert!(code == expected.code().as_str() || asked.method == "HEAD", "{asked:?}: {code}");
        assert!(world.is_unchanged().await, "{asked:?}");
    }
}

/// Without a policy nobody who is not signed in may do anything.
#[tokio::test]
async fn every_operation_needs_a_permission() {
    let world = World::new(&[]).await;
    for asked in requests() {
        let Ok(row) = asked.find() else { continue };
        let (status, code) = world.send(&asked).await;
        // A form says by its fields whether it is signed.
        let expected = if row.name == "PostObject" { 412 } else { 403 };
        assert_eq!(status, expected, "{asked:?}: {code}");
        assert!(world.is_unchanged().await, "{asked:?}");
    }
}

/// `s3s` runs the operation of the row, or an assertion fails, and the operation is implemented.
#[tokio::test]
async fn every_row_has_its_handler() {
    for row in served_rows() {
        let (status, code) = World::new(&[ALLOW]).await.send(&Asked::of(row)).await;
        let is_denied = row.handler == Handler::Route;
        assert_eq!(status == StatusCode::FORBIDDEN, is_denied, "{}: {status} {code}", row.name);
        assert!(![405, 500, 501].contains(&status.as_u16()), "{}: {status} {code}", row.name);
    }
}

#[tokio::test]
async fn every_permission_of_a_row_can_be_denied() {
    for row in served_rows().filter(|row| row.name != "PostObject") {
        for (action, subject) in row.permissions() {
            // A part of a source without tags needs no permission for tags.
            if subject == Subject::CopiedTags {
                continue;
            }
            let deny = ALLOW.replace("Allow", "Deny").replace("s3:*", action);
            let (status, code) = World::new(&[ALLOW, &deny]).await.send(&Asked::of(row)).await;
            let is_same_effect = (status, code.as_str()) == (StatusCode::FORBIDDEN, "AccessDenied");
            assert!(
                is_same_effect || row.method == "HEAD" && status == 403,
                "{} without {action}: {status} {code}",
                row.name
            );
        }
    }
}
