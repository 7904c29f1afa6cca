//! Tests with messages of every format, written after their documentation.

use super::*;
use crate::{ChangeKind, ObjectDescription, Order};
use std::borrow::Cow;
use store::Timestamp;

const AWS: &str = r#"{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"eu-central-1",
    "eventTime":"2026-09-21T14:13:20.123Z","eventName":"ObjectCreated:Put","userIdentity":{"principalId":"AWS:AIDA"},
    "requestParameters":{"sourceIPAddress":"192.0.2.7"},"responseElements":{"x-amz-request-id":"C3D","x-amz-id-2":"FM/"},
    "s3":{"s3SchemaVersion":"1.0","configurationId":"all","bucket":{"name":"photos","ownerIdentity":{"principalId":"A3"},
    "arn":"arn:aws:s3:::photos"},"object":{"key":"2026/a+b%2B%C3%BC.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e",
    "versionId":"096fKKXTRTtl3on89fVO.nfljtsv6qko","sequencer":"0055AED6DCD90281E5"}}}]}"#;

const CEPH: &str = r#"{"Records":[{"eventVersion":"2.1","eventSource":"ceph:s3","awsRegion":"default",
    "eventTime":"2026-09-21T14:13:20.123456Z","eventName":"ObjectCreated:Put","userIdentity":{"principalId":"tester"},
    "requestParameters":{"sourceIPAddress":""},"responseElements":{"x-amz-request-id":"503a4c37","x-amz-id-2":"14d2-zone"},
    "s3":{"s3SchemaVersion":"1.0","configurationId":"n","bucket":{"name":"b","ownerIdentity":{"principalId":"tester"},
    "arn":"arn:aws:s3:default::b","id":"503a"},"object":{"key":"k","size":3,"eTag":"37b51d194a7513e45b56f6524f2d51f2",
    "versionId":"","sequencer":"F7E6D75DC742D108","metadata":[{"key":"x-amz-meta-project","val":"apollo"},
    {"key":"x-amz-content-sha256","val":"UNSIGNED"}],"tags":[{"key":"class","val":"raw"}]}},
    "eventId":"1575221657.102001.80dc","opaqueData":"me@example.com"}]}"#;

const VERSITYGW: &str = r#"{"Records":[{"eventVersion":"2.2","eventSource":"aws:s3","awsRegion":"us-east-1",
    "eventTime":"2026-09-21T14:13:20Z","eventName":"s3:ObjectCreated:Put","userIdentity":{"PrincipalId":"admin"},
    "requestParameters":{"sourceIPAddress":"127.0.0.1"},"responseElements":{"x-amz-request-id":"","x-amz-id-2":""},
    "s3":{"s3SchemaVersion":"1.0","configurationId":"webhook","bucket":{"name":"b","ownerIdentity":{"PrincipalId":"admin"},
    "arn":"arn:aws:s3:::/b/a+b c%20"},"object":{"key":"a+b c%20","size":3,"eTag":"\"abc\"","versionId":null,"sequencer":"1"}},
    "glacierEventData":{"restoreEventData":{"lifecycleRestorationExpiryTime":"","lifecycleRestoreStorageClass":""}}}]}"#;

const EVENT_BRIDGE: &str = r#"{"version":"0","id":"17793124","detail-type":"Object Created","source":"aws.s3","account":"1",
    "time":"2026-09-21T14:13:20Z","region":"eu-central-1","resources":["arn:aws:s3:::b"],"detail":{"version":"0",
    "bucket":{"name":"b"},"object":{"key":"a+b %20","size":5,"etag":"b1946ac9","version-id":"IYV3","sequencer":"00617F08299329D189"},
    "request-id":"N4N7","requester":"1","source-ip-address":"192.0.2.7","reason":"PutObject"}}"#;

const OPENIO: &str = r#"{"event":"storage.content.new","when":1790000000123456,"url":{"ns":"OPENIO","account":"AUTH_demo",
    "user":"images","id":"9006CE70","path":"2026/cat.jpg","content":"2DF24F0A","version":"1790000000000001"},
    "request_id":"tx1","origin":"proxy","data":[{"type":"chunks","id":"http://127.0.0.1:6010/A","hash":"00","size":11,"pos":"0"},
    {"type":"aliases","name":"2026/cat.jpg","version":1790000000000001,"ctime":1790000000,"deleted":false,"header":"2DF2"},
    {"type":"contents_headers","id":"2DF2","policy":"THREECOPIES","mime-type":"image/jpeg","hash":"5EB63BBBE01EEED0","size":11},
    {"type":"properties","alias":"2026/cat.jpg","version":1,"key":"Project","value":"apollo"}]}"#;

fn body(text: &str) -> Message {
    Message { body: text.to_owned().into(), attributes: Vec::new() }
}

fn read_as(dialect: Dialect, message: &Message) -> Result<Vec<Hint<'static>>, String> {
    let mut hints = Vec::new();
    let outcome = dialect.read(message, &mut |hint| hints.push(hint.into_owned()));
    outcome.map(|()| hints).map_err(|error| error.to_string())
}

fn read(text: &str) -> Vec<Hint<'static>> {
    read_as(Dialect::Detected, &body(text)).unwrap()
}

fn read_one(text: &str) -> Hint<'static> {
    let [hint] = read(text).try_into().unwrap();
    hint
}

fn pairs(pairs: &[(&'static str, &'static str)]) -> Option<Vec<(Cow<'static, str>, Cow<'static, str>)>> {
    Some(pairs.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value))).collect())
}

fn hint(bucket: &'static str, key: &'static [u8], kind: ChangeKind, order: u128) -> Hint<'static> {
    Hint {
        bucket: Cow::Borrowed(bucket),
        key: Cow::Borrowed(key),
        kind,
        order: Some(Order(order)),
        time: Some(Timestamp(1_790_000_000_000_000_000)),
        object: ObjectDescription::default(),
    }
}

#[test]
fn s230_what_aws_writes() {
    let expected = Hint {
        time: Some(Timestamp(1_790_000_000_123_000_000)),
        object: ObjectDescription {
            size_bytes: Some(1024),
            etag: Some("d41d8cd98f00b204e9800998ecf8427e".into()),
            version: Some("096fKKXTRTtl3on89fVO.nfljtsv6qko".into()),
            ..ObjectDescription::default()
        },
        ..hint("photos", "2026/a b+ü.jpg".as_bytes(), ChangeKind::Stored, 0x55ae_d6dc_d902_81e5)
    };
    assert_eq!(read_one(AWS), expected);
    assert_eq!(
        read(
            r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2014-10-13T15:57:02.089Z","Bucket":"b"}"#
        ),
        []
    );
}

/// Most of a message of 64 KB is irrelevant, and the relevant parts are not copied.
#[test]
fn an_ordinary_key_is_borrowed() {
    let message = body(&AWS.replace("a+b%2B%C3%BC", "a"));
    let mut borrowed = 0;
    let mut see = |hint: Hint<'_>| {
        let etag = hint.object.etag.as_ref().is_some_and(|etag| matches!(etag, Cow::Borrowed(_)));
        borrowed += usize::from(
            etag && matches!(hint.key, Cow::Borrowed(_)) && matches!(hint.bucket, Cow::Borrowed(_)),
        );
    };
    Dialect::Detected.read(&message, &mut see).unwrap();
    assert_eq!(borrowed, 1);
}

#[test]
fn what_kinds_of_events_mean() {
    let what_of = |name: &str| read(&AWS.replace("ObjectCreated:Put", name)).first().map(|hint| hint.kind);
    for name in [
        "ObjectCreated:Copy",
        "s3:ObjectCreated:CompleteMultipartUpload",
        "ObjectCreated:Unheard",
        "ObjectSynced:Create",
    ] {
        assert_eq!(what_of(name), Some(ChangeKind::Stored), "{name}");
    }
    for name in
        ["ObjectTagging:Put", "ObjectAcl:Put", "s3:ObjectCreated:PutRetention", "s3:ObjectCreated:PutTagging"]
    {
        assert_eq!(what_of(name), Some(ChangeKind::Changed), "{name}");
    }
    for name in [
        "ObjectRemoved:DeleteMarkerCreated",
        "LifecycleExpiration:DeleteMarkerCreated",
        "ObjectLifecycle:Expiration:Current",
    ] {
        assert_eq!(what_of(name), Some(ChangeKind::Removed), "{name}");
    }
    assert_eq!(what_of("s3:ObjectAccessed:Head"), Some(ChangeKind::Read));
    for name in [
        "Replication:OperationFailedReplication",
        "ObjectLifecycle:Expiration:Noncurrent",
        "Unheard:Of",
        "ObjectRestore:Post",
    ] {
        assert_eq!(what_of(name), None, "{name}");
    }
    // An old version may be gone while the object still exists.
    for name in ["ObjectRemoved:Delete", "LifecycleExpiration:Delete"] {
        assert_eq!(what_of(name), Some(ChangeKind::Changed), "{name}");
        let plain = AWS.replace("096fKKXTRTtl3on89fVO.nfljtsv6qko", "").replace("ObjectCreated:Put", name);
        assert_eq!(read_one(&plain).kind, ChangeKind::Removed, "{name}");
        assert_eq!(read_one(&plain).object, ObjectDescription::default());
    }
}

#[test]
fn s230_what_ceph_writes() {
    let expected = Hint {
        time: Some(Timestamp(1_790_000_000_123_456_000)),
        object: ObjectDescription {
            size_bytes: Some(3),
            etag: Some("37b51d194a7513e45b56f6524f2d51f2".into()),
            properties: pairs(&[("project", "apollo")]),
            tags: pairs(&[("class", "raw")]),
            ..ObjectDescription::default()
        },
        ..hint("b", b"k", ChangeKind::Stored, 0xf7e6_d75d_c742_d108)
    };
    assert_eq!(read_one(CEPH), expected);
    let bare = CEPH.replace(r#"[{"key":"class","val":"raw"}]"#, "[]");
    assert_eq!(
        read_one(&bare).object.tags,
        None,
        "Ceph writes an empty list when it has not looked for tags"
    );
}

/// versitygw does not encode keys, starts its sequencer anew with each start, and reports no length for copies.
#[test]
fn s230_what_versitygw_writes() {
    let object =
        ObjectDescription { size_bytes: Some(3), etag: Some("abc".into()), ..ObjectDescription::default() };
    let expected = Hint { object, order: None, ..hint("b", b"a+b c%20", ChangeKind::Stored, 0) };
    assert_eq!(read_one(VERSITYGW), expected);
    let copied =
        read_one(&VERSITYGW.replace("Created:Put", "Created:Copy").replace(r#""size":3"#, r#""size":0"#));
    assert_eq!((copied.kind, copied.object.size_bytes), (ChangeKind::Stored, None));
    let removed = read_one(&VERSITYGW.replace("s3:ObjectCreated:Put", "s3:ObjectRemoved:DeleteObjects"));
    assert_eq!((removed.kind, removed.order), (ChangeKind::Removed, None));
}

#[test]
fn s230_event_bridge_writes_keys_as_they_are() {
    let object = ObjectDescription {
        size_bytes: Some(5),
        etag: Some("b1946ac9".into()),
        version: Some("IYV3".into()),
        ..ObjectDescription::default()
    };
    let expected = Hint { object, ..hint("b", b"a+b %20", ChangeKind::Stored, 0x617f_0829_9329_d189) };
    assert_eq!(read_one(EVENT_BRIDGE), expected);
    let deleted = EVENT_BRIDGE.replace("Object Created", "Object Deleted");
    assert_eq!(read_one(&deleted).kind, ChangeKind::Changed, "only one version was deleted");
    let unversioned = deleted.replace(r#""version-id":"IYV3","#, "");
    assert_eq!(read_one(&unversioned).kind, ChangeKind::Removed);
    let marked =
        deleted.replace(r#""PutObject""#, r#""DeleteObject","deletion-type":"Delete Marker Created""#);
    assert_eq!(read_one(&marked).kind, ChangeKind::Removed);
    assert_eq!(read_one(&EVENT_BRIDGE.replace("Created", "Tags Added")).kind, ChangeKind::Changed);
    assert_eq!(read(&EVENT_BRIDGE.replace("Object Created", "Object Restore Completed")), []);
}

#[test]
fn s230_sns_is_a_wrapper() {
    for inner in [AWS, EVENT_BRIDGE] {
        let wrapped = serde_json::json!({"Type": "Notification", "MessageId": "22b", "TopicArn": "arn:aws:sns:a:1:t",
            "Subject": "Amazon S3 Notification", "Message": inner, "Timestamp": "2026-09-21T14:13:20.500Z"});
        assert_eq!(read(&wrapped.to_string()), read(inner));
        let again = serde_json::json!({"Type": "Notification", "Message": wrapped.to_string()});
        assert!(
            read_as(Dialect::Detected, &body(&again.to_string())).is_err(),
            "nested wrappers are refused"
        );
    }
    let asks =
        r#"{"Type":"SubscriptionConfirmation","Message":"You have chosen","SubscribeURL":"https://sns/"}"#;
    assert!(read_as(Dialect::Detected, &body(asks)).unwrap_err().contains("SubscribeURL"));
}

fn gcs(kind: &str, payload: &str) -> Message {
    let attributes = [
        ("notificationconfig", "projects/_/buckets/b/notificationConfigs/1"),
        ("eventtype", kind),
        ("payloadformat", "JSON_API_V1"),
        ("bucketid", "b"),
        ("objectid", "a+b"),
        ("objectgeneration", "7"),
        ("eventtime", "2026-09-21T14:13:20Z"),
    ];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Message { body: payload.to_owned().into(), attributes }
}

const RESOURCE: &str = r#"{"kind":"storage#object","id":"b/a+b/7","name":"a+b","bucket":"b","generation":"7",
    "metageneration":"2","contentType":"text/plain","size":"11","md5Hash":"XrY7u+Ae7tCTyyK7j1rNww==","etag":"CAc=",
    "metadata":{"Project":"apollo"}}"#;

#[test]
fn s230_gcs_says_it_in_attributes_and_in_a_payload() {
    let attributed = read_as(Dialect::Detected, &gcs("OBJECT_FINALIZE", "")).unwrap();
    assert_eq!(attributed, [hint("b", b"a+b", ChangeKind::Stored, 7 << 64)]);
    let object = ObjectDescription {
        size_bytes: Some(11),
        version: Some("7".into()),
        content_type: Some("text/plain".into()),
        properties: pairs(&[("project", "apollo")]),
        ..ObjectDescription::default()
    };
    let full = Hint { object, ..hint("b", b"a+b", ChangeKind::Stored, 7 << 64 | 2) };
    assert_eq!(
        read_as(Dialect::Gcs, &gcs("OBJECT_FINALIZE", RESOURCE)).unwrap(),
        std::slice::from_ref(&full)
    );
    let updated = read_as(Dialect::Gcs, &gcs("OBJECT_METADATA_UPDATE", RESOURCE)).unwrap();
    assert_eq!(updated, [Hint { kind: ChangeKind::Changed, ..full.clone() }]);
    // A deletion is later than all changes of the same generation.
    let [deleted] = read_as(Dialect::Gcs, &gcs("OBJECT_DELETE", RESOURCE)).unwrap().try_into().unwrap();
    assert_eq!((deleted.kind, deleted.order > full.order), (ChangeKind::Removed, true));
    assert!(deleted.order < Some(Order(8 << 64)));
    let mut overwritten = gcs("OBJECT_ARCHIVE", RESOURCE);
    overwritten.attributes.push(("overwrittenByGeneration".to_owned(), "8".to_owned()));
    assert_eq!(read_as(Dialect::Gcs, &overwritten), Ok(Vec::new()));
}

#[test]
fn s230_gcs_pushes_both_in_one() {
    let message = gcs("OBJECT_FINALIZE", RESOURCE);
    let attributes: serde_json::Map<_, _> =
        message.attributes.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
    let pushed = serde_json::json!({"message": {"attributes": attributes, "data": BASE64_STANDARD.encode(RESOURCE),
        "messageId": "1", "publishTime": "2026-09-21T14:13:21Z"}, "subscription": "projects/p/subscriptions/s"});
    assert_eq!(read(&pushed.to_string()), read_as(Dialect::Gcs, &message).unwrap());
    let torn = pushed.to_string().replace(r#""data":""#, r#""data":"*"#);
    assert!(read_as(Dialect::Detected, &body(&torn)).is_err());
}

#[test]
fn s230_what_openio_writes() {
    let expected = Hint {
        time: Some(Timestamp(1_790_000_000_123_456_000)),
        object: ObjectDescription {
            size_bytes: Some(11),
            etag: Some("5eb63bbbe01eeed0".into()),
            version: Some("1790000000000001".into()),
            content_type: Some("image/jpeg".into()),
            properties: pairs(&[("project", "apollo")]),
            tags: None,
        },
        ..hint("images", b"2026/cat.jpg", ChangeKind::Stored, 1_790_000_000_123_456)
    };
    assert_eq!(read_one(OPENIO), expected);
    let bucket = OPENIO.replace(r#""path""#, r#""bucket":"public","path""#);
    assert_eq!(read_one(&bucket).bucket, "public");
    let part = OPENIO.replace(r#""origin""#, r#""part":0,"parts":2,"origin""#);
    assert_eq!(read_one(&part).object.properties, None);
    let updated = read_one(&OPENIO.replace("content.new", "content.update"));
    assert_eq!((updated.kind, updated.object), (ChangeKind::Changed, ObjectDescription::default()));
    assert_eq!(read_one(&OPENIO.replace("content.new", "content.deleted")).kind, ChangeKind::Removed);
    for kind in ["chunk.new", "container.state", "content.broken", "account.services"] {
        assert_eq!(read(&OPENIO.replace("content.new", kind)), [], "{kind}");
    }
    let state = r#"{"event":"storage.container.state","when":1,"url":{"ns":"N","user":"c"},"data":{"bytes-count":0}}"#;
    assert_eq!(read(state), []);
}

#[test]
fn a_list_of_redis_has_several() {
    let record = AWS.trim_start_matches(r#"{"Records":["#).trim_end_matches("]}");
    let list = format!(
        r#"[{{"Event":[{record}],"EventTime":"2026-09-21T14:13:20.123Z"}},{{"Event":[{record},{record}]}}]"#
    );
    assert_eq!(read(&list).len(), 3);
}

#[test]
fn an_invalid_record_does_not_prevent_the_others() {
    let record = AWS.trim_start_matches(r#"{"Records":["#).trim_end_matches("]}");
    let broken = record.replace("2026/a+b%2B%C3%BC.jpg", "");
    let message = body(&format!(r#"{{"Records":[{record},{broken},{record}]}}"#));
    let mut count = 0;
    let outcome = Dialect::S3.read(&message, &mut |_| count += 1);
    assert!(matches!(outcome, Err(DialectError::Field("key"))));
    assert_eq!(count, 2);
}

#[test]
fn messages_of_no_known_format_are_refused() {
    for text in
        ["", "no JSON", "{}", "[1]", "7", r#"{"Records":7}"#, r#"{"event":"other"}"#, "{}{}", "\u{feff}{}"]
    {
        assert!(read_as(Dialect::Detected, &body(text)).is_err(), "{text}");
    }
    let too_long = AWS.replace("2026/", &"k".repeat(KEY_BYTES_MAX));
    assert!(read_as(Dialect::Detected, &body(&too_long)).unwrap_err().contains("key"));
}

#[test]
fn a_named_format_reads_no_other() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::named(dialect.name()), Some(dialect));
    }
    assert_eq!(Dialect::named("klingon"), None);
    assert!(read_as(Dialect::S3, &body(AWS)).is_ok());
    assert!(read_as(Dialect::OpenIo, &body(AWS)).unwrap_err().contains("format: openio"));
    assert!(read_as(Dialect::S3, &body(OPENIO)).is_err());
}

/// Messages of Tenon's endpoint state everything that a rule may ask for, also when it is empty.
#[test]
fn s230_what_tenon_writes() {
    use crate::{Described, EventKind, ObjectEvent, Sequence, aws};
    let mut event = ObjectEvent {
        kind: EventKind::CreatedPut,
        time: Timestamp(1_790_000_000_000_000_000),
        sequence: Sequence(9),
        region: "us-east-1".to_owned(),
        bucket: "b".to_owned(),
        owner: "admin".to_owned(),
        key: store::ObjectKey::new(b"a b\xff".to_vec()).unwrap(),
        object: Described { size_bytes: Some(3), etag: Some(store::ETag::new("e")), ..Described::default() },
        principal: "writer".to_owned(),
        source: None,
        request_id: String::new(),
    };
    for user in [Vec::new(), vec![("project".to_owned(), "x".to_owned())]] {
        event.object.user = user.into_iter().collect();
        for kind in EventKind::ALL {
            event.kind = kind;
            let message = Message { body: aws::message(&event, "c").into(), attributes: Vec::new() };
            let read_hint = read_as(Dialect::Detected, &message).unwrap();
            let expected_hint = Hint::from(&event).into_owned();
            let object = if kind.is_removed() { ObjectDescription::default() } else { expected_hint.object };
            assert_eq!(read_hint, [Hint { object, ..expected_hint }], "{kind:?}");
        }
    }
}
