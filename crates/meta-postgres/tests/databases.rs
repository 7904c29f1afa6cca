//! The suite of databases.

use crate::fixture::{OwnVolume, Volume};

meta_remote::database_tests!(Volume::new(), OwnVolume::new());
