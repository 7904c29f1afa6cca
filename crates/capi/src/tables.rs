//! The open handles of the process.

use crate::handles::Handles;
use crate::open_directory::OpenDirectory;
use crate::open_file::OpenFile;
use crate::volume::Volume;

/// Open volumes and batches.
pub(crate) static VOLUMES: Handles<Volume> = Handles::new(1);

/// Open files.
pub(crate) static FILES: Handles<OpenFile> = Handles::new(2);

/// Open directories.
pub(crate) static DIRECTORIES: Handles<OpenDirectory> = Handles::new(3);
