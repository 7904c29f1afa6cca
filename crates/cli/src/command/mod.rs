//! The commands of `tenon`, one module each, and what only commands use: flags, units and output.

pub(crate) mod analyze;
pub(crate) mod arguments;
pub(crate) mod backup;
pub(crate) mod conflicts;
pub(crate) mod drive;
pub(crate) mod events;
pub(crate) mod flags;
pub(crate) mod format;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod import;
pub(crate) mod locate;
pub(crate) mod mount;
pub(crate) mod object;
pub(crate) mod output;
pub(crate) mod quota;
pub(crate) mod rebuild;
pub(crate) mod remount;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod umount;
pub(crate) mod units;
pub(crate) mod unmounted;
pub(crate) mod version;
pub(crate) mod views;
