//! The rules of each op.

use crate::fixture::{Fixture, name};
use crate::strategies::at;
use meta::{
    AttrChanges, Batch, BatchOutcome, Commit, Content, Engine, Extent, FsError, Ino, Kind, Moment, Observed,
    Op, RefusedOp, RenameHow, Stored, namespace, schema,
};
use store::{ETag, Timestamp};

const ROOT: Ino = Ino::ROOT;

#[test]
fn a_new_namespace_has_a_root() {
    let fs = Fixture::new();
    let root = fs.namespace.inode(ROOT).unwrap();
    assert_eq!((root.kind, root.mode, root.uid, root.nlink), (Kind::Directory, 0o755, 1000, 2));
    assert!(fs.namespace.path(ROOT).unwrap().is_empty());
    assert!(fs.names(ROOT).is_empty());
}

#[test]
fn create_makes_an_inode_and_touches_its_directory() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    assert_eq!(fs.namespace.inode(ROOT).unwrap().nlink, 3);
    let file = fs.file(dir, "f");
    assert_eq!(fs.namespace.inode(dir).unwrap().mtime, fs.now());
    assert_eq!(fs.namespace.path(file).unwrap(), [name("d"), name("f")]);
    assert_eq!(fs.make(dir, "f", Kind::File, 0).unwrap_err(), FsError::Exists);
    assert_eq!(fs.make(file, "x", Kind::File, 0).unwrap_err(), FsError::NotDirectory);
    assert_eq!(fs.make(Ino(999), "x", Kind::File, 0).unwrap_err(), FsError::NotFound);
    assert_eq!(fs.make(dir, "s", Kind::Symlink, 0o777).unwrap().size_bytes, 6);
}

#[test]
fn unlink_removes_or_orphans() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    let applied = fs.unlink(ROOT, "f", false).unwrap();
    assert_eq!(applied.removed.unwrap().ino, file);
    assert_eq!(fs.namespace.inode(file), Err(FsError::NotFound));

    let open = fs.file(ROOT, "g");
    let applied = fs.unlink(ROOT, "g", true).unwrap();
    assert!(applied.orphaned && applied.removed.unwrap().home.is_some());
    assert!(fs.namespace.inode(open).unwrap().is_orphan());
    assert_eq!(fs.namespace.orphans(None, 10).unwrap(), [open]);
    fs.apply(Op::Purge { ino: open }).unwrap();
    assert_eq!(fs.namespace.inode(open), Err(FsError::NotFound));
    assert_eq!(fs.apply(Op::Purge { ino: open }).unwrap_err(), FsError::NotFound);
}

/// Waiting exports used to be kept in memory only, and were lost with the process.
#[test]
fn an_export_waits_until_the_last_change_is_exported() {
    let fs = Fixture::new();
    let (file, other) = (fs.file(ROOT, "f"), fs.file(ROOT, "g"));
    let waiting = || fs.namespace.waiting_exports(None, 10).unwrap();
    assert_eq!(fs.namespace.waiting_export(file).unwrap(), None);
    for ino in [file, other, file] {
        fs.apply(Op::AwaitExport { ino }).unwrap();
    }
    assert_eq!(waiting(), [file, other]);
    assert_eq!(fs.namespace.waiting_exports(Some(file), 10).unwrap(), [other]);
    let change = fs.namespace.waiting_export(file).unwrap().unwrap();
    fs.apply(Op::Exported { ino: file, change: change - 1 }).unwrap();
    assert_eq!(waiting(), [file, other], "there is a later change");
    fs.apply(Op::Exported { ino: file, change }).unwrap();
    assert_eq!(waiting(), [other]);
    // Two exports of the same change were in progress. The file was changed between their ends, and its new mode was lost (world of
    // files 2002332).
    fs.apply(Op::AwaitExport { ino: file }).unwrap();
    fs.apply(Op::Exported { ino: file, change }).unwrap();
    assert_eq!(waiting(), [file, other]);
    let change = fs.namespace.waiting_export(file).unwrap().unwrap();
    fs.apply(Op::Exported { ino: file, change }).unwrap();
    assert_eq!(waiting(), [other]);
    fs.unlink(ROOT, "g", false).unwrap();
    assert_eq!(waiting(), [], "the record is removed with the inode");
    assert_eq!(fs.apply(Op::AwaitExport { ino: other }).unwrap_err(), FsError::NotFound);
}

#[test]
fn rename_replaces_and_moves_primary_names() {
    let fs = Fixture::new();
    let (a, b) = (fs.dir(ROOT, "a"), fs.dir(ROOT, "b"));
    let file = fs.file(a, "f");
    let old = fs.file(b, "g");
    let applied = fs.rename((a, "f"), (b, "g"), RenameHow::Replace).unwrap();
    assert_eq!(applied.removed.unwrap().ino, old);
    assert_eq!(fs.namespace.path(file).unwrap(), [name("b"), name("g")]);
    assert_eq!(fs.find(a, "f"), None);
    fs.rename((ROOT, "b"), (a, "b"), RenameHow::Replace).unwrap();
    assert_eq!(fs.namespace.path(file).unwrap(), [name("a"), name("b"), name("g")]);
    assert_eq!(fs.namespace.inode(ROOT).unwrap().nlink, 3);
}

#[test]
fn rename_fails_as_posix_requires() {
    let fs = Fixture::new();
    let (a, b) = (fs.dir(ROOT, "a"), fs.dir(ROOT, "b"));
    let below = fs.dir(a, "below");
    fs.file(b, "f");
    fs.file(ROOT, "g");
    let fails = |from, to, how| fs.rename(from, to, how).unwrap_err();
    assert_eq!(fails((ROOT, "a"), (below, "x"), RenameHow::Replace), FsError::CrossesItself);
    assert_eq!(fails((ROOT, "a"), (a, "x"), RenameHow::Replace), FsError::CrossesItself);
    assert_eq!(fails((ROOT, "a"), (ROOT, "b"), RenameHow::Replace), FsError::NotEmpty);
    assert_eq!(fails((a, "below"), (ROOT, "a"), RenameHow::Replace), FsError::NotEmpty);
    assert_eq!(fails((ROOT, "g"), (ROOT, "a"), RenameHow::Replace), FsError::IsDirectory);
    assert_eq!(fails((ROOT, "a"), (ROOT, "g"), RenameHow::Replace), FsError::NotDirectory);
    assert_eq!(fails((ROOT, "g"), (b, "f"), RenameHow::NoReplace), FsError::Exists);
    assert_eq!(fails((ROOT, "g"), (b, "x"), RenameHow::Exchange), FsError::NotFound);
    assert_eq!(fails((ROOT, "x"), (b, "x"), RenameHow::Replace), FsError::NotFound);
    assert_eq!(fails((ROOT, "a"), (below, "x"), RenameHow::Exchange), FsError::NotFound);
    assert_eq!(fails((ROOT, "a"), (a, "below"), RenameHow::Exchange), FsError::CrossesItself);
}

fn stored(etag: &str) -> Stored {
    Stored { key: None, etag: ETag::new(etag), version: None, last_modified: None }
}

fn whole(etag: &str, len: u64) -> Vec<Extent> {
    vec![Extent { offset: 0, len, object: stored(etag), object_offset: 0 }]
}

fn seen(fs: &Fixture, etag: &str, size_bytes: u64, exact: bool) -> Observed {
    Observed {
        kind: Kind::File,
        size_bytes,
        object: Some(stored(etag)),
        mode: 0o600,
        uid: 7,
        gid: 7,
        rdev: 0,
        atime: fs.now(),
        mtime: fs.now(),
        ctime: fs.now(),
        btime: fs.now(),
        target: None,
        exact,
        looked_at: at(fs.now()),
    }
}

#[test]
fn the_first_name_is_primary_until_it_is_removed() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    let file = fs.file(ROOT, "first");
    for text in ["b", "a"] {
        fs.apply(Op::Link { ino: file, parent: dir, name: name(text) }).unwrap();
    }
    assert_eq!(fs.namespace.inode(file).unwrap().nlink, 3);
    assert_eq!(fs.namespace.path(file).unwrap(), [name("first")]);
    let before = fs.namespace.inode(file).unwrap();
    let handed = fs.apply(Op::HandOn { ino: file, parent: dir, name: name("b") }).unwrap().inode.unwrap();
    assert_eq!(handed, meta::Inode { home: Some((dir, name("b"))), ..before });
    assert_eq!(
        fs.namespace.names(file).unwrap().len(),
        3,
        "the old primary name is still a name of the file"
    );
    let other = Op::HandOn { ino: file, parent: ROOT, name: name("d") };
    assert_eq!(fs.apply(other).unwrap_err(), FsError::NotFound, "the name of another inode");
    fs.apply(Op::HandOn { ino: file, parent: ROOT, name: name("first") }).unwrap();
    fs.unlink(ROOT, "first", false).unwrap();
    assert_eq!(fs.namespace.path(file).unwrap(), [name("d"), name("a")]);
    fs.rename((dir, "a"), (ROOT, "home"), RenameHow::Replace).unwrap();
    assert_eq!(fs.namespace.names(file).unwrap(), [(ROOT, name("home")), (dir, name("b"))]);
    assert_eq!(fs.rename((dir, "b"), (ROOT, "home"), RenameHow::Replace).unwrap().removed, None);
    assert_eq!(fs.namespace.inode(file).unwrap().nlink, 2, "both names refer to one inode: nothing happens");
    assert_eq!(
        fs.apply(Op::Link { ino: dir, parent: ROOT, name: name("x") }).unwrap_err(),
        FsError::IsDirectory
    );
}

#[test]
fn entries_of_a_set_group_directory_inherit_its_group() {
    let fs = Fixture::new();
    let dir = fs.make(ROOT, "d", Kind::Directory, 0o2775).unwrap().ino;
    let group = AttrChanges { gid: Some(55), ..AttrChanges::default() };
    fs.apply(Op::SetAttr { ino: dir, changes: group }).unwrap();
    let file = fs.make(dir, "f", Kind::File, 0o644).unwrap();
    let below = fs.make(dir, "below", Kind::Directory, 0o755).unwrap();
    assert_eq!((file.gid, file.mode), (55, 0o644));
    assert_eq!((below.gid, below.mode), (55, 0o2755));
    let plain = AttrChanges { mode: Some(0o755), ..AttrChanges::default() };
    fs.apply(Op::SetAttr { ino: dir, changes: plain }).unwrap();
    assert_eq!(fs.make(dir, "g", Kind::File, 0o644).unwrap().gid, 100);
}

#[test]
fn publish_requires_the_current_object_as_base() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    let publish = |base: Option<&str>, etag: &str, mtime| {
        let base = base.map(ETag::new);
        fs.apply(Op::Publish { ino: file, base, content: whole(etag, 9), size_bytes: 9, mtime })
    };
    let first = publish(None, "one", Some(fs.now())).unwrap().inode.unwrap();
    assert_eq!((first.size_bytes, first.object()), (9, Some(&stored("one"))));
    assert_eq!(publish(None, "two", None).unwrap_err(), FsError::StaleBase);
    assert_eq!(publish(Some("other"), "two", None).unwrap_err(), FsError::StaleBase);
    let again = publish(Some("one"), "two", None).unwrap().inode.unwrap();
    assert_eq!((again.mtime, again.ctime), (first.mtime, first.ctime), "without an mtime the times stay");
    let cut = AttrChanges { size_bytes: Some(0), ..AttrChanges::default() };
    let cut = fs.apply(Op::SetAttr { ino: file, changes: cut }).unwrap().inode.unwrap();
    assert_eq!(
        cut.content,
        Content::Inline(whole("two", 0)),
        "an emptied file still refers to the object that it replaces"
    );
}

#[test]
fn splice_replaces_only_its_ranges() {
    let fs = Fixture::new();
    let file = fs.file(ROOT, "f");
    let splice = |ranges: &[std::ops::Range<u64>], content: Vec<Extent>, size_bytes| {
        fs.apply(Op::Splice { ino: file, ranges: ranges.to_vec(), content, size_bytes, mtime: None })
    };
    let piece =
        |offset, len, etag, object_offset| Extent { offset, len, object: stored(etag), object_offset };
    let content = |applied: meta::Applied| fs.namespace.content_of(&applied.inode.unwrap()).unwrap();
    splice(&[0..u64::MAX], vec![piece(0, 100, "whole", 0)], 100).unwrap();
    let delta = vec![piece(10, 5, "delta", 0), piece(95, 20, "delta", 5)];
    let edited = content(splice(&[10..15, 40..50, 95..115], delta.clone(), 115).unwrap());
    let expected = [
        piece(0, 10, "whole", 0),
        delta[0].clone(),
        piece(15, 25, "whole", 15),
        piece(50, 45, "whole", 50),
        delta[1].clone(),
    ];
    assert_eq!(edited, expected, "a range without a new extent becomes a hole");
    let inode = fs.namespace.inode(file).unwrap();
    assert!(matches!(inode.content, Content::Rows(_)), "five extents have rows of their own");
    assert_eq!((inode.content.len(), inode.content.data_bytes()), (5, 105));
    let cut = content(splice(&[], vec![], 12).unwrap());
    assert_eq!(cut, [piece(0, 10, "whole", 0), piece(10, 2, "delta", 0)]);
    assert_eq!(content(splice(&[], vec![], 500).unwrap()), cut, "content that was cut off stays removed");
    let invalid =
        |outcome: Result<meta::Applied, FsError>| assert!(matches!(outcome, Err(FsError::Invalid(_))));
    invalid(splice(&[0..5], vec![piece(0, 6, "x", 0)], 500));
    invalid(splice(&[0..9], vec![piece(0, 6, "x", 0)], 5));
    invalid(splice(&[5..9, 0..6], vec![], 500));
    let dir = fs.dir(ROOT, "d");
    let on_dir = Op::Splice { ino: dir, ranges: vec![], content: vec![], size_bytes: 0, mtime: None };
    assert_eq!(fs.apply(on_dir).unwrap_err(), FsError::IsDirectory);
}

#[test]
fn listings_do_not_replace_authoritative_attributes() {
    let fs = Fixture::new();
    let ino = fs.namespace.allocate(ROOT, 1)[0];
    let import = |exact| Op::Import { parent: ROOT, name: name("f"), ino, seen: seen(&fs, "one", 5, exact) };
    let before = fs.namespace.inode(ROOT).unwrap();
    fs.apply(import(true)).unwrap();
    assert_eq!(fs.namespace.inode(ROOT).unwrap(), before, "an import does not change the directory");
    assert_eq!(fs.apply(import(true)).unwrap_err(), FsError::Exists);
    let refresh = |etag: &str, size, exact| {
        let seen = Observed { mode: 0o777, ..seen(&fs, etag, size, exact) };
        fs.apply(Op::Refresh { ino, seen }).unwrap().inode.unwrap()
    };
    let listed = refresh("one", 5, false);
    let looked_at = at(Timestamp(fs.now().0 - 1));
    assert_eq!((listed.mode, listed.exact, listed.observed_at), (0o600, true, looked_at));
    let changed = refresh("two", 6, false);
    assert_eq!((changed.mode, changed.exact, changed.size_bytes), (0o777, false, 6));
    assert!(refresh("two", 6, true).exact);
    fs.apply(Op::Evict { parent: ROOT, name: name("f") }).unwrap();
    assert_eq!(fs.find(ROOT, "f"), None);
    assert_eq!(fs.namespace.inode(ROOT).unwrap(), before);
}

/// A kill between the upload and its commit took the later mode of the file: the upload had begun with the earlier one (world of files 64002055).
/// The object of another client replaces the attributes.
#[test]
fn an_object_of_the_write_back_log_does_not_replace_attributes_that_wait_to_be_exported() {
    let ours = ETag::provisional(7);
    for (etag, mode, is_waiting) in [(ours.as_str(), 0o700, true), ("theirs", 0o755, false)] {
        let fs = Fixture::new();
        let ino = fs.namespace.allocate(ROOT, 1)[0];
        let import = Op::Import { parent: ROOT, name: name("f"), ino, seen: seen(&fs, "one", 5, true) };
        fs.apply(import).unwrap();
        let changes = AttrChanges { mode: Some(0o700), ..AttrChanges::default() };
        fs.apply(Op::SetAttr { ino, changes }).unwrap();
        fs.apply(Op::AwaitExport { ino }).unwrap();
        let seen = Observed { mode: 0o755, ..seen(&fs, etag, 6, true) };
        let inode = fs.apply(Op::Refresh { ino, seen }).unwrap().inode.unwrap();
        assert_eq!((inode.size_bytes, inode.mode), (6, mode), "{etag}");
        assert_eq!(fs.namespace.waiting_export(ino).unwrap().is_some(), is_waiting, "{etag}");
    }
}

/// A kill took the commit of an upload from the write-back log, and damage the log's record of it. The object is ours if it has the length and the
/// mtime that the inode had in the log (world of files 65006365).
#[test]
fn an_object_that_was_uploaded_from_the_log_does_not_replace_attributes_that_wait_to_be_exported() {
    let logged = ETag::provisional(7);
    for (is_changed, mode) in [(false, 0o700), (true, 0o755)] {
        let fs = Fixture::new();
        let ino = fs.namespace.allocate(ROOT, 1)[0];
        let written = seen(&fs, logged.as_str(), 5, true);
        fs.apply(Op::Import { parent: ROOT, name: name("f"), ino, seen: written.clone() }).unwrap();
        let changes = AttrChanges { mode: Some(0o700), ..AttrChanges::default() };
        fs.apply(Op::SetAttr { ino, changes }).unwrap();
        fs.apply(Op::AwaitExport { ino }).unwrap();
        let mtime = Timestamp(written.mtime.0 + i64::from(is_changed));
        let found = Observed { mode: 0o755, mtime, ..seen(&fs, "uploaded", 5, true) };
        let inode = fs.apply(Op::Refresh { ino, seen: found }).unwrap().inode.unwrap();
        assert_eq!((inode.object().unwrap().etag.as_str(), inode.mode), ("uploaded", mode));
        assert_eq!(fs.namespace.waiting_export(ino).unwrap().is_some(), !is_changed);
    }
}

/// A listed file's object was moved with its directory. Then the file's default mode, which is used for listed objects, counted as
/// authoritative although the object's headers had another mode (world of files 3100058).
#[test]
fn publishing_does_not_make_listed_attributes_authoritative() {
    let fs = Fixture::new();
    let ino = fs.namespace.allocate(ROOT, 1)[0];
    let listed = seen(&fs, "one", 5, false);
    fs.apply(Op::Import { parent: ROOT, name: name("f"), ino, seen: listed }).unwrap();
    let publish = |base: &str, etag| {
        let base = Some(ETag::new(base));
        Op::Publish { ino, base, content: whole(etag, 5), size_bytes: 5, mtime: None }
    };
    assert!(!fs.apply(publish("one", "moved")).unwrap().inode.unwrap().exact);
    let described = Observed { mode: 0o755, ..seen(&fs, "moved", 5, true) };
    let known = fs.apply(Op::Refresh { ino, seen: described }).unwrap().inode.unwrap();
    assert_eq!((known.exact, known.mode), (true, 0o755));
    assert!(fs.apply(publish("moved", "written")).unwrap().inode.unwrap().exact);
}

/// A lost extent row used to read as a hole, and only fsck detected it.
#[test]
fn a_lost_extent_row_is_reported_as_damage() {
    let fs = Fixture::new();
    let ino = fs.file(ROOT, "f");
    let piece = |n: u64| Extent { offset: n * 9, len: 9, object: stored("etag"), object_offset: n * 9 };
    let content: Vec<Extent> = (0..8).map(piece).collect();
    fs.apply(Op::Publish { ino, base: None, content, size_bytes: 72, mtime: None }).unwrap();
    assert_eq!(fs.namespace.content(ino).unwrap().1.len(), 8);

    let lost = Commit { deletes: vec![schema::extent(ino, 27)], ..Commit::default() };
    fs.engine.commit(lost).unwrap();
    let found = fs.namespace.content(ino).unwrap_err();
    assert!(matches!(&found, FsError::Corrupt(text) if text.contains("7 extent rows")), "{found}");
}

#[test]
fn an_outdated_observation_does_not_undo_a_publication() {
    let fs = Fixture::new();
    let ino = fs.file(ROOT, "f");
    let before = seen(&fs, "old", 3, true);
    let publish =
        Op::Publish { ino, base: None, content: whole("new", 5), size_bytes: 5, mtime: Some(fs.now()) };
    let published = fs.apply(publish).unwrap().inode.unwrap();
    assert_eq!(fs.apply(Op::Refresh { ino, seen: before.clone() }).unwrap_err(), FsError::Late);
    let vanish = |looked_at| Op::Vanish { parent: ROOT, name: name("f"), looked_at, keep: false };
    assert_eq!(fs.apply(vanish(published.observed_at)).unwrap_err(), FsError::Late);
    assert_eq!(fs.namespace.inode(ino).unwrap(), published);
    let later = Moment { nanos: published.observed_at.nanos + 1, ..published.observed_at };
    fs.apply(Op::Refresh { ino, seen: Observed { looked_at: later, ..before } }).unwrap();
    fs.apply(vanish(Moment { nanos: later.nanos + 1, ..later })).unwrap();
    assert_eq!(fs.find(ROOT, "f"), None);
}

#[test]
fn entries_are_paged_by_name() {
    let fs = Fixture::new();
    for text in ["c", "a", "b", "a b", "\u{fc}"] {
        fs.file(ROOT, text);
    }
    let page = |after: Option<&str>| {
        let entries = fs.namespace.entries(ROOT, after.map(name).as_ref(), 2).unwrap();
        entries.into_iter().map(|(name, _)| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(page(None), ["a", "a b"]);
    fs.unlink(ROOT, "a b", false).unwrap();
    assert_eq!(page(Some("a b")), ["b", "c"], "the name of the cursor may have been removed");
    assert_eq!(page(Some("c")), ["\u{fc}"]);
}

#[test]
fn a_batch_is_recorded_once_and_merged_once() {
    let fs = Fixture::new();
    let lease = Ino(300)..Ino(400);
    let open = Batch { dir: ROOT, lease, began: Timestamp(5), at: Moment::default(), outcome: None };
    let outcome = BatchOutcome { merged: Timestamp(9), accepted: 3, refused: 1 };
    let (id, merged) = (open.id(), Batch { outcome: Some(outcome), ..open.clone() });
    let set = |record: Option<&Batch>| fs.apply(Op::SetBatch { id, record: record.cloned() });
    let refused = RefusedOp { op: vec![1].into(), why: "exists".into(), kept: None };
    let refuse = |record: Option<&RefusedOp>| {
        fs.apply(Op::SetRefusedOp { batch: id, index: 7, record: record.cloned() })
    };
    assert_eq!(set(Some(&merged)).unwrap_err(), FsError::NotFound);
    assert_eq!(refuse(Some(&refused)).unwrap_err(), FsError::NotFound);
    set(Some(&open)).unwrap();
    assert_eq!(set(Some(&open)).unwrap_err(), FsError::Exists);
    set(Some(&merged)).unwrap();
    assert_eq!(set(Some(&merged)).unwrap_err(), FsError::Exists, "a batch is merged once");
    refuse(Some(&refused)).unwrap();
    let engine = &**fs.namespace.engine();
    assert_eq!(namespace::read_batch(engine, id).unwrap(), Some(merged.clone()));
    assert_eq!(namespace::read_batches(engine).unwrap(), [merged]);
    assert_eq!(namespace::read_refused_ops(engine, id, 0, 10).unwrap(), [(7, refused)]);
    assert_eq!(set(None).unwrap_err(), FsError::NotEmpty);
    refuse(None).unwrap();
    assert_eq!(refuse(None).unwrap_err(), FsError::NotFound);
    set(None).unwrap();
    assert_eq!(namespace::read_batches(engine).unwrap(), []);
}
