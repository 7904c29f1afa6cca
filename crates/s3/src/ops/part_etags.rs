//! Etags and checksums of parts, and of the object assembled from them.

use aws_lc_rs::digest;
use store::Part;

use super::checksum_kind::ChecksumKind;
use crate::checksums::{Algorithm, Checksum};
use crate::part_metadata;

/// Returns the etag that clients see of a part: its MD5 if that was computed, otherwise one derived from the part's
/// checksum, otherwise the store's etag. With an MD5 or a checksum, sending the same part twice gives the same etag,
/// so that a client can complete its upload with the first response (S3 API, UploadPart).
pub(super) fn part_etag(part: &Part, kind: Option<ChecksumKind>) -> store::ETag {
    let algorithm = kind.map_or(Algorithm::Crc64Nvme, |kind| kind.algorithm);
    let checksum = part.note.as_deref().and_then(Checksum::from_text);
    if let Some(md5) = checksum.as_ref().and_then(md5_of) {
        return store::ETag::new(&store::hex(&md5));
    }
    match checksum.as_ref().and_then(|checksum| checksum.find(algorithm)) {
        None => part.etag.clone(),
        Some(checksum) => {
            let text = format!("{} {} {}", algorithm.name(), checksum.value, part.size_bytes);
            let hash = digest::digest(&digest::SHA256, text.as_bytes());
            let bytes: &[u8] = hash.as_ref();
            store::ETag::new(&format!("{}-1", store::hex(bytes.get(..16).unwrap_or(bytes))))
        }
    }
}

fn md5_of(checksum: &Checksum) -> Option<Vec<u8>> {
    checksum.find(Algorithm::Md5)?.digest()
}

/// Returns the etag of an object assembled from parts, which ends in their number. If all parts have MD5s, it is the
/// MD5 of these, as in S3. Otherwise it is unique to this upload and unrelated to the bytes.
pub(super) fn object_etag(id: &str, parts: &[Part]) -> store::ETag {
    let md5 = |part: &Part| md5_of(&Checksum::from_text(part.note.as_deref()?)?);
    let md5s: Option<Vec<Vec<u8>>> = parts.iter().map(md5).collect();
    let digest = md5s.and_then(|md5s| Checksum::compute(Algorithm::Md5, &md5s.concat()).digest());
    let digest = digest.unwrap_or_else(|| {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(id.as_bytes());
        for part in parts {
            context.update(b" ");
            context.update(part.etag.as_str().as_bytes());
        }
        context.finish().as_ref().iter().copied().take(16).collect()
    });
    store::ETag::new(&format!("{}-{}", store::hex(&digest), parts.len()))
}

/// Formats the parts' checksums to be kept with the object, in the algorithm of the upload or the default one.
pub(super) fn part_checksums(kind: Option<ChecksumKind>, parts: &[Part]) -> Option<String> {
    let algorithm = kind.map_or(Algorithm::Crc64Nvme, |kind| kind.algorithm);
    let noted = parts.iter().map(|part| Checksum::from_text(part.note.as_deref()?));
    let noted: Vec<Checksum> = noted.collect::<Option<_>>()?;
    let found = noted.iter().map(|checksum| checksum.find(algorithm));
    part_metadata::checksums_to_text(&found.collect::<Option<Vec<&Checksum>>>()?)
}
