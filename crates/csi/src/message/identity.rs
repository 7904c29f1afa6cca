//! Messages of the identity service.

use super::{Texts, TypeNumber};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) vendor_version: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(crate) manifest: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginCapabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<PluginCapability>,
}

/// One of the two kinds of capabilities.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginCapability {
    #[prost(message, optional, tag = "1")]
    pub(crate) service: Option<TypeNumber>,
    #[prost(message, optional, tag = "2")]
    pub(crate) volume_expansion: Option<TypeNumber>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Probed {
    #[prost(message, optional, tag = "1")]
    pub(crate) ready: Option<Ready>,
}

/// `google.protobuf.BoolValue`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Ready {
    #[prost(bool, tag = "1")]
    pub(crate) value: bool,
}
