//! Verdicts: a batch that another server has verified is added as if the primary had verified it, and only if that is still right.

use crate::fixture::{Ops, USER, Volume, assert_serial, context, create, is_permitted, name, terms, values};
use crate::job::Job;
use batch::{JobOptions, MergeError, Merged, Proof, SealedBatch, Terms, VERDICT_FILE};
use log::FrameWriter;
use meta::{Engine, EngineError, Ino, Kind, MemoryEngine, Op, Reader};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn keeping(lease: &Range<Ino>) -> Terms {
    Terms { keeps_refused: true, ..terms(lease) }
}

/// A snapshot that was lent, and the verdict about a batch on it.
struct Verdict {
    snapshot: Arc<dyn Reader>,
    files: TempDir,
    proof: Proof,
}

impl Verdict {
    fn of(engine: &dyn Engine, batch: &SealedBatch, lease: &Range<Ino>, proof: Proof) -> Self {
        let (snapshot, files) = (engine.snapshot().unwrap(), tempfile::tempdir().unwrap());
        let scratch = tempfile::tempdir().unwrap();
        let dirs = (scratch.path(), files.path());
        let proof = batch::write_verdict(&snapshot, batch, &keeping(lease), dirs, proof).unwrap();
        Self { snapshot, files, proof }
    }

    fn merge(
        &self,
        engine: &dyn Engine,
        batch: &SealedBatch,
        lease: &Range<Ino>,
    ) -> Result<Option<Merged>, MergeError> {
        merge_from(self.files.path(), &self.snapshot, engine, batch, lease)
    }
}

fn merge_from(
    files: &Path,
    snapshot: &Arc<dyn Reader>,
    engine: &dyn Engine,
    batch: &SealedBatch,
    lease: &Range<Ino>,
) -> Result<Option<Merged>, MergeError> {
    let scratch = tempfile::tempdir().unwrap();
    batch::merge_verdict(engine, snapshot.clone(), batch, &keeping(lease), (scratch.path(), files))
}

#[test]
fn s633_a_verdict_has_the_effect_of_a_merge() {
    let mut reduced = 0;
    for seed in 0..100 {
        let mut job = Job::new(seed);
        (0..100).for_each(|_| job.act());
        let (volume, batch, lease) = job.seal();
        let verdict = Verdict::of(&*volume.engine, &batch, &lease, Proof::Reduced);
        let other = volume.engine.fork();
        let scratch = tempfile::tempdir().unwrap();
        let expected =
            batch::merge(&other, &batch, &keeping(&lease), scratch.path(), Proof::Reduced).unwrap();
        let merged = verdict.merge(&*volume.engine, &batch, &lease).unwrap().unwrap();
        assert_eq!((merged.proof, merged.accepted), (expected.proof, expected.accepted), "seed {seed}");
        assert_eq!((merged.released, merged.shared), (expected.released, expected.shared));
        assert_eq!(values(&*volume.engine), values(&other), "seed {seed}");
        volume.assert_serial();
        reduced += u32::from(verdict.proof == Proof::Reduced);
        let again = verdict.merge(&*volume.engine, &batch, &lease).unwrap().unwrap();
        assert!(again.earlier.is_some(), "a batch is merged once");
    }
    assert!(reduced > 80, "{reduced} batches were proven by their rows");
}

/// An interactive client changes the directories of the batch before and after the verdict. The verdict counts only while nothing has changed on
/// which it depends, and the tables are the effect of the log in any case.
#[test]
fn s633_a_verdict_counts_only_while_it_is_right() {
    let (mut counted, mut outdated, mut refused) = (0, 0, 0);
    for seed in 0..150 {
        let volume = Volume::in_memory();
        let shared = volume.create(USER, volume.home, "shared", Kind::Directory, 0o755);
        let mut interactive = Ops::new(seed, USER, &[shared, volume.home]);
        let act = |interactive: &mut Ops, steps: i64| {
            for step in 0..steps {
                let op = interactive.next(|dir| volume.namespace.allocate(dir, 1)[0]);
                if volume.namespace.commit(&context(USER, 20 + step), &op).is_ok() {
                    interactive.succeeded(&op);
                }
            }
        };
        act(&mut interactive, 20);
        let (mut job, lease) = volume.begin("job", JobOptions::default());
        let mut ops = Ops::new(seed + 1000, USER, &[shared, volume.home]);
        for step in 0..60 {
            let op = ops.next(|dir| job.allocate(dir).unwrap());
            let context = context(USER, 200 + step);
            if is_permitted(&job, context.now, &op) && job.apply(&context, &op).is_ok() {
                ops.succeeded(&op);
            }
        }
        let batch = job.seal().unwrap();
        act(&mut interactive, seed as i64 % 4);
        let verdict = Verdict::of(&*volume.engine, &batch, &lease, Proof::Replay);
        act(&mut interactive, seed as i64 % 3);
        let before = values(&*volume.engine);
        match verdict.merge(&*volume.engine, &batch, &lease).unwrap() {
            Some(merged) => {
                counted += 1;
                refused += merged.refused.len();
                let recorded =
                    meta::namespace::read_refused_ops(&*volume.engine, keeping(&lease).id(), 0, 1000)
                        .unwrap();
                let found: Vec<_> = merged.refused.iter().map(|refused| refused.index).collect();
                assert_eq!(recorded.iter().map(|(index, _)| *index).collect::<Vec<_>>(), found);
            }
            None => {
                outdated += 1;
                assert_eq!(values(&*volume.engine), before, "nothing was added");
                let scratch = tempfile::tempdir().unwrap();
                let terms = keeping(&lease);
                batch::merge(&*volume.engine, &batch, &terms, scratch.path(), Proof::Replay).unwrap();
            }
        }
        volume.assert_serial();
    }
    assert!(counted > 50 && outdated > 10 && refused > 20, "{counted}, {outdated}, {refused}");
}

/// Other names of a directory may change after the verdict.
#[test]
fn s633_new_names_beside_those_of_the_batch_do_not_outdate_a_verdict() {
    let volume = Volume::in_memory();
    let (batch, lease, file) = volume.sealed_with_file("mine");
    let verdict = Verdict::of(&*volume.engine, &batch, &lease, Proof::Reduced);
    assert_eq!(verdict.proof, Proof::Reduced);
    assert!(!verdict.files.path().join("rows.sst").exists(), "the rows are those of the batch");
    volume.create(USER, volume.home, "theirs", Kind::File, 0o644);
    let taken = volume.engine.fork();
    assert!(verdict.merge(&*volume.engine, &batch, &lease).unwrap().is_some());
    assert_eq!(volume.namespace.entry(volume.home, &name("mine")).unwrap().unwrap().ino, file);
    // On another copy of the volume, the name of the batch is taken before the verdict arrives.
    let other = meta::Namespace::new(Arc::new(taken), &context(0, 1)).unwrap();
    let ino = other.allocate(volume.home, 1)[0];
    other.commit(&context(USER, 2), &create(USER, volume.home, "mine", ino, Kind::File, 0o644)).unwrap();
    let engine = other.engine();
    let scratch = tempfile::tempdir().unwrap();
    let dirs = (scratch.path(), verdict.files.path());
    let late = batch::merge_verdict(&**engine, verdict.snapshot.clone(), &batch, &keeping(&lease), dirs);
    assert!(late.unwrap().is_none());
    assert_serial(&**engine);
}

/// A batch that creates a file, and a verdict by replay about it.
fn small() -> (Volume<MemoryEngine>, SealedBatch, Range<Ino>, Verdict) {
    let volume = Volume::in_memory();
    let (batch, lease, _) = volume.sealed_with_file("mine");
    let verdict = Verdict::of(&*volume.engine, &batch, &lease, Proof::Replay);
    (volume, batch, lease, verdict)
}

#[test]
fn s637_damaged_verdicts_add_nothing() {
    let (volume, batch, lease, verdict) = small();
    let (before, mut unread) = (values(&*volume.engine), 0);
    let right = volume.engine.fork();
    assert!(verdict.merge(&right, &batch, &lease).unwrap().is_some());
    let right = values(&right);
    for file in [VERDICT_FILE, batch::VERDICT_ROWS_FILE] {
        let path = verdict.files.path().join(file);
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            let engine = volume.engine.fork();
            let merged = verdict.merge(&engine, &batch, &lease);
            // Only lookups read the filter of a table, and this merge makes none. Checksums cover all else.
            let after = values(&engine);
            let is_unread = file == batch::VERDICT_ROWS_FILE && after == right;
            unread += u32::from(is_unread);
            assert!(is_unread || merged.is_err() && after == before, "{file}: byte {at}: {merged:?}");
        }
        for len in 0..bytes.len() {
            fs::write(&path, &bytes[..len]).unwrap();
            let merged = verdict.merge(&*volume.engine, &batch, &lease);
            assert!(merged.is_err(), "{file}: {len} bytes: {merged:?}");
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(values(&*volume.engine), before);
    assert!(unread < 100, "{unread} bytes");
    assert!(verdict.merge(&*volume.engine, &batch, &lease).unwrap().is_some(), "the whole verdict counts");
}

/// Frames with right checksums that a verifier never writes.
#[test]
fn s637_verdicts_cannot_change_what_batches_cannot_change() {
    let (volume, batch, lease, verdict) = small();
    let text = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    let end = [&b"E"[..], &1_u32.to_le_bytes(), &[1, 0], &1_u64.to_le_bytes()].concat();
    let merge_of = |key: &[u8]| [&b"M"[..], &text(key), &text(&[&[2][..], &[0; 20]].concat())].concat();
    let forged: [(&str, Vec<Vec<u8>>); 8] = [
        ("no end", vec![]),
        ("another version", vec![[&b"E"[..], &2_u32.to_le_bytes(), &[1, 0], &[0; 8]].concat()]),
        ("an unknown tag", vec![b"?x".to_vec(), end.clone()]),
        ("the record of a batch", vec![merge_of(b"Z12345678"), end.clone()]),
        ("the head of the engine", vec![merge_of(b"A"), end.clone()]),
        ("an object of others", vec![[&b"S"[..], &text(b"objects/1")].concat(), end.clone()]),
        ("a length beyond the end", vec![[&b"K"[..], &u32::MAX.to_le_bytes(), b"x"].concat(), end.clone()]),
        ("a put as a merge", vec![[&b"M"[..], &text(b"I12345678"), &text(&[1, 0])].concat(), end]),
    ];
    let before = values(&*volume.engine);
    for (what, frames) in forged {
        let dir = tempfile::tempdir().unwrap();
        fs::copy(verdict.files.path().join("rows.sst"), dir.path().join("rows.sst")).unwrap();
        let mut writer = FrameWriter::create(&dir.path().join(VERDICT_FILE), b"TENONVER").unwrap();
        frames.iter().for_each(|frame| writer.append(frame).unwrap());
        let merged = merge_from(dir.path(), &verdict.snapshot, &*volume.engine, &batch, &lease);
        assert!(matches!(merged, Err(MergeError::Verdict(_))), "{what}: {merged:?}");
        assert!(values(&*volume.engine) == before, "{what}");
    }
    let unused = Op::Unlink { parent: volume.home, name: name("mine"), keep: false };
    assert!(volume.namespace.commit(&context(USER, 300), &unused).is_err());
}

/// The commit of a verdict is made, but its outcome is lost. The merge by the primary that follows finds it.
#[test]
fn a_verdict_whose_outcome_was_lost_is_found() {
    let volume = Volume::hooked();
    let (batch, lease, file) = volume.sealed_with_file("mine");
    let verdict = Verdict::of(&*volume.engine, &batch, &lease, Proof::Reduced);
    volume.engine.lose_outcomes(true);
    let uncertain = verdict.merge(&*volume.engine, &batch, &lease);
    assert!(matches!(uncertain, Err(MergeError::Engine(EngineError::Uncertain(_)))), "{uncertain:?}");
    let found = volume.merge(&batch, &lease).unwrap();
    assert_eq!((found.earlier.map(|outcome| outcome.accepted), found.shared), (Some(1), None));
    assert!(volume.namespace.inode(file).is_ok());
}
