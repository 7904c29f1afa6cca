//! Records of batches and of the ops that their merges have refused.

use super::{DecodeError, Decoder, Encoder};
use crate::batch::{Batch, BatchOutcome, RefusedOp};

const VERSION: u8 = 1;

/// Encodes the record of a batch.
pub fn encode_batch(batch: &Batch) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    write_batch(&mut encoder, batch);
    encoder.into_bytes()
}

/// Decodes the record of a batch.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a batch", VERSION)?;
    let batch = read_batch(&mut decoder)?;
    decoder.finish()?;
    Ok(batch)
}

/// Encodes the record of a refused op.
pub fn encode_refused_op(refused: &RefusedOp) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    write_refused_op(&mut encoder, refused);
    encoder.into_bytes()
}

/// Decodes the record of a refused op.
pub fn decode_refused_op(bytes: &[u8]) -> Result<RefusedOp, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a refused op", VERSION)?;
    let refused = read_refused_op(&mut decoder)?;
    decoder.finish()?;
    Ok(refused)
}

pub(super) fn write_batch(encoder: &mut Encoder, batch: &Batch) {
    encoder.ino(batch.dir);
    encoder.ino(batch.lease.start);
    encoder.ino(batch.lease.end);
    encoder.time(batch.began);
    encoder.moment(batch.at);
    encoder.option(batch.outcome, |encoder, outcome| {
        encoder.time(outcome.merged);
        encoder.number(outcome.accepted);
        encoder.number(outcome.refused);
    });
}

pub(super) fn read_batch(decoder: &mut Decoder<'_>) -> Result<Batch, DecodeError> {
    Ok(Batch {
        dir: decoder.ino()?,
        lease: decoder.ino()?..decoder.ino()?,
        began: decoder.time()?,
        at: decoder.moment()?,
        outcome: decoder.option(|decoder| {
            Ok(BatchOutcome {
                merged: decoder.time()?,
                accepted: decoder.number()?,
                refused: decoder.number()?,
            })
        })?,
    })
}

pub(super) fn write_refused_op(encoder: &mut Encoder, refused: &RefusedOp) {
    encoder.bytes(&refused.op);
    encoder.bytes(refused.why.as_bytes());
    encoder.option(refused.kept, Encoder::ino);
}

pub(super) fn read_refused_op(decoder: &mut Decoder<'_>) -> Result<RefusedOp, DecodeError> {
    Ok(RefusedOp { op: decoder.owned()?, why: decoder.text()?.into(), kept: decoder.option(Decoder::ino)? })
}
