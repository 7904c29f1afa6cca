//! Verdicts: what another server has found when it verified a batch.
//!
//! The other server, the verifier, reads a snapshot that the primary lends it, and checks the batch as the primary would
//! ([`write_verdict`]). The primary ([`merge_verdict`]) adds what the verifier has accepted, under conditions that it computes from the same
//! snapshot, so it notices what has changed since. If the rows prove the batch ([`Proof::Reduced`]), they are those of the primary's own copy of
//! the batch: the verifier only says that they are right.
//!
//! A verdict is the file `verdict`, and for [`Proof::Replay`] the table `rows.sst` of the changed rows. `verdict` begins with the magic bytes, and
//! consists of frames: a tag byte, then the items of the tag. Numbers are little-endian, and byte strings have their length (4 bytes) before them.
//!
//! | tag | items |
//! |---|---|
//! | `K` | keys of records on whose version or absence the batch depends |
//! | `P` | keys of records on whose existence it depends |
//! | `M` | merges into records of the snapshot: key, change |
//! | `R` | refused ops: index (8), inode that keeps the bytes (8, 0 for none), reason |
//! | `O` | keys of objects to which no inode refers any longer |
//! | `S` | keys of objects of the batch that files share |
//! | `L` | a page of ops, as in the log of a batch |
//! | `E` | the last frame: version (4), proof (1), whether directories were moved (1), accepted ops (8) |
//!
//! A verifier is trusted with the outcome, but its bytes are not trusted to be a verdict: they are decoded with bounds, records that a batch cannot
//! change are refused, and the record of the batch with its outcome is written by the primary.

use crate::base::Base;
use crate::change::Change;
use crate::local_map::LocalMap;
use crate::merge::{Built, MergeError, Merged, build_into, earlier_outcome};
use crate::overlay::Overlay;
use crate::proof::Proof;
use crate::run_rows::{EngineRun, RunRows};
use crate::sealed::SealedBatch;
use crate::table_error::{io_error, table_error};
use crate::verdict_error::VerdictError;
use crate::verify::{MEMORY_BYTES_MAX, Refusal, Refused, Rejected, Terms, Verified};
use log::{FrameReader, FrameWriter, NextFrame};
use meta::codec::{append_to_log_page, decode_log_page};
use meta::{Engine, EngineError, Ino, OpRecord, Reader, schema};
use sst::{FileTable, NewTableFile};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use store::ObjectKey;

const MAGIC: &[u8; 8] = b"TENONVER";
const VERSION: u32 = 1;

const KEY: u8 = b'K';
const PRESENT: u8 = b'P';
const MERGE: u8 = b'M';
const REFUSED: u8 = b'R';
const RELEASED: u8 = b'O';
const SHARED: u8 = b'S';
const LOG: u8 = b'L';
const END: u8 = b'E';

/// Length at which a frame is written, in bytes.
const FRAME_BYTES: usize = 32 << 10;

/// Maximum length of a frame, in bytes. The content of a file can have a hundred thousand extents.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// Cache of blocks of the table of rows, in bytes.
const CACHE_BYTES: u64 = 1 << 20;

/// Name of the file with the whole verdict, except for the rows.
pub const VERDICT_FILE: &str = "verdict";

/// Name of the table of changed rows.
pub const VERDICT_ROWS_FILE: &str = "rows.sst";

/// Verifies a batch on a snapshot, and writes the verdict into the directory `to`, durably except for the names. `scratch` is a directory for
/// temporary files. `proof` says how to verify the batch, as in [`merge`](crate::merge).
pub fn write_verdict(
    snapshot: &Arc<dyn Reader>,
    batch: &SealedBatch,
    terms: &Terms,
    (scratch, to): (&Path, &Path),
    proof: Proof,
) -> Result<Proof, Rejected> {
    let begin = |proof| VerdictWriter::create(to, proof);
    let (verified, writer) = build_into(snapshot, batch, terms, scratch, proof, begin)?;
    let proof = verified.proof;
    writer.finish(&verified)?;
    Ok(proof)
}

/// Adds the batch of a verdict, in the directory `from`, to a volume. `snapshot` is the snapshot that was lent to the verifier. Returns `None`
/// if others have meanwhile changed something on which the verdict depends. After any error but [`EngineError::Uncertain`], nothing was added.
pub fn merge_verdict(
    engine: &dyn Engine,
    snapshot: Arc<dyn Reader>,
    batch: &SealedBatch,
    terms: &Terms,
    (scratch, from): (&Path, &Path),
) -> Result<Option<Merged>, MergeError> {
    if let Some(outcome) = earlier_outcome(engine, terms)? {
        return Ok(Some(Merged::earlier(outcome)));
    }
    let base = Base::new(snapshot, &terms.lease)?;
    if !base.has_fresh_lease(&terms.lease) {
        return Err(Rejected::Used.into());
    }
    let overlay = Overlay::new(base, LocalMap::new(scratch, MEMORY_BYTES_MAX));
    let mut run = EngineRun(engine.begin_run()?);
    let mut verified = Verified::new(overlay, Proof::Replay);
    read_verdict(&from.join(VERDICT_FILE), terms, &mut verified, &mut run)?;
    let rows = match verified.proof {
        Proof::Reduced => batch.rows_table().clone(),
        Proof::Replay => {
            let cache = Arc::new(sst::Cache::new(CACHE_BYTES));
            FileTable::open_file(from.join(VERDICT_ROWS_FILE), 0, &cache).map_err(table_error)?
        }
    };
    add_rows(&rows, verified.proof, &mut run)?;
    verified.claimed = Some(rows);
    Built::conclude(verified, run, batch, terms)?.add(engine)
}

/// Adds the rows of a table of changes to a run.
fn add_rows(rows: &Arc<FileTable>, proof: Proof, run: &mut EngineRun<'_>) -> Result<(), MergeError> {
    let behind = schema::batches().from;
    let mut cursor = rows.scan(Bound::Unbounded);
    while cursor.advance().map_err(table_error)? {
        let key = cursor.key();
        // The record of the batch is added behind all others.
        if key >= behind.as_slice() || schema::check_writable(key).is_err() {
            return Err(VerdictError::Foreign.into());
        }
        match Change::decode(cursor.value()).map_err(VerdictError::from)? {
            Change::Put(value) => run.put(key, &value)?,
            // The reduced proof has shown that claimed removals remove nothing.
            Change::Delete if proof == Proof::Replay => run.delete(key)?,
            Change::Delete | Change::Merge(_) => {}
        }
    }
    Ok(())
}

/// The writer of a verdict.
pub(crate) struct VerdictWriter {
    frames: FrameWriter,
    /// `None` if the rows are those that the batch claims.
    rows: Option<NewTableFile>,
    /// The ops of the page that is not written yet.
    page: Vec<u8>,
}

impl VerdictWriter {
    fn create(dir: &Path, proof: Proof) -> Result<Self, EngineError> {
        let frames = FrameWriter::create(&dir.join(VERDICT_FILE), MAGIC).map_err(|error| io_error(&error))?;
        let rows = match proof {
            Proof::Reduced => None,
            Proof::Replay => {
                let rows = NewTableFile::create(&dir.join(VERDICT_ROWS_FILE));
                Some(rows.map_err(|error| io_error(&error))?)
            }
        };
        Ok(Self { frames, rows, page: vec![LOG] })
    }

    /// Adds a row to the table, if there is one.
    fn add_row(&mut self, key: &[u8], change: &Change) -> Result<(), EngineError> {
        match &mut self.rows {
            Some(rows) => rows.add(key, &change.encode()).map_err(table_error),
            None => Ok(()),
        }
    }

    /// Writes what is not in the table of rows or in the pages of ops, and makes the files durable.
    fn finish(mut self, verified: &Verified) -> Result<(), EngineError> {
        self.flush_page()?;
        let (keys, present) = verified.overlay.base.noted();
        self.write_all(KEY, keys.iter().map(|key| item(key)))?;
        self.write_all(PRESENT, present.iter().map(|key| item(key)))?;
        let mut changes = verified.overlay.local.range(Bound::Unbounded, Bound::Unbounded);
        let mut merges = Vec::new();
        while let Some((key, change)) = changes.next()? {
            if matches!(change, Change::Merge(_)) {
                merges.push([item(&key), item(&change.encode())].concat());
            }
        }
        drop(changes);
        self.write_all(MERGE, merges.into_iter())?;
        self.write_all(REFUSED, verified.refused.iter().map(refused_item))?;
        self.write_all(RELEASED, verified.released.iter().map(|key| item(key.as_bytes())))?;
        self.write_all(SHARED, verified.shared.iter().map(|key| item(key.as_bytes())))?;
        self.append(&end_frame(verified))?;
        self.frames.sync().map_err(|error| io_error(&error))?;
        if let Some(rows) = self.rows {
            let (file, _) = rows.finish().map_err(table_error)?;
            file.sync_all().map_err(|error| io_error(&error))?;
        }
        Ok(())
    }

    /// Writes items with a tag, in as many frames as necessary.
    fn write_all(&mut self, tag: u8, items: impl Iterator<Item = Vec<u8>>) -> Result<(), EngineError> {
        let mut frame = vec![tag];
        for item in items {
            frame.extend(item);
            if frame.len() >= FRAME_BYTES {
                self.append(&frame)?;
                frame.truncate(1);
            }
        }
        if frame.len() > 1 { self.append(&frame) } else { Ok(()) }
    }

    fn flush_page(&mut self) -> Result<(), EngineError> {
        if self.page.len() > 1 {
            self.frames.append(&self.page).map_err(|error| io_error(&error))?;
            self.page.truncate(1);
        }
        Ok(())
    }

    fn append(&mut self, frame: &[u8]) -> Result<(), EngineError> {
        self.frames.append(frame).map_err(|error| io_error(&error))
    }
}

impl RunRows for VerdictWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.add_row(key, &Change::Put(value.into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.add_row(key, &Change::Delete)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        append_to_log_page(&mut self.page, record);
        if self.page.len() >= FRAME_BYTES { self.flush_page() } else { Ok(()) }
    }
}

/// Encodes a byte string.
fn item(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

fn refused_item(refused: &Refused) -> Vec<u8> {
    let kept = refused.kept.map_or(0, |ino| ino.0);
    let why = refused.why.to_string();
    [&refused.index.to_le_bytes()[..], &kept.to_le_bytes(), &item(why.as_bytes())].concat()
}

fn end_frame(verified: &Verified) -> Vec<u8> {
    let flags = [u8::from(verified.proof == Proof::Replay), u8::from(verified.moves_directories)];
    [&[END][..], &VERSION.to_le_bytes(), &flags, &verified.accepted.to_le_bytes()].concat()
}

/// Reads a verdict: adds its ops to a run, and everything else to `verified`.
fn read_verdict(
    path: &Path,
    terms: &Terms,
    verified: &mut Verified,
    run: &mut EngineRun<'_>,
) -> Result<(), MergeError> {
    let frames = FrameReader::open(path, MAGIC).map_err(VerdictError::from)?;
    let mut frames = frames.ok_or(VerdictError::Format)?;
    loop {
        let frame = match frames.next().map_err(VerdictError::from)? {
            NextFrame::Frame(frame) if frame.len() <= FRAME_BYTES_MAX => frame,
            NextFrame::Frame(_) | NextFrame::Bad | NextFrame::End => return Err(VerdictError::Format.into()),
        };
        let Some((&tag, body)) = frame.split_first() else { return Err(VerdictError::Format.into()) };
        match tag {
            LOG => {
                for record in decode_log_page(body).map_err(VerdictError::from)? {
                    run.log(&record)?;
                }
            }
            END => {
                read_end(body, verified)?;
                return Ok(());
            }
            tag => read_items(tag, body, terms, verified)?,
        }
    }
}

/// Adds the items of a frame to `verified`.
fn read_items(tag: u8, mut body: &[u8], terms: &Terms, verified: &mut Verified) -> Result<(), VerdictError> {
    while !body.is_empty() {
        match tag {
            KEY => verified.overlay.base.note(take_bytes(&mut body)?),
            PRESENT => verified.overlay.base.note_present(take_bytes(&mut body)?.to_vec()),
            MERGE => {
                let key = take_bytes(&mut body)?.to_vec();
                let change = Change::decode(take_bytes(&mut body)?)?;
                let is_possible = matches!(change, Change::Merge(_)) && schema::check_writable(&key).is_ok();
                if !is_possible || schema::is_of_batch(&key) {
                    return Err(VerdictError::Foreign);
                }
                verified.overlay.insert(key, change);
            }
            REFUSED => {
                let (index, kept) = (take_number(&mut body)?, take_number(&mut body)?);
                let why = String::from_utf8_lossy(take_bytes(&mut body)?).into_owned();
                let kept = (kept != 0).then_some(Ino(kept));
                verified.refused.push(Refused { index, why: Refusal::Reported(why.into()), kept });
            }
            RELEASED => verified.released.push(take_key(&mut body)?),
            SHARED => {
                let key = take_key(&mut body)?;
                if !terms.content.as_ref().is_some_and(|prefix| key.as_bytes().starts_with(prefix)) {
                    return Err(VerdictError::Foreign);
                }
                verified.shared.insert(key);
            }
            _ => return Err(VerdictError::Format),
        }
    }
    Ok(())
}

fn read_end(mut body: &[u8], verified: &mut Verified) -> Result<(), VerdictError> {
    let version = u32::from_le_bytes(take(&mut body)?);
    let [proof, moves_directories] = take(&mut body)?;
    verified.accepted = take_number(&mut body)?;
    if version != VERSION || proof > 1 || moves_directories > 1 || !body.is_empty() {
        return Err(VerdictError::Format);
    }
    verified.proof = if proof == 0 { Proof::Reduced } else { Proof::Replay };
    verified.moves_directories = moves_directories == 1;
    // The reduced proof refuses nothing.
    if verified.proof == Proof::Reduced && !verified.refused.is_empty() {
        return Err(VerdictError::Format);
    }
    Ok(())
}

/// Returns the next object key and removes it from the bytes.
fn take_key(bytes: &mut &[u8]) -> Result<ObjectKey, VerdictError> {
    ObjectKey::new(take_bytes(bytes)?.to_vec()).map_err(|_| VerdictError::Format)
}

/// Returns the next byte string and removes it from the bytes.
fn take_bytes<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], VerdictError> {
    let len = u32::from_le_bytes(take(bytes)?) as usize;
    let (found, rest) = bytes.split_at_checked(len).ok_or(VerdictError::Format)?;
    *bytes = rest;
    Ok(found)
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, VerdictError> {
    Ok(u64::from_le_bytes(take(bytes)?))
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], VerdictError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(VerdictError::Format)?;
    *bytes = rest;
    Ok(*first)
}
