//! Checks of how a volume is to be used (`VolumeCapability`), and of other fields of requests.

use crate::message::{CapacityRange, Mode, MountVolume, VolumeCapability};
use tonic::Status;

/// A checked use of a volume: access mode and mount options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Usage {
    mode: Mode,
    pub(crate) mount: MountVolume,
}

impl Usage {
    /// Checks a capability of a request.
    pub(crate) fn of(capability: Option<&VolumeCapability>) -> Result<Self, Status> {
        let capability = capability.ok_or_else(|| missing("volume_capability"))?;
        if capability.block.is_some() {
            return Err(Status::invalid_argument("Tenon has no block volumes; use volumeMode: Filesystem"));
        }
        let mount = capability.mount.clone().ok_or_else(|| missing("access_type"))?;
        let mode = capability.access_mode.map(|access| access.mode());
        match mode {
            None | Some(Mode::Unknown) => Err(missing("access_mode")),
            Some(mode) => Ok(Self { mode, mount }),
        }
    }

    /// Checks all capabilities of a request, which must have at least one.
    pub(crate) fn check_all(capabilities: &[VolumeCapability]) -> Result<(), Status> {
        if capabilities.is_empty() {
            return Err(missing("volume_capabilities"));
        }
        capabilities.iter().try_for_each(|capability| Self::of(Some(capability)).map(drop))
    }

    /// Returns whether the volume is only read.
    pub(crate) fn is_read_only(&self) -> bool {
        matches!(self.mode, Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly)
    }

    /// Returns whether other nodes may use the volume while one of them writes.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.mode, Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter)
    }

    /// Returns whether only one pod may use the volume.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.mode == Mode::SingleNodeSingleWriter
    }
}

/// Returns the error for a missing field.
pub(crate) fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("the request has no {field}"))
}

/// Returns a field of a request, which must not be empty.
pub(crate) fn required<'f>(field: &str, value: &'f str) -> Result<&'f str, Status> {
    if value.is_empty() { Err(missing(field)) } else { Ok(value) }
}

/// Returns the size that a request asks for, 0 if it asks for none. The size is recorded, not enforced.
pub(crate) fn capacity(range: Option<CapacityRange>) -> Result<i64, Status> {
    let Some(CapacityRange { required_bytes, limit_bytes }) = range else { return Ok(0) };
    let is_valid =
        required_bytes >= 0 && limit_bytes >= 0 && (limit_bytes == 0 || required_bytes <= limit_bytes);
    match is_valid {
        true => Ok(if required_bytes > 0 { required_bytes } else { limit_bytes }),
        false => Err(Status::out_of_range(format!(
            "no volume has at least {required_bytes} and at most {limit_bytes} bytes"
        ))),
    }
}

/// Returns whether an existing volume has a size that a request asks for.
pub(crate) fn has_capacity(bytes: i64, range: Option<CapacityRange>) -> bool {
    let range = range.unwrap_or_default();
    bytes >= range.required_bytes && (range.limit_bytes == 0 || bytes <= range.limit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AccessMode, Empty};

    fn capability(mode: Mode) -> VolumeCapability {
        VolumeCapability {
            block: None,
            mount: Some(MountVolume::default()),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }
    }

    #[test]
    fn a_way_of_use_is_checked() {
        assert!(Usage::of(None).is_err());
        assert!(Usage::of(Some(&capability(Mode::Unknown))).is_err());
        let block = VolumeCapability { block: Some(Empty {}), ..capability(Mode::SingleNodeWriter) };
        assert!(Usage::of(Some(&block)).unwrap_err().message().contains("Filesystem"));
        assert!(Usage::of(Some(&capability(Mode::MultiNodeReaderOnly))).unwrap().is_read_only());
        assert!(Usage::of(Some(&capability(Mode::MultiNodeMultiWriter))).unwrap().is_shared());
        assert!(!Usage::of(Some(&capability(Mode::SingleNodeWriter))).unwrap().is_shared());
        assert!(Usage::check_all(&[]).is_err());
    }

    #[test]
    fn sizes_are_compared_with_the_range() {
        let range = |required_bytes, limit_bytes| Some(CapacityRange { required_bytes, limit_bytes });
        assert_eq!(capacity(None).unwrap(), 0);
        assert_eq!(capacity(range(5, 10)).unwrap(), 5);
        assert_eq!(capacity(range(0, 10)).unwrap(), 10);
        assert!(capacity(range(11, 10)).is_err() && capacity(range(-1, 0)).is_err());
        assert!(has_capacity(5, None) && has_capacity(5, range(5, 0)) && has_capacity(5, range(1, 5)));
        assert!(!has_capacity(5, range(6, 0)) && !has_capacity(5, range(1, 4)));
    }
}
