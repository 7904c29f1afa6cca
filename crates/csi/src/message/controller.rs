//! Messages of the controller service.

use super::{CapacityRange, Empty, Texts, VolumeCapability};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct CreateVolume {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: Texts,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
    /// The snapshot or volume to copy. Only its presence is checked, because volumes are always made empty.
    #[prost(message, optional, tag = "6")]
    pub(crate) volume_content_source: Option<Empty>,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) mutable_parameters: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeCreated {
    #[prost(message, optional, tag = "1")]
    pub(crate) volume: Option<Volume>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Volume {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
    #[prost(string, tag = "2")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct DeleteVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) secrets: Texts,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct ValidateVolumeCapabilities {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) volume_context: Texts,
    #[prost(message, repeated, tag = "3")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub(crate) parameters: Texts,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Validated {
    #[prost(message, optional, tag = "1")]
    pub(crate) confirmed: Option<Confirmed>,
    #[prost(string, tag = "2")]
    pub(crate) message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Confirmed {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) volume_context: Texts,
    #[prost(message, repeated, tag = "2")]
    pub(crate) volume_capabilities: Vec<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) parameters: Texts,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct ExpandVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) secrets: Texts,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct VolumeExpanded {
    #[prost(int64, tag = "1")]
    pub(crate) capacity_bytes: i64,
    #[prost(bool, tag = "2")]
    pub(crate) node_expansion_required: bool,
}

/// Shows messages with secrets by their names alone.
macro_rules! hide_secrets {
    ($($message:ident),*) => {
        $(impl std::fmt::Debug for $message {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($message)).finish_non_exhaustive()
            }
        })*
    };
}
pub(super) use hide_secrets;

hide_secrets!(CreateVolume, DeleteVolume, ValidateVolumeCapabilities, ExpandVolume);
