//! Flipped bits in every kind of structure on a drive: each request returns the former answer or an error, and a scrub reports the damage.

use crate::fixture::{DEVICE_BYTES, body, fill, formatted, key, open_with};
use bytes::Bytes;
use drive::device::{BLOCK_BYTES, BlockDevice as _};
use drive::{Drive, OpenOptions, ZoneUse};
use futures_util::TryStreamExt as _;
use sim::device::{Operation, OperationKind, SimDevice};
use std::ops::Range;
use store::{
    Attributes, Buckets, Entropy, GetOptions, ListRequest, ListVersions, ObjectKey, PutOptions, Result,
    StoreError, Tags, Versioning,
};

/// Flips in each kind of structure, of up to [`BITS_MAX`] bits each.
const FLIPS: u64 = 60;
const BITS_MAX: u64 = 8;

/// The bucket that is created last, and is not requested.
const LAST: &str = "last";

/// The length of a table's footer.
const FOOTER_BYTES: u64 = 48;

/// The structures on the device: name, and ranges in bytes.
type Regions = Vec<(&'static str, Vec<Range<u64>>)>;

/// Requests and their answers.
type Answers = Vec<(String, Result<Bytes>)>;

/// A drive, and its expected contents.
struct Fixture {
    device: SimDevice,
    /// Versions in the versioned bucket.
    versions: Vec<(ObjectKey, String)>,
    upload: String,
    regions: Regions,
}

fn named(name: &str) -> ObjectKey {
    ObjectKey::new(Bytes::copy_from_slice(name.as_bytes())).unwrap()
}

fn options(read_only: bool) -> OpenOptions {
    OpenOptions { read_cache_bytes: 0, read_only, ..OpenOptions::default() }
}

fn described() -> PutOptions {
    let user = [("by".to_owned(), "tests".to_owned())].into();
    let attributes = Attributes { user, content_type: Some("text/plain".into()), ..Attributes::default() };
    let tags = Tags::from([("a".into(), "b".into())]);
    PutOptions { attributes, tags, ..PutOptions::default() }
}

/// Makes a drive with everything that a drive can hold, in two tables and, unless it was closed, partly in the log.
async fn full_drive(is_closed: bool) -> Fixture {
    let device = formatted();
    let drive = open_with(&device, options(false)).unwrap();
    fill(&drive).await;
    let store = Buckets::open(&drive, "photos").await.unwrap();
    store.put(&named("described"), body(2).into(), described()).await.unwrap();
    let parts = store.multipart(&named("joined"), Attributes::default(), Tags::new()).await.unwrap();
    parts.put_part(1, vec![7; 5 << 20].into()).await.unwrap();
    parts.put_part(2, body(2).into()).await.unwrap();
    parts.complete(Default::default()).await.unwrap();
    store.settings().unwrap().set("policy", Some(Bytes::from_static(b"{}"))).await.unwrap();
    drive.close().await.unwrap();
    let versions = versions_of(&drive).await;
    let uploads = store.uploads().unwrap();
    let upload = uploads.begin(&named("begun"), Attributes::default(), Tags::new()).await.unwrap();
    let bytes = futures_util::stream::iter([Ok(body(3))]);
    uploads.put_part(&named("begun"), &upload, 1, Box::pin(bytes), Box::new(|| Ok(None))).await.unwrap();
    if is_closed {
        drive.close().await.unwrap();
    }
    // Damage of the last frame cannot be reported from a torn write, so the last frame holds something that is not requested.
    drive.create(LAST).await.unwrap();
    if is_closed {
        drive.close().await.unwrap();
    }
    drop((store, drive));
    let regions = regions(&device).await;
    Fixture { device, versions, upload, regions }
}

/// Makes a versioned bucket with some versions.
async fn versions_of(drive: &Drive) -> Vec<(ObjectKey, String)> {
    drive.create("versioned").await.unwrap();
    let store = Buckets::open(drive, "versioned").await.unwrap();
    store.versions().unwrap().set_state(Versioning::Enabled).await.unwrap();
    for number in [1, 4, 2] {
        store.put(&key(0), body(number).into(), described()).await.unwrap();
    }
    store.delete(&key(0), Default::default()).await.unwrap();
    let all =
        store.versions().unwrap().list(ListVersions { limit: 100, ..Default::default() }).await.unwrap();
    let all = all.iter().map(|entry| match entry {
        store::VersionEntry::Version(version) => (version.key.clone(), version.id.to_string()),
        store::VersionEntry::Prefix(_) => panic!("nothing is folded"),
    });
    all.collect()
}

/// Finds the structures: by reads of them, and by the uses of zones.
async fn regions(device: &SimDevice) -> Regions {
    let device = device.fork();
    device.take_operations();
    let of = |kind: OperationKind| {
        let done = device.take_operations();
        let ranges = |done: &Operation| done.at..done.at + done.len;
        done.iter().filter(|done| done.kind == kind).map(ranges).collect::<Vec<_>>()
    };
    let drive = open_with(&device, options(true)).unwrap();
    let mut opened = of(OperationKind::Read);
    let superblocks = opened.drain(..2).collect();
    let manifest = written(&device, opened.remove(0));
    let tables = drive.info().tables.len();
    let footer = |tail: &Range<u64>| written(&device, tail.clone());
    let footers = opened[..tables].iter().map(footer).map(|tail| tail.end - FOOTER_BYTES..tail.end).collect();
    drive.check().await.unwrap();
    let tables = of(OperationKind::Read).into_iter().map(|read| written(&device, read)).collect();
    of(OperationKind::Read);
    let store = Buckets::open(&drive, "photos").await.unwrap();
    store.head(&key(4)).await.unwrap();
    of(OperationKind::Read);
    let large = store.get(&key(4), GetOptions::default()).await.unwrap();
    large.body.try_collect::<Vec<Bytes>>().await.unwrap();
    let run = of(OperationKind::Read);
    let end = run.iter().map(|read| read.end).max().unwrap();
    let sums = end - BLOCK_BYTES..end;
    let run = run.into_iter().map(|read| read.start..read.end.min(sums.start));
    let run = run.filter(|data| !data.is_empty()).collect();
    let small = store.get(&key(2), GetOptions::default()).await.unwrap();
    small.body.try_collect::<Vec<Bytes>>().await.unwrap();
    let piece = of(OperationKind::Read);
    let zones = zones(&drive);
    let frames = |range: Range<u64>| range.start..range.end.min(range.start + (256 << 10));
    let is_pack = |used: &ZoneUse| matches!(used, ZoneUse::Pack { .. });
    vec![
        ("superblocks", superblocks),
        ("manifest", vec![manifest]),
        ("tables", tables),
        ("footers of tables", footers),
        ("data of a run", run),
        ("sums of a run", vec![written(&device, sums)]),
        ("an object in a frame", piece),
        (
            "frames",
            zones.iter().filter(|(_, used)| is_pack(used)).map(|(at, _)| frames(at.clone())).collect(),
        ),
        (
            "free space",
            zones.into_iter().filter(|(_, used)| *used == ZoneUse::Free).map(|(at, _)| at).collect(),
        ),
        ("all of it", vec![0..DEVICE_BYTES]),
    ]
}

/// Returns a range without the zeros at its end.
fn written(device: &SimDevice, range: Range<u64>) -> Range<u64> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    device.read_at(range.start, &mut bytes).unwrap();
    let len = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64 + 1;
    range.start..range.start + len
}

fn zones(drive: &Drive) -> Vec<(Range<u64>, ZoneUse)> {
    let len = drive.info().zone_bytes;
    (0_u64..).map(|n| n * len..(n + 1) * len).zip(drive.map()).collect()
}

/// Requests everything from a drive.
async fn request_all(drive: &Drive, fixture: &Fixture) -> Answers {
    let mut answers = Answers::new();
    let as_bytes = |answer: Result<String>| answer.map(Bytes::from);
    let buckets = Buckets::list(drive).await;
    let buckets =
        buckets.map(|all| all.into_iter().filter(|name| name != LAST).collect::<Vec<_>>().join(" "));
    answers.push(("the buckets".into(), as_bytes(buckets)));
    for bucket in ["photos", "versioned"] {
        let store = match Buckets::open(drive, bucket).await {
            Ok(store) => store,
            Err(error) => {
                answers.push((format!("bucket {bucket}"), Err(error)));
                continue;
            }
        };
        let all = ListRequest { limit: 100, ..ListRequest::default() };
        let folded = ListRequest { prefix: "object".into(), delimiter: Some(b'-'), ..all.clone() };
        for (how, request) in [("plain", all), ("folded", folded)] {
            let page = store.list(request).await;
            answers.push((
                format!("a {how} listing of {bucket}"),
                as_bytes(page.map(|page| format!("{page:?}"))),
            ));
        }
        let policy = store.settings().unwrap().get("policy").await;
        answers
            .push((format!("a setting of {bucket}"), as_bytes(policy.map(|policy| format!("{policy:?}")))));
        let versions = store.versions().unwrap();
        let all = versions.list(ListVersions { limit: 100, ..Default::default() }).await;
        answers.push((format!("the versions in {bucket}"), as_bytes(all.map(|all| format!("{all:?}")))));
    }
    if let Ok(store) = Buckets::open(drive, "photos").await {
        let keys = (0..6).map(key).chain([named("described"), named("joined")]);
        for one in keys {
            let object = store.get(&one, GetOptions::default()).await;
            answers.push((format!("the bytes of {one}"), read(object).await));
            answers.push((
                format!("the head of {one}"),
                as_bytes(store.head(&one).await.map(|head| format!("{head:?}"))),
            ));
            answers.push((
                format!("the tags of {one}"),
                as_bytes(store.tags(&one).await.map(|tags| format!("{tags:?}"))),
            ));
        }
        let range = GetOptions { range: Some(100_000..170_000), ..GetOptions::default() };
        answers.push(("a range".into(), read(store.get(&key(4), range).await).await));
        let uploads = store.uploads().unwrap();
        answers.push(("the uploads".into(), as_bytes(uploads.list(b"").await.map(|all| format!("{all:?}")))));
        let parts = uploads.parts(&named("begun"), &fixture.upload).await;
        answers.push(("the parts".into(), as_bytes(parts.map(|parts| format!("{parts:?}")))));
    }
    if let Ok(store) = Buckets::open(drive, "versioned").await {
        for (one, id) in &fixture.versions {
            let version = GetOptions { version: Some(id.as_str().into()), ..GetOptions::default() };
            answers.push((format!("version {id} of {one}"), read(store.get(one, version).await).await));
        }
    }
    answers
}

async fn read(object: Result<store::Object>) -> Result<Bytes> {
    let pieces: Vec<Bytes> = object?.body.try_collect().await?;
    Ok(pieces.concat().into())
}

/// Compares answers with the expected ones. Returns the number of errors. Answers must be equal, as a wrong "not found" would be no error.
fn compare(expected: &Answers, answers: &Answers, what: &str) -> usize {
    let mut unanswered = 0;
    for (question, answer) in answers {
        match answer {
            Ok(answer) => {
                let known = expected.iter().find(|(known, _)| known == question);
                let known = known.and_then(|(_, known)| known.as_ref().ok());
                assert!(
                    known == Some(answer),
                    "{what}: {question}: {}",
                    String::from_utf8_lossy(&answer[..answer.len().min(500)])
                );
            }
            Err(error) => {
                let was =
                    expected.iter().any(|(known, known_answer)| known == question && known_answer.is_err());
                unanswered += usize::from(!was);
                let is_damage = matches!(error, StoreError::Corrupt(_) | StoreError::Unavailable(_));
                assert!(was || is_damage, "{what}: {question}: {error}");
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    unanswered
}

/// Outcomes of flips in one kind of structure.
#[derive(Debug, Default)]
struct Outcome {
    refused: u64,
    unanswered: u64,
    reported: u64,
}

/// Flips bits of a region and requests everything.
async fn flip(
    fixture: &Fixture,
    expected: &Answers,
    (name, ranges): &(&str, Vec<Range<u64>>),
    seed: u64,
) -> Outcome {
    let (device, entropy) = (fixture.device.fork(), Entropy::new(seed));
    let what = format!("{name}, seed {seed}");
    for _ in 0..1 + entropy.below(BITS_MAX) {
        let range = &ranges[entropy.below(ranges.len() as u64) as usize];
        device.flip(entropy.next_u64(), range.clone());
    }
    let drive = match open_with(&device, options(seed.is_multiple_of(2))) {
        Ok(drive) => drive,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("damaged: ") && !text.contains('\n'), "{what}: {text}");
            return Outcome { refused: 1, ..Outcome::default() };
        }
    };
    let unanswered = compare(expected, &request_all(&drive, fixture).await, &what) > 0;
    let checked = drive.check().await.map(|checked| checked.problems);
    let scrubbed = drive.scrub(|_| ()).await.unwrap().damaged;
    let is_reported =
        checked.is_err() || checked.is_ok_and(|found| !found.is_empty()) || !scrubbed.is_empty();
    assert!(!scrubbed.is_empty() || !unanswered, "{what}: the scrub did not report what could not be read");
    Outcome { refused: 0, unanswered: unanswered.into(), reported: is_reported.into() }
}

async fn flips(is_closed: bool) {
    let fixture = full_drive(is_closed).await;
    let whole = open_with(&fixture.device.fork(), options(true)).unwrap();
    let expected = request_all(&whole, &fixture).await;
    drop(whole);
    for region in &fixture.regions {
        let mut sum = Outcome::default();
        for seed in 0..FLIPS {
            let Outcome { refused, unanswered, reported } = flip(&fixture, &expected, region, seed).await;
            sum.refused += refused;
            sum.unanswered += unanswered;
            sum.reported += reported;
        }
        println!("{}: {sum:?}", region.0);
        match region.0 {
            "free space" => assert_eq!(sum.refused + sum.unanswered + sum.reported, 0),
            "all of it" => {}
            // The other copy is intact, so nothing is lost.
            "superblocks" => assert!(sum.refused < FLIPS && sum.unanswered + sum.reported == 0, "{sum:?}"),
            "manifest" | "footers of tables" => assert_eq!(sum.refused, FLIPS, "{}", region.0),
            name => assert!(sum.refused + sum.reported > 0, "{name}: {sum:?}"),
        }
    }
}

#[tokio::test]
async fn flipped_bits_of_a_drive_that_was_closed_are_an_error_or_change_nothing() {
    flips(true).await;
}

#[tokio::test]
async fn flipped_bits_of_a_drive_that_was_not_closed_are_an_error_or_change_nothing() {
    flips(false).await;
}

/// Data on unreadable blocks is an error while they are unreadable; all other data can be read.
#[tokio::test]
async fn failed_reads_are_errors_of_the_data_on_those_blocks() {
    let fixture = full_drive(true).await;
    let drive = open_with(&fixture.device, OpenOptions { index_bytes: 0, ..options(false) }).unwrap();
    let expected = request_all(&drive, &fixture).await;
    for (name, ranges) in &fixture.regions {
        ranges.iter().for_each(|range| fixture.device.fail_reads(range.clone()));
        let unanswered = compare(&expected, &request_all(&drive, &fixture).await, name);
        match *name {
            "superblocks" | "manifest" | "free space" => assert_eq!(unanswered, 0, "{name}"),
            "data of a run" | "sums of a run" => {
                assert_eq!(unanswered, 2, "{name}: the object, and a range of it")
            }
            _ => assert!(unanswered > 0, "{name}"),
        }
        fixture.device.heal();
        assert_eq!(compare(&expected, &request_all(&drive, &fixture).await, name), 0, "{name}");
    }
}
