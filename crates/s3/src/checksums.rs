//! Checksums of bodies: declared by clients, computed here, and kept with objects.
//!
//! S3 User Guide, "Checking object integrity in Amazon S3": CRC64NVME is computed if a client declares nothing. A
//! multipart upload has either a checksum of the whole object ("full object") or one of its parts' checksums
//! ("composite").

use base64::Engine as _;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;
use s3s::crypto::{self, Checksum as _};
use s3s::dto;
use s3s::{S3Error, S3Result, s3_error};
use std::sync::{Arc, OnceLock};
use store::{ETag, ObjectMeta, hex};
use xxhash_rust::xxh3::Xxh3;
use xxhash_rust::xxh64::Xxh64;

use crate::error_document::with_details;
use crate::metadata_names::CHECKSUM;

/// A checksum algorithm of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    Sha512,
    Md5,
    XxHash64,
    XxHash3,
    XxHash128,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::XxHash64,
        Self::XxHash3,
        Self::XxHash128,
    ];
    /// Algorithms that `s3s` does not know: it neither parses nor writes their headers.
    pub(crate) const NOT_IN_S3S: [Self; 5] =
        [Self::Sha512, Self::Md5, Self::XxHash64, Self::XxHash3, Self::XxHash128];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Md5 => "MD5",
            Self::XxHash64 => "XXHASH64",
            Self::XxHash3 => "XXHASH3",
            Self::XxHash128 => "XXHASH128",
        }
    }

    /// Returns the algorithm of a name, in any case. `InvalidRequest` if there is none.
    pub(crate) fn from_name(name: &str) -> S3Result<Self> {
        let found = Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| s3_error!(InvalidRequest, "Checksum algorithm provided is unsupported. Please try again with any of the valid types: [CRC32, CRC32C, CRC64NVME, MD5, SHA1, SHA256, SHA512, XXHASH128, XXHASH3, XXHASH64]"))
    }

    pub(crate) fn dto(self) -> dto::ChecksumAlgorithm {
        dto::ChecksumAlgorithm::from_static(self.name())
    }

    pub(crate) fn header(self) -> String {
        format!("x-amz-checksum-{}", self.name().to_ascii_lowercase())
    }

    pub(crate) fn digest_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::XxHash64 | Self::XxHash3 => 8,
            Self::Md5 | Self::XxHash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns whether the checksum of a whole object can be computed from the checksums of its parts.
    pub(crate) fn can_be_full_object(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }

    /// Returns whether S3 has a composite checksum of this algorithm.
    pub(crate) fn can_be_composite(self) -> bool {
        self != Self::Crc64Nvme
    }

    fn hasher(self) -> Hasher {
        match self {
            Self::Crc32 => Hasher::Crc32(crypto::Crc32::new()),
            Self::Crc32c => Hasher::Crc32c(crypto::Crc32c::new()),
            Self::Crc64Nvme => Hasher::Crc64Nvme(crypto::Crc64Nvme::new()),
            Self::Sha1 => Hasher::Sha1(crypto::Sha1::new()),
            Self::Sha256 => Hasher::Sha256(crypto::Sha256::new()),
            Self::Sha512 => Hasher::Sha512(sha2::Sha512::default()),
            Self::Md5 => Hasher::Md5(crypto::Md5::new()),
            Self::XxHash64 => Hasher::XxHash64(Xxh64::new(0)),
            Self::XxHash3 => Hasher::XxHash3(Box::default()),
            Self::XxHash128 => Hasher::XxHash128(Box::default()),
        }
    }
}

/// A checksum that is being computed.
enum Hasher {
    Crc32(crypto::Crc32),
    Crc32c(crypto::Crc32c),
    Crc64Nvme(crypto::Crc64Nvme),
    Sha1(crypto::Sha1),
    Sha256(crypto::Sha256),
    Sha512(sha2::Sha512),
    Md5(crypto::Md5),
    XxHash64(Xxh64),
    XxHash3(Box<Xxh3>),
    XxHash128(Box<Xxh3>),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Crc32c(hasher) => hasher.update(bytes),
            Self::Crc64Nvme(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => sha2::Digest::update(hasher, bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::XxHash64(hasher) => hasher.update(bytes),
            Self::XxHash3(hasher) | Self::XxHash128(hasher) => hasher.update(bytes),
        }
    }

    /// Returns the checksum in base64.
    fn finish(self) -> String {
        match self {
            Self::Crc32(hasher) => encode(hasher.finalize().as_ref()),
            Self::Crc32c(hasher) => encode(hasher.finalize().as_ref()),
            Self::Crc64Nvme(hasher) => encode(hasher.finalize().as_ref()),
            Self::Sha1(hasher) => encode(hasher.finalize().as_ref()),
            Self::Sha256(hasher) => encode(hasher.finalize().as_ref()),
            Self::Sha512(hasher) => encode(sha2::Digest::finalize(hasher).as_ref()),
            Self::Md5(hasher) => encode(hasher.finalize().as_ref()),
            Self::XxHash64(hasher) => encode(&hasher.digest().to_be_bytes()),
            Self::XxHash3(hasher) => encode(&hasher.digest().to_be_bytes()),
            Self::XxHash128(hasher) => encode(&hasher.digest128().to_be_bytes()),
        }
    }
}

/// A checksum of an object or a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checksum {
    pub(crate) algorithm: Algorithm,
    /// The checksum in base64. A composite one ends in `-` and the number of parts.
    pub(crate) value: String,
    pub(crate) is_composite: bool,
    /// A further checksum of the same bytes, which may have an extra one in turn.
    pub(crate) extra: Option<Box<Self>>,
}

impl Checksum {
    /// Returns a checksum of the full-object type.
    pub(crate) fn new(algorithm: Algorithm, value: String) -> Self {
        Self { algorithm, value, is_composite: false, extra: None }
    }

    /// Returns the checksum that is kept with an object, if one is.
    pub(crate) fn of_object(meta: &ObjectMeta) -> Option<Self> {
        Self::from_text(meta.attributes.user.get(CHECKSUM)?)
    }

    /// Returns the checksum of an algorithm, if this checksum or its extra ones have it.
    pub(crate) fn find(&self, algorithm: Algorithm) -> Option<&Self> {
        if self.algorithm == algorithm {
            return Some(self);
        }
        self.extra.as_deref()?.find(algorithm)
    }

    pub(crate) fn compute(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = algorithm.hasher();
        hasher.update(bytes);
        Self::new(algorithm, hasher.finish())
    }

    /// Returns the text that SHA-256's element carries for a checksum that `s3s` has no element for.
    pub(crate) fn carrier_text(&self) -> Option<String> {
        let is_unknown = Algorithm::NOT_IN_S3S.contains(&self.algorithm);
        is_unknown.then(|| format!("{}:{}", self.algorithm.name(), self.value))
    }

    /// Returns the decoded digest, unless the checksum is composite.
    pub(crate) fn digest(&self) -> Option<Vec<u8>> {
        decode(&self.value)
    }

    /// Adds an MD5 of the same bytes, if there is none.
    fn and_md5(self, digest: Vec<u8>) -> Self {
        if self.find(Algorithm::Md5).is_some() {
            return self;
        }
        let extra = match self.extra {
            None => Self::new(Algorithm::Md5, encode(&digest)),
            Some(extra) => extra.and_md5(digest),
        };
        Self { extra: Some(Box::new(extra)), ..self }
    }

    /// Formats the checksum to be kept with an object or a part.
    pub(crate) fn to_text(&self) -> String {
        let kind = if self.is_composite { "COMPOSITE" } else { "FULL_OBJECT" };
        let text = format!("{} {kind} {}", self.algorithm.name(), self.value);
        self.extra.as_ref().map_or(text.clone(), |extra| format!("{text} {}", extra.to_text()))
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.splitn(4, ' ');
        let (algorithm, kind, value) = (words.next()?, words.next()?, words.next()?);
        let algorithm = Algorithm::from_name(algorithm).ok()?;
        let extra = words.next().and_then(Self::from_text).map(Box::new);
        Some(Self { algorithm, value: value.to_owned(), is_composite: kind == "COMPOSITE", extra })
    }

    pub(crate) fn kind(&self) -> dto::ChecksumType {
        let kind =
            if self.is_composite { dto::ChecksumType::COMPOSITE } else { dto::ChecksumType::FULL_OBJECT };
        dto::ChecksumType::from_static(kind)
    }

    /// Returns the composite checksum: the checksum of the parts' concatenated digests, with their number. `None` if a
    /// part's checksum is composite itself or not base64.
    pub(crate) fn composite<'a>(algorithm: Algorithm, parts: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let (mut digests, mut count) = (Vec::new(), 0);
        for part in parts {
            digests.extend(decode(&part.value)?);
            count += 1;
        }
        let value = format!("{}-{count}", Self::compute(algorithm, &digests).value);
        Some(Self { is_composite: true, ..Self::new(algorithm, value) })
    }

    /// Returns the checksum of concatenated parts of the given lengths. `None` unless the algorithm is a CRC and there
    /// are parts with checksums of it.
    pub(crate) fn concatenated(algorithm: Algorithm, parts: &[(Self, u64)]) -> Option<Self> {
        let crc = match algorithm {
            Algorithm::Crc32 => CrcAlgorithm::Crc32IsoHdlc,
            Algorithm::Crc32c => CrcAlgorithm::Crc32Iscsi,
            Algorithm::Crc64Nvme => CrcAlgorithm::Crc64Nvme,
            _ => return None,
        };
        let number = |checksum: &Self| {
            let digest = decode(&checksum.value)?;
            Some(digest.into_iter().fold(0, |number: u64, byte| number << 8 | u64::from(byte)))
        };
        let (first, rest) = parts.split_first()?;
        let whole = rest.iter().try_fold(number(&first.0)?, |whole, (part, len)| {
            Some(crc_fast::checksum_combine(crc, whole, number(part)?, *len))
        })?;
        let digest = &whole.to_be_bytes()[8 - algorithm.digest_bytes()..];
        Some(Self::new(algorithm, encode(digest)))
    }
}

/// Sets the field for a checksum's algorithm in an `s3s` output, which has fields for five algorithms.
macro_rules! show_checksum {
    ($output:expr, $checksum:expr) => {
        if let Some(checksum) = $checksum.as_ref() {
            let checksum: &$crate::checksums::Checksum = checksum;
            let value = Some(checksum.value.clone());
            match checksum.algorithm {
                $crate::checksums::Algorithm::Crc32 => $output.checksum_crc32 = value,
                $crate::checksums::Algorithm::Crc32c => $output.checksum_crc32c = value,
                $crate::checksums::Algorithm::Crc64Nvme => $output.checksum_crc64nvme = value,
                $crate::checksums::Algorithm::Sha1 => $output.checksum_sha1 = value,
                $crate::checksums::Algorithm::Sha256 => $output.checksum_sha256 = value,
                // Checksums without a field are sent as headers, see `add_checksum_header`.
                _ => drop(value),
            }
        }
    };
}
pub(crate) use show_checksum;

/// Sets the field for a checksum's algorithm in a value that becomes a document. The field of SHA-256 carries a
/// checksum that `s3s` has no element for.
macro_rules! write_checksum {
    ($output:expr, $checksum:expr) => {
        $crate::checksums::show_checksum!($output, $checksum);
        if let Some(carried) = $checksum.as_ref().and_then(|checksum| checksum.carrier_text()) {
            $output.checksum_sha256 = Some(carried);
        }
    };
}
pub(crate) use write_checksum;

/// Collects the five checksum fields of an `s3s` input.
macro_rules! given_checksums {
    ($input:expr) => {
        vec![
            ($crate::checksums::Algorithm::Crc32, $input.checksum_crc32.clone()),
            ($crate::checksums::Algorithm::Crc32c, $input.checksum_crc32c.clone()),
            ($crate::checksums::Algorithm::Crc64Nvme, $input.checksum_crc64nvme.clone()),
            ($crate::checksums::Algorithm::Sha1, $input.checksum_sha1.clone()),
            ($crate::checksums::Algorithm::Sha256, $input.checksum_sha256.clone()),
        ]
    };
}
pub(crate) use given_checksums;

/// The contents of the five checksum fields.
pub(crate) type ChecksumFields = Vec<(Algorithm, Option<String>)>;

/// Returns the only checksum given; `None` if none is. `InvalidRequest` if there are several, or if the value is no
/// digest of its algorithm.
pub(crate) fn single_checksum(given: ChecksumFields) -> S3Result<Option<(Algorithm, String)>> {
    let mut found = given.into_iter().filter_map(|(algorithm, value)| Some((algorithm, value?)));
    let Some((algorithm, value)) = found.next() else { return Ok(None) };
    if found.next().is_some() {
        return Err(multiple_checksums_error());
    }
    let is_digest = decode(&value).is_some_and(|bytes| bytes.len() == algorithm.digest_bytes());
    if is_digest { Ok(Some((algorithm, value))) } else { Err(invalid_checksum(algorithm)) }
}

/// Decodes carrier values, see [`Checksum::carrier_text`].
pub(crate) fn decode_carried(given: ChecksumFields) -> ChecksumFields {
    let taken = given.into_iter().map(|(algorithm, value)| {
        let carried = value.as_deref().and_then(|value| value.split_once(':'));
        let carried =
            carried.and_then(|(name, value)| Some((Algorithm::from_name(name).ok()?, value.to_owned())));
        carried.map_or((algorithm, value), |(algorithm, value)| (algorithm, Some(value)))
    });
    taken.collect()
}

pub(crate) fn multiple_checksums_error() -> S3Error {
    s3_error!(
        InvalidRequest,
        "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
    )
}

pub(crate) fn invalid_checksum(algorithm: Algorithm) -> S3Error {
    invalid_header(&algorithm.header())
}

/// Returns the checksums of the fields and of all headers; a header takes precedence over the field of its algorithm.
/// `s3s` parses only some of the headers, and none that is empty.
pub(crate) fn with_headers(mut given: ChecksumFields, headers: &http::HeaderMap) -> ChecksumFields {
    let text = |algorithm: Algorithm| Some(headers.get(algorithm.header())?.to_str().ok()?.to_owned());
    given.retain(|(algorithm, _)| text(*algorithm).is_none());
    given.extend(Algorithm::ALL.map(|algorithm| (algorithm, text(algorithm))));
    given
}

/// Does what [`single_checksum`] does, for fields and headers together.
pub(crate) fn single_checksum_with_headers(
    given: ChecksumFields,
    headers: &http::HeaderMap,
) -> S3Result<Option<(Algorithm, String)>> {
    single_checksum(with_headers(given, headers))
}

/// Adds the response header of a checksum that `s3s` has no field for.
pub(crate) fn add_checksum_header(headers: &mut http::HeaderMap, checksum: Option<&Checksum>) {
    let shown = checksum.filter(|checksum| Algorithm::NOT_IN_S3S.contains(&checksum.algorithm));
    if let Some(checksum) = shown
        && let Ok(name) = http::HeaderName::try_from(checksum.algorithm.header())
        && let Ok(value) = http::HeaderValue::try_from(&checksum.value)
    {
        headers.insert(name, value);
    }
}

pub(crate) fn invalid_header(name: &str) -> S3Error {
    s3_error!(InvalidRequest, "Value for {name} header is invalid.")
}

/// The digests that a client declared for a body.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) md5: Option<String>,
    pub(crate) checksum: Option<(Algorithm, String)>,
    /// The algorithm named by `x-amz-sdk-checksum-algorithm` or by a trailer. Its value, if any, follows the body.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) trailer: Option<Trailer>,
}

/// An MD5 that is being computed, and the client's declared value.
struct Md5 {
    digest: crypto::Md5,
    declared: Option<Vec<u8>>,
}

/// The digests of a received body.
#[derive(Debug, Default)]
pub(crate) struct BodyDigest {
    pub(crate) checksum: Option<Checksum>,
    /// The MD5 as an etag, where it was computed.
    pub(crate) etag: Option<ETag>,
}

impl BodyDigest {
    /// Returns the checksums to keep with a part: its own, and its MD5.
    pub(crate) fn into_part_checksum(self) -> Option<Checksum> {
        let md5 = self.etag.and_then(|etag| store::unhex(etag.as_str()));
        match (self.checksum, md5) {
            (Some(checksum), Some(md5)) => Some(checksum.and_md5(md5)),
            (checksum, md5) => checksum.or(md5.map(|md5| Checksum::new(Algorithm::Md5, encode(&md5)))),
        }
    }
}

/// The digests of a body that is being read.
pub(crate) struct Digests {
    declared: Declared,
    md5: Option<Md5>,
    algorithm: Option<Algorithm>,
    hasher: Option<Hasher>,
    extra: Option<(Algorithm, Hasher)>,
}

impl Digests {
    /// Starts the digests of a body. `default` applies if the client declares no algorithm. `InvalidDigest` for a
    /// malformed MD5.
    pub(crate) fn begin(declared: Declared, default: Option<Algorithm>) -> S3Result<Self> {
        let md5 = match &declared.md5 {
            None => None,
            Some(text) => {
                let digest = MD5_CODE.decode(text).ok().filter(|bytes| bytes.len() == 16);
                let declared = Some(digest.ok_or_else(|| invalid_digest(text))?);
                Some(Md5 { digest: crypto::Md5::new(), declared })
            }
        };
        let declares = declared.checksum.as_ref().map(|(algorithm, _)| *algorithm).or(declared.algorithm);
        let algorithm = declares.or(default);
        let hasher = algorithm.map(Algorithm::hasher);
        Ok(Self { declared, md5, algorithm, hasher, extra: None })
    }

    /// Makes the digests include an MD5, even if the client did not declare one.
    pub(crate) fn with_md5(mut self) -> Self {
        self.md5.get_or_insert_with(|| Md5 { digest: crypto::Md5::new(), declared: None });
        self
    }

    /// Stops computing an MD5 that the client did not declare.
    pub(crate) fn drop_undeclared_md5(&mut self) {
        self.md5 = self.md5.take().filter(|md5| md5.declared.is_some());
    }

    /// Makes the digests include a checksum of a further algorithm.
    pub(crate) fn with_extra(mut self, algorithm: Algorithm) -> Self {
        self.extra = (self.algorithm != Some(algorithm)).then(|| (algorithm, algorithm.hasher()));
        self
    }

    pub(crate) fn update(&mut self, piece: &Bytes) {
        if let Some(md5) = &mut self.md5 {
            md5.digest.update(piece);
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(piece);
        }
        if let Some((_, hasher)) = &mut self.extra {
            hasher.update(piece);
        }
    }

    /// Returns the checksum that the client declared before the body, which need not be right.
    pub(crate) fn declared(&self) -> Option<Checksum> {
        let (algorithm, value) = self.declared.checksum.clone()?;
        Some(Checksum::new(algorithm, value))
    }

    /// Verifies the body's digests against the declared ones, and returns the computed ones. Errors: `BadDigest` if
    /// they differ, `InvalidRequest` for a malformed trailer.
    pub(crate) fn finish(self) -> S3Result<BodyDigest> {
        let etag = self.md5.map(Md5::finish).transpose()?;
        let (Some(algorithm), Some(hasher)) = (self.algorithm, self.hasher) else {
            return Ok(BodyDigest { checksum: None, etag });
        };
        let extra = self.extra.map(|(algorithm, hasher)| Box::new(Checksum::new(algorithm, hasher.finish())));
        let checksum = Checksum { extra, ..Checksum::new(algorithm, hasher.finish()) };
        let declared = match self.declared.checksum {
            Some((_, value)) => Some(value),
            None => trailing_checksum(self.declared.trailer.as_ref(), algorithm)?,
        };
        if declared.is_some_and(|declared| declared != checksum.value) {
            let name = algorithm.name();
            return Err(s3_error!(
                BadDigest,
                "The {name} you specified did not match the calculated checksum."
            ));
        }
        Ok(BodyDigest { checksum: Some(checksum), etag })
    }
}

impl Md5 {
    /// Verifies the MD5 if one was declared, and returns the computed one as an etag.
    fn finish(self) -> S3Result<ETag> {
        let found = self.digest.finalize();
        if let Some(declared) = self.declared.filter(|declared| *declared != found.as_slice()) {
            return Err(bad_md5(&declared, found.as_slice()));
        }
        Ok(ETag::new(&hex(found.as_slice())))
    }
}

/// The checksum in a body's trailer, available once the body was read to its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trailer(Arc<OnceLock<String>>);

impl Trailer {
    pub(crate) fn set(&self, checksum: String) {
        self.0.set(checksum).ok();
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Returns the checksum in the trailer, if any.
fn trailing_checksum(trailer: Option<&Trailer>, algorithm: Algorithm) -> S3Result<Option<String>> {
    let Some(text) = trailer.and_then(Trailer::get) else { return Ok(None) };
    let is_digest = decode(text).is_some_and(|bytes| bytes.len() == algorithm.digest_bytes());
    match is_digest {
        true => Ok(Some(text.to_owned())),
        false => {
            let header = algorithm.header();
            Err(s3_error!(InvalidRequest, "Value for {header} trailing header is invalid."))
        }
    }
}

/// Returns the error for a malformed Content-MD5.
pub(crate) fn invalid_digest(text: &str) -> S3Error {
    let error = s3_error!(InvalidDigest, "The Content-Md5 you specified is not valid.");
    with_details(error, &[("Content-MD5", text)])
}

fn bad_md5(declared: &[u8], found: &[u8]) -> S3Error {
    let error = s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received.");
    with_details(error, &[("CalculatedDigest", &encode(found)), ("ExpectedDigest", &hex(declared))])
}

/// The base64 of a Content-MD5: like S3, it ignores the unused low bits of the last character.
const MD5_CODE: base64::engine::GeneralPurpose = base64::engine::GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    base64::engine::general_purpose::PAD.with_decode_allow_trailing_bits(true),
);

pub(crate) fn encode(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Decodes standard base64 with padding; `None` if the text is anything else.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_parts_make_the_checksum_of_the_whole() {
        let whole: Vec<u8> = (0..100_000_u32).map(|n| (n * 7) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let parts: Vec<_> = whole
                .chunks(30_011)
                .map(|part| (Checksum::compute(algorithm, part), part.len() as u64))
                .collect();
            let joined = Checksum::concatenated(algorithm, &parts).unwrap();
            assert_eq!(joined, Checksum::compute(algorithm, &whole), "{algorithm:?}");
            assert_eq!(Checksum::from_text(&joined.to_text()).unwrap(), joined);
        }
    }

    #[test]
    fn a_declared_checksum_must_be_one_and_must_be_right() {
        let declared = |value: &str| Declared {
            checksum: Some((Algorithm::Crc32c, value.to_owned())),
            ..Declared::default()
        };
        let right = Checksum::compute(Algorithm::Crc32c, b"abc").value;
        for (value, code) in [(right.as_str(), None), ("AAAAAA==", Some("BadDigest"))] {
            let mut digests = Digests::begin(declared(value), None).unwrap();
            digests.update(&Bytes::from_static(b"abc"));
            let code_found = digests.finish().err().map(|error| error.code().as_str().to_owned());
            assert_eq!(code_found.as_deref(), code);
        }
        let given = |value: &str| {
            let mut given = Algorithm::ALL.map(|algorithm| (algorithm, None)).to_vec();
            given[1].1 = Some(value.to_owned());
            given
        };
        assert_eq!(single_checksum(given(&right)).unwrap(), Some((Algorithm::Crc32c, right.clone())));
        for wrong in ["", "abc", "AAAA"] {
            assert!(single_checksum(given(wrong)).is_err(), "{wrong}");
        }
    }
}
