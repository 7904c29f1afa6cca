//! Messages of the node service.

use super::controller::hide_secrets;
use super::{Texts, VolumeCapability};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct StageVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnstageVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) staging_target_path: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(crate) struct PublishVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(string, tag = "4")]
    pub(crate) target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(crate) secrets: Texts,
    #[prost(btree_map = "string, string", tag = "8")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UnpublishVolume {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) target_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetVolumeStats {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VolumeStats {
    #[prost(message, repeated, tag = "1")]
    pub(crate) usage: Vec<VolumeUsage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct VolumeUsage {
    #[prost(int64, tag = "1")]
    pub(crate) available: i64,
    #[prost(int64, tag = "2")]
    pub(crate) total: i64,
    #[prost(int64, tag = "3")]
    pub(crate) used: i64,
    #[prost(enumeration = "Unit", tag = "4")]
    pub(crate) unit: i32,
}

/// `VolumeUsage.Unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Bytes = 1,
    Inodes = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NodeInfo {
    #[prost(string, tag = "1")]
    pub(crate) node_id: String,
}

hide_secrets!(StageVolume, PublishVolume);
