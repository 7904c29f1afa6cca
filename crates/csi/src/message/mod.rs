//! Messages of the Container Storage Interface 1.x (package `csi.v1`), as far as the driver uses them: field names and tags are those of the
//! published schema. Fields that are not here are skipped when they arrive.

mod controller;
mod identity;
mod node;

pub(crate) use controller::*;
pub(crate) use identity::*;
pub(crate) use node::*;

use prost::Message;
use std::collections::BTreeMap;

/// A map of texts: parameters, contexts or secrets.
pub(crate) type Texts = BTreeMap<String, String>;

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Empty {}

/// A way in which a volume is to be used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) block: Option<Empty>,
    #[prost(message, optional, tag = "2")]
    pub(crate) mount: Option<MountVolume>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access_mode: Option<AccessMode>,
}

/// The options of a mount.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MountVolume {
    #[prost(string, tag = "1")]
    pub(crate) fs_type: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) mount_flags: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) volume_mount_group: String,
}

/// The nodes and programs that use a volume at the same time.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct AccessMode {
    #[prost(enumeration = "Mode", tag = "1")]
    pub(crate) mode: i32,
}

/// `VolumeCapability.AccessMode.Mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Mode {
    Unknown = 0,
    SingleNodeWriter = 1,
    SingleNodeReaderOnly = 2,
    MultiNodeReaderOnly = 3,
    MultiNodeSingleWriter = 4,
    MultiNodeMultiWriter = 5,
    SingleNodeSingleWriter = 6,
    SingleNodeMultiWriter = 7,
}

/// The size asked for.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub(crate) required_bytes: i64,
    #[prost(int64, tag = "2")]
    pub(crate) limit_bytes: i64,
}

/// A capability of a service (`ControllerServiceCapability`, `NodeServiceCapability`): the number of the operations.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) rpc: Option<TypeNumber>,
}

/// A message whose only field is a number of an enumeration.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct TypeNumber {
    #[prost(int32, tag = "1")]
    pub(crate) number: i32,
}

/// The capabilities of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<ServiceCapability>,
}

impl ServiceCapabilities {
    /// Returns the capabilities with these numbers.
    pub(crate) fn of(numbers: &[i32]) -> Self {
        let capability = |number: &i32| ServiceCapability { rpc: Some(TypeNumber { number: *number }) };
        Self { capabilities: numbers.iter().map(capability).collect() }
    }
}
