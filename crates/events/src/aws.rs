//! AWS's event format (S3 User Guide, "Event message structure").
//!
//! Three fields of an object are extensions: `contentType` and `userMetadata` are where MinIO writes them, with metadata names
//! capitalised like HTTP headers (`X-Amz-Meta-Project`); `tags` is Tenon's own, an object of names and values. Keys are URL-encoded
//! as in a query: `+` for a space, `%` and two digits for every byte but letters, digits and `-_.*/`.

use crate::{Described, EventKind, ObjectEvent, Sequence};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use store::{ETag, ObjectKey, Tags, Timestamp};

const SCHEMA: &str = "1.0";
const SOURCE: &str = "aws:s3";
const USER_PREFIX: &str = "x-amz-meta-";

/// The bytes that are percent-encoded in keys. A space is left to be replaced by `+`.
const ENCODED: AsciiSet =
    NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'*').remove(b'/').remove(b' ');

/// An error of parsing a message in AWS's format.
#[derive(Debug, thiserror::Error)]
pub enum ParseError {
    /// The message is not the JSON that it should be.
    #[error("not a message with S3 events: {0}")]
    Json(#[from] serde_json::Error),
    /// A field is missing or invalid.
    #[error("the field {0} of an event is missing or invalid")]
    Field(&'static str),
}

/// Returns the message for one event; `configuration` is the id of the bucket's notification configuration that
/// selected it.
pub fn message(event: &ObjectEvent, configuration: &str) -> Vec<u8> {
    let message = Message { records: vec![Record::of(event, configuration)] };
    // Serialising plain strings and numbers cannot fail.
    serde_json::to_vec(&message).unwrap_or_default()
}

/// Parses a message in AWS's format, from any writer. Events of kinds unknown to Tenon are left out.
pub fn parse(message: &[u8]) -> Result<Vec<ObjectEvent>, ParseError> {
    let message: Message<'_> = serde_json::from_slice(message)?;
    message.records.into_iter().filter_map(|record| record.read().transpose()).collect()
}

#[derive(Serialize, Deserialize)]
struct Message<'a> {
    #[serde(rename = "Records", borrow)]
    records: Vec<Record<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    event_version: Cow<'a, str>,
    event_source: Cow<'a, str>,
    #[serde(default)]
    aws_region: Cow<'a, str>,
    event_time: Cow<'a, str>,
    event_name: Cow<'a, str>,
    #[serde(default)]
    user_identity: Identity<'a>,
    #[serde(default)]
    request_parameters: RequestParameters<'a>,
    #[serde(default)]
    response_elements: ResponseElements<'a>,
    s3: S3Element<'a>,
}

#[derive(Serialize, Deserialize, Default)]
struct Identity<'a> {
    // versitygw writes the name of this field with a capital.
    #[serde(rename = "principalId", alias = "PrincipalId", default)]
    principal_id: Cow<'a, str>,
}

#[derive(Serialize, Deserialize, Default)]
struct RequestParameters<'a> {
    #[serde(rename = "sourceIPAddress", default)]
    source_ip_address: Cow<'a, str>,
}

#[derive(Serialize, Deserialize, Default)]
struct ResponseElements<'a> {
    #[serde(rename = "x-amz-request-id", default)]
    request_id: Cow<'a, str>,
    #[serde(rename = "x-amz-id-2", default)]
    id_2: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct S3Element<'a> {
    #[serde(default)]
    s3_schema_version: Cow<'a, str>,
    #[serde(default)]
    configuration_id: Cow<'a, str>,
    bucket: Bucket<'a>,
    object: Object<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bucket<'a> {
    name: Cow<'a, str>,
    #[serde(default)]
    owner_identity: Identity<'a>,
    #[serde(default)]
    arn: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    key: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e_tag: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version_id: Option<Cow<'a, str>>,
    sequencer: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_metadata: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tags: Option<Tags>,
}

impl<'a> Record<'a> {
    fn of(event: &'a ObjectEvent, configuration: &'a str) -> Self {
        let owner = Identity { principal_id: Cow::from(&event.owner) };
        let arn = Cow::from(format!("arn:aws:s3:::{}", event.bucket));
        let bucket = Bucket { name: Cow::from(&event.bucket), owner_identity: owner, arn };
        let source = event.source.map(|address| address.to_string());
        Self {
            event_version: Cow::from(event_version(event.kind)),
            event_source: Cow::from(SOURCE),
            aws_region: Cow::from(&event.region),
            event_time: Cow::from(format_time(event.time)),
            event_name: Cow::from(event.kind.name()),
            user_identity: Identity { principal_id: Cow::from(&event.principal) },
            request_parameters: RequestParameters {
                source_ip_address: Cow::from(source.unwrap_or_default()),
            },
            response_elements: ResponseElements {
                request_id: Cow::from(&event.request_id),
                id_2: Cow::from(&event.request_id),
            },
            s3: S3Element {
                s3_schema_version: Cow::from(SCHEMA),
                configuration_id: Cow::from(configuration),
                bucket,
                object: Object::of(event),
            },
        }
    }

    fn read(self) -> Result<Option<ObjectEvent>, ParseError> {
        let Some(kind) = EventKind::named(&self.event_name) else { return Ok(None) };
        let sequencer = &self.s3.object.sequencer;
        Ok(Some(ObjectEvent {
            kind,
            time: parse_time(&self.event_time).ok_or(ParseError::Field("eventTime"))?,
            sequence: Sequence::parse(sequencer).ok_or(ParseError::Field("sequencer"))?,
            region: self.aws_region.into_owned(),
            bucket: self.s3.bucket.name.into_owned(),
            owner: self.s3.bucket.owner_identity.principal_id.into_owned(),
            key: decode_key(&self.s3.object.key)?,
            object: self.s3.object.read(),
            principal: self.user_identity.principal_id.into_owned(),
            source: self.request_parameters.source_ip_address.parse().ok(),
            request_id: self.response_elements.request_id.into_owned(),
        }))
    }
}

impl<'a> Object<'a> {
    fn of(event: &'a ObjectEvent) -> Self {
        let object = &event.object;
        let exists = !event.kind.is_removed();
        let user = object.user.iter();
        let user = user.map(|(name, value)| {
            (Cow::from(capitalise_header(&format!("{USER_PREFIX}{name}"))), Cow::from(value))
        });
        Self {
            key: Cow::from(encode_key(&event.key)),
            size: object.size_bytes,
            e_tag: object.etag.as_ref().map(|etag| Cow::from(etag.as_str())),
            version_id: object.version.as_deref().map(Cow::from),
            sequencer: Cow::from(event.sequence.to_string()),
            content_type: object.content_type.as_deref().map(Cow::from),
            // For an existing object these fields are always written, so that a reader knows there is nothing more.
            user_metadata: exists.then(|| user.collect()),
            tags: exists.then(|| object.tags.clone()),
        }
    }

    fn read(self) -> Described {
        let user = self.user_metadata.into_iter().flatten().filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            // MinIO lists the content type here, too.
            Some((name.strip_prefix(USER_PREFIX)?.to_owned(), value.into_owned()))
        });
        Described {
            size_bytes: self.size,
            etag: self.e_tag.map(|etag| ETag::new(&etag)),
            version: self.version_id.filter(|id| !id.is_empty()).map(|id| id.as_ref().into()),
            content_type: self.content_type.map(Cow::into_owned),
            user: user.collect(),
            tags: self.tags.unwrap_or_default(),
        }
    }
}

/// Returns AWS's version of the format, which depends on the kind.
fn event_version(kind: EventKind) -> &'static str {
    match kind {
        EventKind::TaggingPut
        | EventKind::TaggingDelete
        | EventKind::ExpirationDelete
        | EventKind::ExpirationDeleteMarkerCreated => "2.3",
        _ => "2.1",
    }
}

/// Formats a time in ISO 8601 with milliseconds.
pub(crate) fn format_time(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Parses a time in ISO 8601; `None` if it is none, or too far from 1970 for a timestamp.
pub(crate) fn parse_time(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

fn encode_key(key: &ObjectKey) -> String {
    percent_encode(key.as_bytes(), &ENCODED).to_string().replace(' ', "+")
}

fn decode_key(text: &str) -> Result<ObjectKey, ParseError> {
    let spaced = text.replace('+', " ");
    let bytes: Vec<u8> = percent_decode(spaced.as_bytes()).collect();
    ObjectKey::new(bytes).map_err(|_| ParseError::Field("key"))
}

/// Capitalises every word of a header's name, as Go does.
fn capitalise_header(name: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at_checked(1).unwrap_or((word, ""));
        format!("{}{rest}", first.to_ascii_uppercase())
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(key: &[u8]) -> ObjectEvent {
        ObjectEvent {
            kind: EventKind::CreatedPut,
            time: Timestamp(1_790_000_000_123_000_000),
            sequence: Sequence(0x18d7_0000_0000_0001),
            region: "us-east-1".to_owned(),
            bucket: "bucket".to_owned(),
            owner: "admin".to_owned(),
            key: ObjectKey::new(key.to_vec()).unwrap(),
            object: Described {
                size_bytes: Some(3),
                etag: Some(ETag::new("abc")),
                version: Some("v1".into()),
                content_type: Some("text/plain".to_owned()),
                user: [("project-name".to_owned(), "Zürich".to_owned())].into(),
                tags: [("class".to_owned(), "raw".to_owned())].into(),
            },
            principal: "writer".to_owned(),
            source: Some([127, 0, 0, 1].into()),
            request_id: "0123".to_owned(),
        }
    }

    #[test]
    fn s194_a_message_is_what_aws_documents() {
        let message: serde_json::Value =
            serde_json::from_slice(&message(&event(b"a b/\xc3\xbc+.txt"), "new ones")).unwrap();
        let expected = serde_json::json!({"Records": [{
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-09-21T14:13:20.123Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": {"principalId": "writer"},
            "requestParameters": {"sourceIPAddress": "127.0.0.1"},
            "responseElements": {"x-amz-request-id": "0123", "x-amz-id-2": "0123"},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "new ones",
                "bucket": {"name": "bucket", "ownerIdentity": {"principalId": "admin"}, "arn": "arn:aws:s3:::bucket"},
                "object": {
                    "key": "a+b/%C3%BC%2B.txt",
                    "size": 3,
                    "eTag": "abc",
                    "versionId": "v1",
                    "sequencer": "18D7000000000001",
                    "contentType": "text/plain",
                    "userMetadata": {"X-Amz-Meta-Project-Name": "Zürich"},
                    "tags": {"class": "raw"}
                }
            }
        }]});
        assert_eq!(message, expected);
    }

    #[test]
    fn events_keep_the_bytes_of_their_keys() {
        for key in [b"a".as_slice(), b" +%/.*", b"\xff\x00~\n", "ü".as_bytes()] {
            let event = event(key);
            assert_eq!(parse(&message(&event, "id")).unwrap(), [event]);
        }
        let removed =
            ObjectEvent { kind: EventKind::RemovedDelete, object: Described::default(), ..event(b"a") };
        assert_eq!(parse(&message(&removed, "")).unwrap(), [removed]);
    }

    #[test]
    fn messages_of_other_writers_are_read() {
        let minio = br#"{"EventName":"s3:ObjectCreated:Put","Key":"b/a","Records":[{"eventVersion":"2.0",
            "eventSource":"minio:s3","awsRegion":"","eventTime":"2026-09-21T14:13:20.1Z","eventName":"s3:ObjectCreated:Put",
            "userIdentity":{"principalId":"minio"},"requestParameters":{"sourceIPAddress":"127.0.0.1","region":""},
            "responseElements":{"x-amz-id-2":"","x-amz-request-id":"1"},"s3":{"s3SchemaVersion":"1.0","configurationId":"Config",
            "bucket":{"name":"b","ownerIdentity":{"principalId":"minio"},"arn":"arn:aws:s3:::b"},"object":{"key":"a","size":1,
            "eTag":"e","contentType":"text/plain","userMetadata":{"X-Amz-Meta-Project":"x","content-type":"text/plain"},
            "sequencer":"18D7"}},"source":{"host":"127.0.0.1"}}]}"#;
        let [event] = parse(minio).unwrap().try_into().unwrap();
        assert_eq!((event.kind, event.sequence), (EventKind::CreatedPut, Sequence(0x18d7)));
        assert_eq!(event.object.user, [("project".to_owned(), "x".to_owned())].into());
        let unknown =
            br#"{"Records":[{"eventVersion":"2.2","eventSource":"aws:s3","eventTime":"2026-09-21T14:13:20Z",
            "eventName":"Replication:OperationFailedReplication","s3":{"bucket":{"name":"b"},
            "object":{"key":"a","sequencer":"1"}}}]}"#;
        assert_eq!(parse(unknown).unwrap(), []);
    }

    #[test]
    fn invalid_messages_are_refused() {
        assert!(parse(b"no JSON").is_err());
        assert!(parse(br#"{"Event":"s3:TestEvent"}"#).is_err());
        let odd = String::from_utf8(message(&event(b"a"), "")).unwrap().replace("18D7", "xyz");
        assert!(matches!(parse(odd.as_bytes()), Err(ParseError::Field("sequencer"))));
    }
}
