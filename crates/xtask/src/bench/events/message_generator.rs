//! Generator of event messages. The content of an event is a function of its number, so the expected result of all events can be computed.
//!
//! A message is rendered once as a template, then copied with a few bytes changed. The producer thus takes little CPU time of the measurement.

use bytes::{Bytes, BytesMut};
use events::{Dialect, Message};
use store::Timestamp;

/// OpenIO's message for a new content with three copies.
const OPENIO: &str = concat!(
    r#"{"event":"storage.content.new","when":<when>,"url":{"ns":"OPENIO","account":"AUTH_demo","user":"<bucket>","#,
    r#""id":"9006CE70B59E5777D6BB410C57944812D96BA58B6D2D5D8E26A2C51D2D1BF2C4","path":"data/2026/11/22/part-<object>.fastq","#,
    r#""content":"2DF24F0A7B1C0600B8B5F3A8DC6D1B2C","version":"<when>"},"request_id":"tx7c1f63c4b7f84e8a8a1d6-00674051f0","origin":"oio-proxy","#,
    r#""data":[{"type":"chunks","id":"http://172.17.0.2:6010/8B5F3A8DC6D1B2C0600B8B5F3A8DC6D1B2C4F0A7B1C0600B8B5F3A8DC6D1B2C0","hash":"<tag>","size":<size>,"pos":"0"},"#,
    r#"{"type":"chunks","id":"http://172.17.0.3:6010/1B2C4F0A7B1C0600B8B5F3A8DC6D1B2C8B5F3A8DC6D1B2C0600B8B5F3A8DC6D1","hash":"<tag>","size":<size>,"pos":"0"},"#,
    r#"{"type":"chunks","id":"http://172.17.0.4:6010/600B8B5F3A8DC6D1B2C4F0A7B1C0600B8B5F3A8DC6D1B2C8B5F3A8DC6D1B2C0A","hash":"<tag>","size":<size>,"pos":"0"},"#,
    r#"{"type":"aliases","name":"data/2026/11/22/part-<object>.fastq","version":<when>,"ctime":1795348800,"mtime":1795348800,"deleted":false,"header":"2DF24F0A7B1C0600B8B5F3A8DC6D1B2C"},"#,
    r#"{"type":"contents_headers","id":"2DF24F0A7B1C0600B8B5F3A8DC6D1B2C","policy":"THREECOPIES","ctime":1795348800,"mtime":1795348800,"chunk-method":"plain/nb_copy=3","mime-type":"text/plain","hash":"<tag>","size":<size>},"#,
    r#"{"type":"properties","alias":"data/2026/11/22/part-<object>.fastq","version":<when>,"key":"color","value":"<color>"}]}"#,
);

/// OpenIO's message for a deleted content.
const OPENIO_DELETED: &str = concat!(
    r#"{"event":"storage.content.deleted","when":<when>,"url":{"ns":"OPENIO","account":"AUTH_demo","user":"<bucket>","#,
    r#""id":"9006CE70B59E5777D6BB410C57944812D96BA58B6D2D5D8E26A2C51D2D1BF2C4","path":"data/2026/11/22/part-<object>.fastq","#,
    r#""content":"2DF24F0A7B1C0600B8B5F3A8DC6D1B2C","version":"<when>"},"request_id":"tx7c1f63c4b7f84e8a8a1d6-00674051f0","origin":"oio-proxy","data":[]}"#,
);

/// MinIO's message for a PUT.
const S3: &str = concat!(
    r#"{"EventName":"s3:ObjectCreated:Put","Key":"<bucket>/data/2026/11/22/part-<object>.fastq","Records":[{"eventVersion":"2.0","#,
    r#""eventSource":"minio:s3","awsRegion":"","eventTime":"<time>","eventName":"s3:ObjectCreated:Put","#,
    r#""userIdentity":{"principalId":"minioadmin"},"requestParameters":{"principalId":"minioadmin","region":"","#,
    r#""sourceIPAddress":"127.0.0.1"},"responseElements":{"x-amz-id-2":"dd9025bab4ad464b049177c95eb6ebf374d3b3fd1af9251148b658df7ac2e3e8","#,
    r#""x-amz-request-id":"17A2B3C4D5E6F708","x-minio-deployment-id":"8b1d3b8e-3b6a-4a57-9f3e-0a3c4f6f8a11","#,
    r#""x-minio-origin-endpoint":"http://127.0.0.1:9000"},"s3":{"s3SchemaVersion":"1.0","configurationId":"Config","#,
    r#""bucket":{"name":"<bucket>","ownerIdentity":{"principalId":"minioadmin"},"arn":"arn:aws:s3:::<bucket>"},"#,
    r#""object":{"key":"data%2F2026%2F11%2F22%2Fpart-<object>.fastq","size":<size>,"eTag":"<tag>","contentType":"text/plain","#,
    r#""userMetadata":{"X-Amz-Meta-Color":"<color>","content-type":"text/plain"},"sequencer":"<when>"}},"#,
    r#""source":{"host":"127.0.0.1","port":"","userAgent":"MinIO (linux; amd64) minio-go/v7.0.90"}}]}"#,
);

/// In streams with deletions, every event whose number is a multiple of this deletes its object.
const DELETION_INTERVAL: usize = 11;

const COLORS: [&str; 3] = ["black", "green", "white"];

/// The content of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectChange {
    pub(super) object: usize,
    /// The new state; `None` if the object is deleted.
    pub(super) stored: Option<ObjectState>,
}

/// The state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectState {
    pub(super) size_bytes: u64,
    pub(super) color: &'static str,
}

/// A generator of the messages of a run.
#[derive(Debug)]
pub(super) struct MessageGenerator {
    objects: usize,
    has_deletions: bool,
    /// Time of the first event, in microseconds. Each further event is one microsecond later.
    first_us: u64,
    stored: Template,
    deleted: Template,
    buffer: BytesMut,
}

/// A message with fields to fill in.
#[derive(Debug)]
struct Template {
    text: Vec<u8>,
    /// (offset, field)
    fields: Vec<(usize, Field)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Object,
    When,
    Tag,
    Size,
    Color,
}

impl Field {
    /// (placeholder in the text, field, text of the same length as the values)
    const ALL: [(&str, Self, &str); 5] = [
        ("<object>", Self::Object, "0000000"),
        ("<when>", Self::When, "0000000000000000"),
        ("<tag>", Self::Tag, "D41D8CD98F00B2040000000000000000"),
        ("<size>", Self::Size, "000000"),
        ("<color>", Self::Color, "black"),
    ];
}

/// Parses the name of a dialect; `None` if there are no messages in it.
pub(super) fn parse_dialect(name: &str) -> Option<Dialect> {
    Dialect::named(name).filter(|dialect| matches!(dialect, Dialect::OpenIo | Dialect::S3))
}

/// Returns the content of the event with this number.
pub(super) fn change(number: usize, objects: usize, has_deletions: bool) -> ObjectChange {
    let stored =
        ObjectState { size_bytes: 100_000 + (number % 997) as u64, color: COLORS[number / objects % 3] };
    let is_deleted = has_deletions && number.is_multiple_of(DELETION_INTERVAL);
    ObjectChange { object: number % objects, stored: (!is_deleted).then_some(stored) }
}

/// Returns the key of an object.
pub(super) fn key(object: usize) -> String {
    format!("data/2026/11/22/part-{object:07}.fastq")
}

/// Returns the number of an event by its etag.
pub(super) fn event_number(etag: &str) -> Option<usize> {
    usize::from_str_radix(etag.get(16..)?, 16).ok()
}

impl MessageGenerator {
    pub(super) fn new(
        dialect: Dialect,
        bucket: &str,
        objects: usize,
        has_deletions: bool,
        first_event: Timestamp,
    ) -> Self {
        let template = |text: &str| {
            Template::new(&text.replace("<bucket>", bucket).replace("<time>", &minio_time(first_event)))
        };
        Self {
            objects,
            has_deletions,
            first_us: first_event.0 as u64 / 1000,
            stored: template(if dialect == Dialect::S3 { S3 } else { OPENIO }),
            deleted: template(OPENIO_DELETED),
            buffer: BytesMut::new(),
        }
    }

    /// Renders the message of an event.
    pub(super) fn message(&mut self, number: usize) -> Message {
        /// Size of a shared buffer for messages, about that of a broker's response.
        const BUFFER_BYTES: usize = 64 << 10;
        let change = change(number, self.objects, self.has_deletions);
        let template = if change.stored.is_some() { &self.stored } else { &self.deleted };
        if self.buffer.capacity() < template.text.len() {
            self.buffer = BytesMut::with_capacity(BUFFER_BYTES);
        }
        self.buffer.extend_from_slice(&template.text);
        template.fill(&mut self.buffer, number, self.first_us, &change);
        Message::from(Bytes::from(self.buffer.split()))
    }
}

impl Template {
    fn new(text: &str) -> Self {
        let (mut rest, mut template) = (text, Self { text: Vec::new(), fields: Vec::new() });
        while let Some((at, index)) = first_field(rest) {
            let (name, field, filler) = Field::ALL[index];
            template.text.extend_from_slice(&rest.as_bytes()[..at]);
            template.fields.push((template.text.len(), field));
            template.text.extend_from_slice(filler.as_bytes());
            rest = &rest[at + name.len()..];
        }
        template.text.extend_from_slice(rest.as_bytes());
        template
    }

    /// Writes the fields of an event into a copy of the text.
    fn fill(&self, text: &mut [u8], number: usize, first_us: u64, change: &ObjectChange) {
        let stored = change.stored.unwrap_or(ObjectState { size_bytes: 0, color: COLORS[0] });
        for (at, field) in &self.fields {
            match field {
                Field::Object => write_decimal(&mut text[*at..at + 7], change.object as u64),
                Field::When => write_decimal(&mut text[*at..at + 16], first_us + number as u64),
                Field::Tag => write_hexadecimal(&mut text[at + 16..at + 32], number as u64),
                Field::Size => write_decimal(&mut text[*at..at + 6], stored.size_bytes),
                Field::Color => text[*at..at + 5].copy_from_slice(stored.color.as_bytes()),
            }
        }
    }
}

/// Formats a time as MinIO does.
fn minio_time(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Returns offset and index of the first placeholder in the text.
fn first_field(text: &str) -> Option<(usize, usize)> {
    (0..).zip(Field::ALL).filter_map(|(index, (name, _, _))| Some((text.find(name)?, index))).min()
}

fn write_decimal(target: &mut [u8], mut number: u64) {
    for digit in target.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn write_hexadecimal(target: &mut [u8], mut number: u64) {
    for digit in target.iter_mut().rev() {
        *digit = b"0123456789ABCDEF"[(number % 16) as usize];
        number /= 16;
    }
}
