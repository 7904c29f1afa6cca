//! Refused ops: what they would have made keeps its bytes under other names.

use crate::fixture::{USER, Volume, context, create, name, terms};
use batch::{JobOptions, MergeError, Merged, Proof, Rejected, SealedBatch, Terms};
use meta::{AttrChanges, Extent, Ino, Kind, Limits, Op, RenameHow, Stored, namespace};
use std::ops::Range;
use store::{ETag, ObjectKey};

/// Prefix of the keys of the batch's objects.
const PREFIX: &[u8] = b".tenon/batches/1/";

fn extent(object: &str, len: u64) -> Extent {
    let key = ObjectKey::new([PREFIX, object.as_bytes()].concat()).unwrap();
    let object = Stored { key: Some(key), etag: ETag::new(object), version: None, last_modified: None };
    Extent { offset: 0, len, object, object_offset: 0 }
}

pub(crate) fn write(ino: Ino, object: &str) -> Op {
    let ranges = vec![Range { start: 0, end: u64::MAX }];
    Op::Splice { ino, ranges, content: vec![extent(object, 5)], size_bytes: 5, mtime: None }
}

fn keeping(lease: &Range<Ino>) -> Terms {
    Terms { content: Some(PREFIX.into()), keeps_refused: true, ..terms(lease) }
}

type Memory = Volume<meta::MemoryEngine>;

fn merge(volume: &Memory, batch: &SealedBatch, lease: &Range<Ino>, proof: Proof) -> Merged {
    let scratch = tempfile::tempdir_in(volume.folder.path()).unwrap();
    batch::merge(&*volume.engine, batch, &keeping(lease), scratch.path(), proof).unwrap()
}

/// Returns the object of the file at a path.
fn object(volume: &Memory, path: &[&str]) -> Option<String> {
    let mut at = Ino::ROOT;
    for part in path {
        at = volume.namespace.entry(at, &name(part)).unwrap()?.ino;
    }
    let (_, content) = volume.namespace.content(at).unwrap();
    content.first().map(|extent| extent.object.etag.to_string())
}

#[test]
fn a_file_whose_name_is_taken_gets_another_name() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let (file, other) = (job.allocate(volume.home).unwrap(), job.allocate(volume.home).unwrap());
    let mut now = 200;
    let mut apply = |op: Op| {
        now += 1;
        job.apply(&context(USER, now), &op).unwrap();
    };
    apply(create(USER, volume.home, "a", file, Kind::File, 0o644));
    apply(write(file, "x"));
    // Later ops follow the file: this rename must not take the file of the other client.
    apply(create(USER, volume.home, "b", other, Kind::File, 0o644));
    apply(write(other, "y"));
    apply(Op::Unlink { parent: volume.home, name: name("b"), keep: false });
    let batch = job.seal().unwrap();
    let theirs = volume.create(USER, volume.home, "a", Kind::File, 0o644);
    let their_other = volume.create(USER, volume.home, "b", Kind::File, 0o644);
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(
        merged.refused.iter().map(|refused| refused.kept).collect::<Vec<_>>(),
        [Some(file), Some(other)]
    );
    let kept = format!("a.batch-{:x}", lease.start.0);
    assert_eq!(object(&volume, &["home", &kept]).as_deref(), Some("x"));
    let there = |text| volume.namespace.entry(volume.home, &name(text)).unwrap().unwrap().ino;
    assert_eq!((there("a"), there("b")), (theirs, their_other), "the files of others are untouched");
    let recorded = namespace::read_refused_ops(&*volume.engine, keeping(&lease).id(), 0, 10).unwrap();
    assert_eq!(recorded.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((recorded[0].1.kept, &*recorded[0].1.why), (Some(file), "the name already exists"));
    volume.assert_serial();
}

#[test]
fn a_directory_that_both_have_created_is_one_directory() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let dir = job.allocate(volume.home).unwrap();
    let file = job.allocate(dir).unwrap();
    job.apply(&context(USER, 200), &create(USER, volume.home, "d", dir, Kind::Directory, 0o755)).unwrap();
    job.apply(&context(USER, 201), &create(USER, dir, "mine", file, Kind::File, 0o644)).unwrap();
    job.apply(&context(USER, 202), &write(file, "x")).unwrap();
    let batch = job.seal().unwrap();
    let theirs = volume.create(USER, volume.home, "d", Kind::Directory, 0o755);
    volume.create(USER, theirs, "theirs", Kind::File, 0o644);
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused, []);
    assert_eq!(object(&volume, &["home", "d", "mine"]).as_deref(), Some("x"));
    volume.assert_serial();
}

#[test]
fn files_without_a_place_go_to_lost_and_found() {
    let volume = Volume::in_memory();
    let gone = volume.create(USER, volume.home, "gone", Kind::Directory, 0o755);
    let deleted = volume.create(USER, volume.home, "deleted", Kind::File, 0o644);
    let closed = volume.create(USER, volume.home, "closed", Kind::File, 0o644);
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let file = job.allocate(gone).unwrap();
    job.apply(&context(USER, 200), &create(USER, gone, "f", file, Kind::File, 0o644)).unwrap();
    job.apply(&context(USER, 201), &write(file, "x")).unwrap();
    job.apply(&context(USER, 202), &write(deleted, "y")).unwrap();
    job.apply(&context(USER, 203), &write(closed, "z")).unwrap();
    let batch = job.seal().unwrap();
    let act = |op: &Op| drop(volume.namespace.commit(&context(0, 300), op).unwrap());
    act(&Op::Rmdir { parent: volume.home, name: name("gone") });
    act(&Op::Unlink { parent: volume.home, name: name("deleted"), keep: false });
    let (mode, uid) = (Some(0o600), Some(0));
    act(&Op::SetAttr { ino: closed, changes: AttrChanges { mode, uid, ..AttrChanges::default() } });
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused.len(), 3);
    let id = keeping(&lease).id().to_string();
    let lost = |file: &str| object(&volume, &["lost+found", &id, file]);
    assert_eq!(lost("0-f").as_deref(), Some("x"));
    assert_eq!(lost(&format!("2-inode-{deleted}")).as_deref(), Some("y"));
    assert_eq!(lost(&format!("3-inode-{closed}")).as_deref(), Some("z"));
    assert_eq!(object(&volume, &["home", "closed"]), None, "a file that was closed to the user is unchanged");
    volume.assert_serial();
}

/// Files with content are proven by their rows, unless the content is not the batch's.
#[test]
fn content_is_proven_by_rows() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let (file, linked) = (job.allocate(volume.home).unwrap(), job.allocate(volume.home).unwrap());
    for (ino, text) in [(file, "a"), (linked, "b")] {
        job.apply(&context(USER, 200), &create(USER, volume.home, text, ino, Kind::File, 0o444)).unwrap();
    }
    let mtime = Some(store::Timestamp(205));
    for ino in [file, linked] {
        let Op::Splice { ino, ranges, content, size_bytes, .. } = write(ino, "x") else { unreachable!() };
        let op = Op::Splice { ino, ranges, content, size_bytes, mtime };
        job.apply(&context(USER, 210), &op).unwrap();
    }
    let link = Op::Link { ino: linked, parent: volume.home, name: name("c") };
    job.apply(&context(USER, 211), &link).unwrap();
    let batch = job.seal().unwrap();
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!((merged.proof, merged.refused), (Some(Proof::Reduced), vec![]));
    assert_eq!(object(&volume, &["home", "a"]).as_deref(), Some("x"));
    assert_eq!(object(&volume, &["home", "c"]).as_deref(), Some("x"));
    volume.assert_serial();
}

/// A regression test: an error inside a rescue, such as that of a quota, was dropped together with the bytes. The batch was merged without
/// the file, and without the records of what had been made for it.
#[test]
fn s611_a_batch_whose_refused_file_finds_no_room_is_not_merged() {
    for files in [0, 1, 2] {
        let volume = Volume::in_memory();
        let deleted = volume.create(USER, volume.home, "deleted", Kind::File, 0o644);
        let (mut job, lease) = volume.begin("job", JobOptions::default());
        job.apply(&context(USER, 200), &write(deleted, "x")).unwrap();
        let batch = job.seal().unwrap();
        let unlink = Op::Unlink { parent: volume.home, name: name("deleted"), keep: false };
        volume.namespace.commit(&context(0, 300), &unlink).unwrap();
        // `lost+found`, the directory of the batch and the file are three.
        let limit = |files| Some(Limits { bytes: None, files: Some(files) });
        let set = |limits| volume.namespace.set_quota(&context(0, 301), Ino::ROOT, limits).unwrap();
        set(limit(0));
        let used = volume.namespace.quota(Ino::ROOT).unwrap().unwrap().used.files as u64;
        set(limit(used + files));
        let before = volume.logged();
        let scratch = tempfile::tempdir_in(volume.folder.path()).unwrap();
        let merge =
            || batch::merge(&*volume.engine, &batch, &keeping(&lease), scratch.path(), Proof::Reduced);
        let error = merge().unwrap_err();
        assert!(matches!(error, MergeError::Rejected(Rejected::Quota(_))), "{error}");
        assert_eq!(volume.logged(), before);
        set(limit(used + 3));
        assert!(merge().unwrap().refused[0].kept.is_some());
        let id = keeping(&lease).id().to_string();
        let path = ["lost+found", &id, &format!("0-inode-{deleted}")];
        assert_eq!(object(&volume, &path).as_deref(), Some("x"));
        volume.assert_serial();
    }
}

/// A regression test: if `lost+found` was a file, or the name in it was taken, the bytes of a refused file were dropped.
#[test]
fn taken_names_of_lost_and_found_are_avoided() {
    let volume = Volume::in_memory();
    let gone = volume.create(USER, volume.home, "gone", Kind::Directory, 0o755);
    volume.create(0, Ino::ROOT, "lost+found", Kind::File, 0o644);
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let id = keeping(&lease).id().to_string();
    let lost = format!("lost+found.batch-{:x}", lease.start.0);
    let file = job.allocate(gone).unwrap();
    job.apply(&context(USER, 200), &create(USER, gone, "f", file, Kind::File, 0o644)).unwrap();
    job.apply(&context(USER, 201), &write(file, "x")).unwrap();
    let batch = job.seal().unwrap();
    volume
        .namespace
        .commit(&context(0, 300), &Op::Rmdir { parent: volume.home, name: name("gone") })
        .unwrap();
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused[0].kept, Some(file));
    assert_eq!(object(&volume, &[&lost, &id, "0-f"]).as_deref(), Some("x"));
    volume.assert_serial();
}

/// A regression test: a batch removed and replaced files that others had created or renamed to the same names, and that its job had never seen.
#[test]
fn s610_files_that_the_job_has_not_seen_are_neither_removed_nor_replaced() {
    let volume = Volume::in_memory();
    for text in ["removed", "moved", "replaced"] {
        volume.create(USER, volume.home, text, Kind::File, 0o644);
    }
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let mut now = 200;
    let mut apply = |op: Op| {
        now += 1;
        job.apply(&context(USER, now), &op).unwrap();
    };
    let rename = |from: &str, to: &str| {
        let (from, to) = ((volume.home, name(from)), (volume.home, name(to)));
        Op::Rename { from, to, how: RenameHow::Replace, keep: false }
    };
    let unlink = |text: &str| Op::Unlink { parent: volume.home, name: name(text), keep: false };
    apply(unlink("removed"));
    apply(rename("moved", "new"));
    // These act on the file that could not be moved.
    apply(rename("new", "newer"));
    apply(unlink("newer"));
    let batch = job.seal().unwrap();
    let act = |op: &Op| drop(volume.namespace.commit(&context(0, 300), op).unwrap());
    act(&unlink("removed"));
    let removed = volume.create(USER, volume.home, "removed", Kind::File, 0o644);
    let new = volume.create(USER, volume.home, "new", Kind::File, 0o644);
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [0, 1]);
    let there = |text| volume.namespace.entry(volume.home, &name(text)).unwrap().map(|entry| entry.ino);
    assert_eq!((there("removed"), there("new")), (Some(removed), Some(new)));
    assert_eq!((there("moved"), there("newer")), (None, None), "later ops followed the file");
    volume.assert_serial();
}

/// A regression test: the bytes of a file whose further name was taken were lost when the job removed its first name.
#[test]
fn s612_a_further_name_that_is_taken_becomes_another_name() {
    let volume = Volume::in_memory();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let file = job.allocate(volume.home).unwrap();
    job.apply(&context(USER, 200), &create(USER, volume.home, "first", file, Kind::File, 0o644)).unwrap();
    job.apply(&context(USER, 201), &write(file, "x")).unwrap();
    job.apply(&context(USER, 202), &Op::Link { ino: file, parent: volume.home, name: name("further") })
        .unwrap();
    let unlink = Op::Unlink { parent: volume.home, name: name("first"), keep: false };
    job.apply(&context(USER, 203), &unlink).unwrap();
    let batch = job.seal().unwrap();
    volume.create(USER, volume.home, "further", Kind::File, 0o644);
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused.iter().map(|refused| refused.kept).collect::<Vec<_>>(), [Some(file)]);
    let kept = format!("further.batch-{:x}", lease.start.0);
    assert_eq!(object(&volume, &["home", &kept]).as_deref(), Some("x"));
    volume.assert_serial();
}

/// A regression test, found by `sim::batches`: a batch wrote to a file and removed one of its two names, others removed the other one, and the
/// bytes were gone.
#[test]
fn s612_a_name_that_has_become_the_last_one_stays() {
    let volume = Volume::in_memory();
    let file = volume.create(USER, volume.home, "one", Kind::File, 0o644);
    let act = |op: &Op| drop(volume.namespace.commit(&context(0, 3), op).unwrap());
    let unlink = |text: &str| Op::Unlink { parent: volume.home, name: name(text), keep: false };
    act(&Op::Link { ino: file, parent: volume.home, name: name("two") });
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    job.apply(&context(USER, 200), &write(file, "x")).unwrap();
    job.apply(&context(USER, 201), &unlink("one")).unwrap();
    let batch = job.seal().unwrap();
    act(&unlink("two"));
    let merged = merge(&volume, &batch, &lease, Proof::Reduced);
    assert_eq!(merged.refused.iter().map(|refused| refused.index).collect::<Vec<_>>(), [1]);
    assert_eq!(object(&volume, &["home", "one"]).as_deref(), Some("x"));
    volume.assert_serial();
}
