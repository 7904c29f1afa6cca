//! Content types by file name extension.
//!
//! A new file gets the type of its name. A type that an object already has is kept. A rename changes the type only of files
//! that have none, or that have the type of their old name: `page.html.part` and `draft.txt` get a new type when they are
//! renamed to `page.html`.

use meta::{Ino, Inode, Kind};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::Attributes;

/// Types by extension, in lower case and sorted (IANA, "Media Types").
const TYPES: [(&str, &str); 124] = [
    ("3gp", "video/3gpp"),
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apng", "image/apng"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/x-c"),
    ("cbor", "application/cbor"),
    ("conf", "text/plain"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("eml", "message/rfc822"),
    ("eot", "application/vnd.ms-fontobject"),
    ("eps", "application/postscript"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gz", "application/gzip"),
    ("h", "text/x-c"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4v", "video/mp4"),
    ("mbox", "application/mbox"),
    ("md", "text/markdown"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript"),
    ("mka", "audio/matroska"),
    ("mkv", "video/matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("ndjson", "application/x-ndjson"),
    ("obj", "model/obj"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("p7s", "application/pkcs7-signature"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("psd", "image/vnd.adobe.photoshop"),
    ("py", "text/x-python"),
    ("rar", "application/vnd.rar"),
    ("rdf", "application/rdf+xml"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("sql", "application/sql"),
    ("sqlite", "application/vnd.sqlite3"),
    ("stl", "model/stl"),
    ("svg", "image/svg+xml"),
    ("svgz", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tex", "application/x-tex"),
    ("text", "text/plain"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("tsv", "text/tab-separated-values"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("ttl", "text/turtle"),
    ("txt", "text/plain"),
    ("usdz", "model/vnd.usdz+zip"),
    ("vtt", "text/vtt"),
    ("warc", "application/warc"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("wmv", "video/x-ms-wmv"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("wsdl", "application/wsdl+xml"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// Returns the type of a path or name by its extension; `None` without an extension or for an unknown one.
pub(crate) fn content_type(path: &[u8]) -> Option<&'static str> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let at = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0)?;
    let end = std::str::from_utf8(&name[at + 1..]).ok()?.to_ascii_lowercase();
    let found = TYPES.binary_search_by_key(&end.as_str(), |(end, _)| end).ok()?;
    Some(TYPES[found].1)
}

/// Files whose type may have changed because they were renamed since their headers were stored, with the types of their
/// old names.
#[derive(Debug, Default)]
pub(crate) struct Renamed(Mutex<BTreeMap<Ino, Option<&'static str>>>);

impl Renamed {
    /// Records a rename if it can change the file's type. Returns whether it can.
    pub(crate) fn note(&self, ino: Ino, from: &[u8], to: &[u8]) -> bool {
        let (old_type, new_type) = (content_type(from), content_type(to));
        let is_other = new_type.is_some() && old_type != new_type;
        if is_other {
            self.lock().entry(ino).or_insert(old_type);
        }
        is_other
    }

    /// Forgets a rename, because the headers were stored or are not going to be.
    pub(crate) fn forget(&self, ino: Ino) {
        self.lock().remove(&ino);
    }

    /// Sets the content type in the headers of a renamed file by its present name, unless the headers have a type of
    /// their own.
    pub(super) fn retype(&self, inode: &Inode, attributes: &mut Attributes) {
        let Some(old_type) = self.lock().get(&inode.ino).copied() else { return };
        let new_type = inode.home.as_ref().and_then(|(_, name)| content_type(name.as_bytes()));
        let is_by_name = attributes.content_type.is_none() || attributes.content_type.as_deref() == old_type;
        if inode.kind == Kind::File && new_type.is_some() && is_by_name {
            attributes.content_type = new_type.map(str::to_owned);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Option<&'static str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(TYPES.is_sorted_by(|(one, _), (next, _)| one < next));
    }

    #[test]
    fn the_last_extension_decides() {
        assert_eq!(content_type(b"a.HTML"), Some("text/html"));
        assert_eq!(content_type(b"a.tar.gz"), Some("application/gzip"));
        for name in [&b"html"[..], b".html", b"a.html/b", b"a/.html", b"a.", b"a.html.part", b"a.\xff"] {
            assert_eq!(content_type(name), None);
        }
    }
}
