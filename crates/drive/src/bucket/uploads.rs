//! Multipart uploads that outlast their caller: uploads and their parts are entries of the index.

use super::DriveBucket;
use super::edit::Edit;
use super::record_metadata::etag;
use crate::codec::{Decoder, Encoder};
use crate::engine::Prepared;
use crate::error::Error;
use crate::format::{
    Body, Change, IndexKey, Kind, Naming, ObjectRecord, decode_description, decode_record, encode_description,
};
use crate::frontend::Stored;
use crate::policy::Purpose;
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use store::{
    Attributes, CompleteOptions, MakePartNote, ObjectKey, ObjectRef, Part, Result, StoreError, Tags,
    Timestamp, Upload, Uploads, part_number,
};

/// The value of an upload's index entry.
#[derive(Debug)]
struct UploadRecord {
    began: Timestamp,
    attributes: Attributes,
    tags: Tags,
}

/// The value of a part's index entry.
#[derive(Debug)]
struct PartRecord {
    /// The text that the uploader keeps with the part.
    note: Option<String>,
    stored: ObjectRecord,
}

impl UploadRecord {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.fixed64(self.began.0 as u64);
        encode_description(&mut to, &self.attributes, &self.tags);
        to.0
    }

    fn decode(entry: &IndexKey, bytes: &[u8]) -> Result<Self, Error> {
        let mut from = Decoder(bytes);
        let mut read = || {
            let began = Timestamp(from.fixed64()? as i64);
            let (attributes, tags) = decode_description(&mut from)?;
            Some(Self { began, attributes, tags })
        };
        read().ok_or_else(|| Error::damaged_entry("an upload's record", &entry.0))
    }

    fn into_upload(self, key: &ObjectKey, id: String) -> Upload {
        Upload { key: key.clone(), id, began: self.began, attributes: self.attributes }
    }
}

impl PartRecord {
    fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.optional(self.note.as_deref());
        to.0.extend(self.stored.encode());
        to.0
    }

    fn decode(entry: &IndexKey, bytes: &[u8]) -> Result<Self, Error> {
        let mut from = Decoder(bytes);
        let note = from.optional().ok_or_else(|| Error::damaged_entry("a part's record", &entry.0))?;
        Ok(Self { note: note.map(str::to_owned), stored: decode_record(&entry.0, from.0)? })
    }

    fn to_part(&self, number: u32, drive: u64) -> Part {
        Part {
            number,
            etag: etag(drive, self.stored.write, None),
            size_bytes: self.stored.body.len_bytes(),
            last_modified: self.stored.modified,
            note: self.note.clone(),
        }
    }
}

fn part_number(entry: &IndexKey) -> u32 {
    entry.0.last_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

impl DriveBucket {
    async fn upload(&self, key: &ObjectKey, id: &str) -> Result<(u64, UploadRecord)> {
        let missing = || StoreError::NotFound(key.clone());
        let number = store::number_of_hex(id).ok_or_else(missing)?;
        let entry = IndexKey::upload(self.id, key, number);
        let value = self.frontend.entry(&entry).await?.ok_or_else(missing)?;
        Ok((number, UploadRecord::decode(&entry, &value)?))
    }

    async fn part_records(&self, upload: u64) -> Result<Vec<(IndexKey, PartRecord)>> {
        let found = self.frontend.entries(IndexKey::parts(self.id, upload), usize::MAX).await?;
        let decode = |(entry, value): (IndexKey, Bytes)| {
            let record = PartRecord::decode(&entry, &value)?;
            Ok((entry, record))
        };
        found.into_iter().map(decode).collect()
    }

    /// Stores a stream of bytes in runs.
    pub(crate) async fn store_stream(
        &self,
        mut body: BoxStream<'_, Result<Bytes>>,
        len_bytes: Option<u64>,
    ) -> Result<Stored> {
        let mut writer = self.frontend.streaming_run_writer(len_bytes)?;
        while let Some(piece) = body.try_next().await? {
            writer.push(&piece).await?;
        }
        Ok(writer.finish().await?)
    }

    /// Prepares the removal of an upload and its parts.
    async fn prepare_removal(&self, key: &ObjectKey, upload: u64) -> Result<Prepared> {
        let mut prepared = Prepared { purpose: Purpose::Frees, ..Prepared::default() };
        for (entry, part) in self.part_records(upload).await? {
            prepared.release(&part.stored);
            prepared.changes.push(Change::Delete { key: entry.0 });
        }
        prepared.changes.push(Change::Delete { key: IndexKey::upload(self.id, key, upload).0 });
        Ok(prepared)
    }
}

#[async_trait::async_trait]
impl Uploads for DriveBucket {
    async fn begin(&self, key: &ObjectKey, attributes: Attributes, tags: Tags) -> Result<String> {
        let locks = vec![self.frontend.lock_key(self.id, key.as_bytes()).await];
        self.bucket_record().await?;
        let (number, began) = (self.frontend.engine.next_write(), self.frontend.clock.now());
        let value = UploadRecord { began, attributes, tags }.encode();
        let put = Change::Put { key: IndexKey::upload(self.id, key, number).0, value };
        self.frontend.commit(Prepared { changes: vec![put], ..Prepared::default() }, locks).await?;
        Ok(format!("{number:016x}"))
    }

    async fn find(&self, key: &ObjectKey, id: &str) -> Result<Upload> {
        Ok(self.upload(key, id).await?.1.into_upload(key, id.to_owned()))
    }

    async fn put_part(
        &self,
        key: &ObjectKey,
        id: &str,
        number: u32,
        body: BoxStream<'_, Result<Bytes>>,
        make_note: MakePartNote<'_>,
    ) -> Result<Part> {
        part_number::check(number)?;
        self.upload(key, id).await?;
        let Stored { body, holds, cache_numbers, .. } = self.store_stream(body, None).await?;
        let note = make_note()?;
        let locks = vec![self.frontend.lock_key(self.id, key.as_bytes()).await];
        let (upload, _) = self.upload(key, id).await?;
        let entry = IndexKey::part(self.id, upload, number);
        let mut prepared = Prepared { holds, ..Prepared::default() };
        if let Some(old) = self.frontend.entry(&entry).await? {
            prepared.release(&PartRecord::decode(&entry, &old)?.stored);
        }
        let (write, modified) = (self.frontend.engine.next_write(), self.frontend.clock.now());
        let (naming, (attributes, tags)) = (Naming::Unnamed, Default::default());
        prepared.retain(write, &body, cache_numbers);
        let stored = ObjectRecord { write, modified, naming, etag: None, body, attributes, tags };
        let record = PartRecord { note, stored };
        prepared.changes.push(Change::Put { key: entry.0, value: record.encode() });
        self.frontend.commit(prepared, locks).await?;
        Ok(record.to_part(number, self.drive_id()))
    }

    async fn parts(&self, key: &ObjectKey, id: &str) -> Result<Vec<Part>> {
        let (upload, _) = self.upload(key, id).await?;
        let records = self.part_records(upload).await?;
        Ok(records
            .iter()
            .map(|(entry, record)| record.to_part(part_number(entry), self.drive_id()))
            .collect())
    }

    async fn complete(
        &self,
        key: &ObjectKey,
        id: &str,
        numbers: &[u32],
        options: CompleteOptions,
    ) -> Result<ObjectRef> {
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let (upload, record) = self.upload(key, id).await?;
        let mut edit: Edit<'_> = self.edit(key, lock).await?;
        edit.check_precondition(&options.precondition)?;
        let parts = self.part_records(upload).await?;
        let (mut slices, mut cache_numbers, mut etags) = (Vec::new(), Vec::new(), Vec::new());
        for number in numbers {
            let found = parts.iter().find(|(entry, _)| part_number(entry) == *number);
            let (_, part) = found.ok_or_else(|| {
                StoreError::Invalid(format!(
                    "part {number} of the upload does not exist: list the parts of the upload"
                ))
            })?;
            etags.push(etag(self.drive_id(), part.stored.write, None));
            if let Body::Runs(more) = &part.stored.body {
                slices.extend_from_slice(more);
                cache_numbers.push((part.stored.write, more.len()));
            }
        }
        options.check(etags.iter())?;
        let UploadRecord { mut attributes, tags, .. } = record;
        attributes.user.extend(options.user);
        let stored =
            Stored { cache_numbers, ..Stored::of_slices(slices, Vec::new()).with_etag(options.etag) };
        let placed = edit.set_current(stored, (attributes, tags)).await?;
        edit.include(self.prepare_removal(key, upload).await?);
        edit.commit().await?;
        Ok(placed)
    }

    async fn abort(&self, key: &ObjectKey, id: &str) -> Result<()> {
        let lock = self.frontend.lock_key(self.id, key.as_bytes()).await;
        let (upload, _) = self.upload(key, id).await?;
        let prepared = self.prepare_removal(key, upload).await?;
        Ok(self.frontend.commit(prepared, vec![lock]).await?)
    }

    async fn list(&self, prefix: &[u8]) -> Result<Vec<Upload>> {
        let entries = IndexKey::prefix(Kind::Upload, self.id).append_escaped(prefix);
        let mut found = Vec::new();
        for (entry, value) in self.frontend.entries(entries, usize::MAX).await? {
            let damaged = || Error::damaged_entry("an upload's key", &entry.0);
            let (key, number) = IndexKey::escaped_key(&entry.0).ok_or_else(damaged)?;
            let key = ObjectKey::new(key)?;
            found.push(UploadRecord::decode(&entry, &value)?.into_upload(&key, format!("{number:016x}")));
        }
        Ok(found)
    }
}
