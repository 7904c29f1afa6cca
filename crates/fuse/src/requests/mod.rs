//! The requests by family: each decodes its own, names the call of `vfs`, and shapes the result.

mod attributes;
mod directories;
mod files;
mod locks;
mod names;
mod xattrs;

pub(crate) use files::LookingAgain;
pub(crate) use locks::Asked;
