//! The checksum algorithm and type of a multipart upload.

use s3s::dto;
use s3s::{S3Result, s3_error};
use store::Upload;

use crate::checksums::{self, Algorithm, Checksum};
use crate::metadata_names::CHECKSUM;

/// The checksum algorithm and type chosen when the upload began. They apply to all parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChecksumKind {
    pub(super) algorithm: Algorithm,
    pub(super) is_composite: bool,
}

impl ChecksumKind {
    pub(super) fn of(algorithm: Option<&str>, kind: Option<&str>) -> S3Result<Option<Self>> {
        let Some(algorithm) = algorithm else {
            return match kind {
                None => Ok(None),
                Some(kind) if !is_checksum_type(kind) => {
                    Err(checksums::invalid_header("x-amz-checksum-type"))
                }
                Some(_) => Err(s3_error!(
                    InvalidRequest,
                    "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."
                )),
            };
        };
        let algorithm = Algorithm::from_name(algorithm)?;
        let is_composite = match kind.map(str::to_ascii_uppercase).as_deref() {
            None => algorithm.can_be_composite(),
            Some(dto::ChecksumType::COMPOSITE) => true,
            Some(dto::ChecksumType::FULL_OBJECT) => false,
            Some(_) => return Err(checksums::invalid_header("x-amz-checksum-type")),
        };
        let can_be = if is_composite { algorithm.can_be_composite() } else { algorithm.can_be_full_object() };
        if !can_be {
            let kind = if is_composite { "COMPOSITE" } else { "FULL_OBJECT" };
            let name = algorithm.name().to_ascii_lowercase();
            return Err(s3_error!(
                InvalidRequest,
                "The {kind} checksum type cannot be used with the {name} checksum algorithm."
            ));
        }
        Ok(Some(Self { algorithm, is_composite }))
    }

    /// Formats the choice to be kept with the upload, as a [`Checksum`] without a value.
    pub(super) fn to_text(self) -> String {
        self.checksum().to_text().trim_end().to_owned()
    }

    /// Returns a checksum without a value.
    fn checksum(self) -> Checksum {
        Checksum { is_composite: self.is_composite, ..Checksum::new(self.algorithm, String::new()) }
    }

    pub(super) fn of_upload(upload: &Upload) -> Option<Self> {
        let (algorithm, kind) = upload.attributes.user.get(CHECKSUM)?.split_once(' ')?;
        Self::of(Some(algorithm), Some(kind)).ok().flatten()
    }

    pub(super) fn checksum_type(self) -> dto::ChecksumType {
        self.checksum().kind()
    }
}

fn is_checksum_type(text: &str) -> bool {
    [dto::ChecksumType::COMPOSITE, dto::ChecksumType::FULL_OBJECT]
        .iter()
        .any(|kind| kind.eq_ignore_ascii_case(text))
}

/// Checks that a completion names the checksum type chosen for its upload, if it names one.
pub(super) fn check_checksum_type(
    kind: Option<ChecksumKind>,
    given: Option<&dto::ChecksumType>,
) -> S3Result<()> {
    let Some(given) = given.map(|given| given.as_str().to_ascii_uppercase()) else { return Ok(()) };
    if !is_checksum_type(&given) {
        return Err(checksums::invalid_header("x-amz-checksum-type"));
    }
    let expected = kind.map(|kind| kind.checksum_type().as_str().to_owned());
    match expected {
        Some(expected) if expected != given => Err(s3_error!(
            InvalidRequest,
            "The upload was created using the {expected} checksum mode. The complete request must use the same checksum mode."
        )),
        _ => Ok(()),
    }
}
