//! The services that read and write files.

use std::sync::Arc;

use crate::content::opener::FileOpener;
use crate::content::read::reader::FileReader;
use crate::content::write::editor::FileEditor;
use crate::content::write::publisher::Publisher;
use crate::content::write::uploader::Uploader;

/// The services that read, write and store files.
#[derive(Debug)]
pub(crate) struct FileIo {
    pub(crate) opener: Arc<FileOpener>,
    pub(crate) uploader: Arc<Uploader>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) reader: Arc<FileReader>,
    pub(crate) editor: Arc<FileEditor>,
}
