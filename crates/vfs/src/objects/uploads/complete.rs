//! Completion of an upload: its parts become an object.

use meta::{Extent, Inode};
use std::collections::BTreeMap;
use store::{
    Attributes, CompleteOptions, CopyOptions, Multipart, ObjectKey, ObjectRef, Payload, Precondition,
    PutOptions, StoreError, Tags,
};

use super::completion::Completion;
use super::record::{PartRecord, UPLOAD, part_name};
use super::{DirectoryUploads, end_upload};
use crate::config::PART_BYTES_MIN;
use crate::content::pin::{Cut, Pin};
use crate::layout::content_keys;
use crate::objects::at_path::{ObjectsAtPath, about_key};
use crate::objects::errors::{error_about, namespace_error_about};
use crate::objects::named::NamedObjects;
use crate::objects::named::multipart::concatenate;
use crate::objects::named::plan::{NewObject, Orphan};

/// S3's maximum length of a part copy.
const COPIED_BYTES_MAX: u64 = 5 << 30;

impl DirectoryUploads {
    /// Reads what a completion needs, and checks its conditions.
    pub(super) fn completion<'c>(
        &self,
        key: &'c ObjectKey,
        id: &str,
        numbers: &'c [u32],
        options: CompleteOptions,
    ) -> store::Result<Completion<'c>> {
        let (ino, begun) = self.upload(key, id)?;
        let parts = self.part_records(key, ino)?;
        let etags: Vec<_> = select_parts(&parts, numbers)?.iter().map(|part| part.etag()).collect();
        options.check(etags.iter())?;
        let mut attributes = begun.attributes();
        attributes.user.extend(options.user);
        let (upload, stored) = self.fs.names.tables().content(ino).map_err(namespace_error_about(key))?;
        let (tags, precondition, etag) = (begun.tags, options.precondition, options.etag);
        Ok(Completion { key, upload, stored, parts, numbers, attributes, tags, precondition, etag })
    }
}

impl NamedObjects {
    /// Names the parts as one object, or stores a marker.
    pub(in crate::objects) async fn name_parts(
        &self,
        completion: Completion<'_>,
    ) -> store::Result<ObjectRef> {
        let Completion { key, upload, stored, parts, numbers, attributes, tags, precondition, etag } =
            completion;
        let chosen = select_parts(&parts, numbers)?;
        let surplus = parts.iter().map(|(number, _)| part_name(*number)).chain([UPLOAD.into()]).collect();
        let base = upload.object().map(|object| object.etag.clone());
        let (content, size_bytes) =
            concatenate(chosen.iter().map(|part| (content_of_part(&stored, part), part.size_bytes)));
        let left: Vec<_> = content_keys(&stored).difference(&content_keys(&content)).cloned().collect();
        if key.as_bytes().ends_with(b"/") {
            let body = marker_of(size_bytes)?;
            let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
            let object = Box::pin(self.put(key, body, options)).await?;
            end_upload(&self.fs, key, &upload).await?;
            return Ok(object);
        }
        let (attributes, tags, orphan) = (&attributes, &tags, Some(Orphan { base, surplus }));
        let (ino, etag) = (upload.ino, etag.as_ref());
        let new = NewObject { ino, content, size_bytes, target: None, attributes, tags, etag, orphan };
        let object = self.name_object(key, &new, &precondition).await?;
        for key in left {
            self.fs.content.discard(key).await;
        }
        Ok(object)
    }
}

impl ObjectsAtPath {
    /// Joins the parts inside the bucket.
    pub(in crate::objects) async fn join_parts(
        &self,
        completion: Completion<'_>,
    ) -> store::Result<ObjectRef> {
        let Completion { key, upload, parts, numbers, attributes, tags, precondition, .. } = completion;
        let chosen = select_parts(&parts, numbers)?;
        let object = self.assemble(key, &upload, &chosen, (attributes, tags), precondition).await?;
        end_upload(&self.fs, key, &upload).await?;
        Ok(object)
    }

    /// Stores the joined parts under the key.
    async fn assemble(
        &self,
        key: &ObjectKey,
        upload: &Inode,
        parts: &[&PartRecord],
        (attributes, tags): (Attributes, Tags),
        precondition: Precondition,
    ) -> store::Result<ObjectRef> {
        let full = self.full_key(key)?;
        let mut sources = match parts.iter().all(|part| part.size_bytes == 0) {
            // An orphan without content has no pin.
            true => Vec::new(),
            false => {
                let pin = self.fs.names.pin(upload).map_err(error_about(key))?;
                sources(&pin.ok_or_else(|| StoreError::NotFound(key.clone()))?, parts)?
            }
        };
        for (object, _) in sources.iter_mut().filter(|(object, _)| object.etag.is_provisional()) {
            *object = self.fs.mount.store.head(&object.key).await.map_err(part_error)?.object;
        }
        let stored = match sources.as_slice() {
            [] => {
                let options = PutOptions { precondition, attributes, tags, ..PutOptions::default() };
                self.change_key(&full, false, self.fs.mount.store.put(&full, Payload::default(), options))
                    .await
            }
            [(one, _)] if tags.is_empty() && precondition == Precondition::None => {
                let options =
                    CopyOptions { attributes: Some(attributes), precondition, ..CopyOptions::default() };
                self.change_key(&full, false, self.fs.mount.store.copy(one, &full, options)).await
            }
            many => {
                let inner = self.fs.mount.store.multipart(&full, attributes, tags).await?;
                let stored = match copy_all(inner.as_ref(), many).await {
                    Ok(()) => self.change_key(&full, false, inner.complete(precondition)).await,
                    Err(error) => Err(part_error(error)),
                };
                if stored.is_err() {
                    inner.abort().await.ok();
                }
                stored
            }
        };
        let stored = stored.map_err(|error| about_key(key, error))?;
        Ok(ObjectRef { key: key.clone(), ..stored })
    }
}

/// Returns the body of a directory's marker that an upload makes, which must be empty.
fn marker_of(size_bytes: u64) -> store::Result<Payload> {
    let why = "in a volume named by inode a multipart upload cannot create a key that ends in '/'";
    if size_bytes == 0 { Ok(Payload::default()) } else { Err(StoreError::Invalid(why.to_owned())) }
}

/// Returns the requested parts in their order; all of them must exist.
fn select_parts<'p>(parts: &'p [(u32, PartRecord)], numbers: &[u32]) -> store::Result<Vec<&'p PartRecord>> {
    if numbers.is_empty() {
        return Err(StoreError::Invalid("an upload without parts cannot be completed".to_owned()));
    }
    let parts: BTreeMap<u32, &PartRecord> = parts.iter().map(|(number, part)| (*number, part)).collect();
    let part = |number: &u32| {
        let missing = || StoreError::Invalid(format!("part {number} was not sent"));
        parts.get(number).copied().ok_or_else(missing)
    };
    numbers.iter().map(part).collect()
}

/// Returns a part's content from offset 0.
fn content_of_part(stored: &[Extent], part: &PartRecord) -> Vec<Extent> {
    let end = part.at + part.size_bytes;
    let first = stored.partition_point(|extent| extent.offset < part.at);
    let inside = stored[first..].iter().take_while(|extent| extent.end() <= end);
    inside.map(|extent| Extent { offset: extent.offset - part.at, ..extent.clone() }).collect()
}

/// Returns the objects of parts with their lengths. All but the last must have S3's minimum length.
fn sources(pin: &Pin, parts: &[&PartRecord]) -> store::Result<Vec<(ObjectRef, u64)>> {
    let mut sources = Vec::new();
    for part in parts.iter().filter(|part| part.size_bytes > 0) {
        for cut in pin.cut(part.at..part.at + part.size_bytes)? {
            match cut {
                Cut::Stored(range, piece) => {
                    sources.push(((*piece.object).clone(), range.end - range.start));
                }
                Cut::Hole(_) => {
                    return Err(StoreError::Corrupt("the bytes of a part are missing".to_owned()));
                }
            }
        }
    }
    let others = sources.split_last().map_or(&[][..], |(_, others)| others);
    if others.iter().any(|(_, len)| *len < PART_BYTES_MIN) {
        return Err(StoreError::Invalid("every part but the last must have at least 5 MiB".to_owned()));
    }
    Ok(sources)
}

/// Copies objects, one after another, as the parts of an upload.
async fn copy_all(upload: &dyn Multipart, sources: &[(ObjectRef, u64)]) -> store::Result<()> {
    let mut number = 1;
    for (object, len) in sources {
        let mut at = 0;
        while at < *len {
            let end = len.min(&(at + COPIED_BYTES_MAX)).to_owned();
            upload.copy_part(number, object, at..end).await?;
            (at, number) = (end, number + 1);
        }
    }
    Ok(())
}

/// Maps a missing or changed part to an error that does not look like one about the object's key.
fn part_error(error: StoreError) -> StoreError {
    match error {
        StoreError::NotFound(_) | StoreError::PreconditionFailed(_) => {
            StoreError::Corrupt("the bytes of a part are missing or were changed".to_owned())
        }
        error => error,
    }
}
