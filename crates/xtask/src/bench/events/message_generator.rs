//! The events: what each of them says is a function of its number, so that anybody can say what came of them.
//!
//! Messages are rendered once and then copied, with the few bytes changed that differ: what a producer costs is not what is measured.

use bytes::{Bytes, BytesMut};
use events::{Dialect, Message};
use store::Timestamp;

/// As OpenIO writes a content of three copies.
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

/// As OpenIO writes the end of a content.
const OPENIO_DELETED: &str = concat!(
    r#"{"event":"storage.content.deleted","when":<when>,"url":{"ns":"OPENIO","account":"AUTH_demo","user":"<bucket>","#,
    r#""id":"9006CE70B59E5777D6BB410C57944812D96BA58B6D2D5D8E26A2C51D2D1BF2C4","path":"data/2026/11/22/part-<object>.fastq","#,
    r#""content":"2DF24F0A7B1C0600B8B5F3A8DC6D1B2C","version":"<when>"},"request_id":"tx7c1f63c4b7f84e8a8a1d6-00674051f0","origin":"oio-proxy","data":[]}"#,
);

/// As MinIO writes a PUT.
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

/// Every so many events one removes its object, where objects are removed.
const REMOVED_EVERY: usize = 11;

const COLORS: [&str; 3] = ["black", "green", "white"];

/// What an event says of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) object: usize,
    /// `None`: it is gone.
    pub(super) stored: Option<Stored>,
}

/// What is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) size_bytes: u64,
    pub(super) color: &'static str,
}

/// All events of a run.
#[derive(Debug)]
pub(super) struct Stream {
    objects: usize,
    removes: bool,
    /// When the first event happened, in microseconds; of each further one it is one more.
    first: u64,
    stored: Template,
    removed: Template,
    buffer: BytesMut,
}

/// A message with places in it that differ.
#[derive(Debug)]
struct Template {
    text: Vec<u8>,
    places: Vec<(usize, Field)>,
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
    const ALL: [(&str, Self, &str); 5] = [
        ("<object>", Self::Object, "0000000"),
        ("<when>", Self::When, "0000000000000000"),
        ("<tag>", Self::Tag, "D41D8CD98F00B2040000000000000000"),
        ("<size>", Self::Size, "000000"),
        ("<color>", Self::Color, "black"),
    ];
}

/// The dialects that there are messages in.
pub(super) fn dialect(name: &str) -> Option<Dialect> {
    Dialect::named(name).filter(|dialect| matches!(dialect, Dialect::OpenIo | Dialect::S3))
}

/// What an event says, by its number.
pub(super) fn said(number: usize, objects: usize, removes: bool) -> Said {
    let stored = Stored { size_bytes: 100_000 + (number % 997) as u64, color: COLORS[number / objects % 3] };
    let is_removed = removes && number.is_multiple_of(REMOVED_EVERY);
    Said { object: number % objects, stored: (!is_removed).then_some(stored) }
}

/// The key of an object.
pub(super) fn key(object: usize) -> String {
    format!("data/2026/11/22/part-{object:07}.fastq")
}

/// The number of an event, by the tag that it says.
pub(super) fn number(etag: &str) -> Option<usize> {
    usize::from_str_radix(etag.get(16..)?, 16).ok()
}

impl Stream {
    pub(super) fn new(
        dialect: Dialect,
        bucket: &str,
        objects: usize,
        removes: bool,
        begun: Timestamp,
    ) -> Self {
        let template =
            |text: &str| Template::new(&text.replace("<bucket>", bucket).replace("<time>", &time(begun)));
        Self {
            objects,
            removes,
            first: begun.0 as u64 / 1000,
            stored: template(if dialect == Dialect::S3 { S3 } else { OPENIO }),
            removed: template(OPENIO_DELETED),
            buffer: BytesMut::new(),
        }
    }

    /// The message of an event.
    pub(super) fn message(&mut self, number: usize) -> Message {
        /// As much as a broker's answer brings at once.
        const BUFFER_BYTES: usize = 64 << 10;
        let said = said(number, self.objects, self.removes);
        let template = if said.stored.is_some() { &self.stored } else { &self.removed };
        if self.buffer.capacity() < template.text.len() {
            self.buffer = BytesMut::with_capacity(BUFFER_BYTES);
        }
        self.buffer.extend_from_slice(&template.text);
        template.fill(&mut self.buffer, number, self.first, &said);
        Message::from(Bytes::from(self.buffer.split()))
    }
}

impl Template {
    fn new(text: &str) -> Self {
        let (mut rest, mut made) = (text, Self { text: Vec::new(), places: Vec::new() });
        while let Some((at, found)) = first_field(rest) {
            let (name, field, filler) = Field::ALL[found];
            made.text.extend_from_slice(&rest.as_bytes()[..at]);
            made.places.push((made.text.len(), field));
            made.text.extend_from_slice(filler.as_bytes());
            rest = &rest[at + name.len()..];
        }
        made.text.extend_from_slice(rest.as_bytes());
        made
    }

    fn fill(&self, text: &mut [u8], number: usize, first: u64, said: &Said) {
        let stored = said.stored.unwrap_or(Stored { size_bytes: 0, color: COLORS[0] });
        for (at, field) in &self.places {
            match field {
                Field::Object => digits(&mut text[*at..at + 7], said.object as u64),
                Field::When => digits(&mut text[*at..at + 16], first + number as u64),
                Field::Tag => hexadecimal(&mut text[at + 16..at + 32], number as u64),
                Field::Size => digits(&mut text[*at..at + 6], stored.size_bytes),
                Field::Color => text[*at..at + 5].copy_from_slice(stored.color.as_bytes()),
            }
        }
    }
}

/// As MinIO writes a moment.
fn time(at: Timestamp) -> String {
    let at = jiff::Timestamp::from_nanosecond(i128::from(at.0)).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

fn first_field(text: &str) -> Option<(usize, usize)> {
    (0..).zip(Field::ALL).filter_map(|(found, (name, _, _))| Some((text.find(name)?, found))).min()
}

fn digits(into: &mut [u8], mut number: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn hexadecimal(into: &mut [u8], mut number: u64) {
    for digit in into.iter_mut().rev() {
        *digit = b"0123456789ABCDEF"[(number % 16) as usize];
        number /= 16;
    }
}
