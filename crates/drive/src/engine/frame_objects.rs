//! Objects of frames: the small objects that a zone holds, for cleaning.

use super::Engine;
use crate::error::{Error, Result};
use crate::format::{Body, Change, IndexKey, ObjectRecord, ObjectSummary, decode_record};
use crate::log::FrameReader;
use bytes::Bytes;

/// Key, record and bytes of an object in a frame.
pub(crate) type FrameObject = (IndexKey, ObjectRecord, Bytes);

/// Inline objects of consecutive frames of a zone.
pub(crate) struct FrameObjects {
    pub(crate) objects: Vec<FrameObject>,
    /// The position behind these frames, in bytes from the zone's beginning.
    pub(crate) next: u64,
}

impl Engine {
    /// Returns the inline objects of the frames from a position of a zone on: about as many bytes as one commit may
    /// have. Objects that were removed since are included.
    pub(crate) fn objects_of_frames(&self, zone: u64, mut at: u64, used_bytes: u64) -> Result<FrameObjects> {
        let mut reader = FrameReader::new(self.device().clone(), self.drive, self.geometry);
        let mut objects = Vec::new();
        let mut len_bytes = 0;
        while at < used_bytes && len_bytes < self.policy.frame_bytes_max() {
            let begins = objects.len();
            at += self.objects_of_frame(&mut reader, (zone, at), &mut objects)?;
            len_bytes += objects[begins..].iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>();
        }
        Ok(FrameObjects { objects, next: at })
    }

    /// Adds the inline objects of the frame at a position of a zone. Returns the frame's length in bytes.
    fn objects_of_frame(
        &self,
        reader: &mut FrameReader,
        (zone, at): (u64, u64),
        objects: &mut Vec<FrameObject>,
    ) -> Result<u64> {
        let place = self.geometry.zone_at(zone) + at;
        let frame = reader.frame(zone, at).into_result()?;
        let len_bytes = self.geometry.frame_bytes(&frame.header);
        for change in frame.changes {
            let Change::Put { key, value } = change else { continue };
            let key = IndexKey(key);
            if key.bucket_and_key().is_none() || ObjectSummary::decode(&value).is_none() {
                continue;
            }
            let record = decode_record(&key.0, &value)?;
            if let Body::Inline(inline) = &record.body
                && (place..place + len_bytes).contains(&inline.at)
            {
                let bytes = reader.bytes(zone, at + (inline.at - place), inline.len.into())?;
                let bytes = Bytes::copy_from_slice(bytes);
                if bytes.len() as u64 != u64::from(inline.len) {
                    return Err(Error::damaged("a frame of small objects", place));
                }
                objects.push((key, record, bytes));
            }
        }
        Ok(len_bytes)
    }
}
