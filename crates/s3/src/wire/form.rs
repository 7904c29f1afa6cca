//! Browser forms (RFC 7578): the fields are read whole, the file at the end is streamed.

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use s3s::{Body, S3Error, S3Result};

use super::framing::{PieceSource, streamed};
use crate::error::{body_error, custom, invalid_argument};

/// The maximum length of all fields with their headers, in bytes. They are read before their sender is known. S3 takes
/// 20 KB (S3 API Reference, "POST Object").
const FIELDS_BYTES_MAX: usize = 64 << 10;
/// The number of bytes after which no more is read and discarded behind the file.
const DRAIN_BYTES_MAX: usize = 64 << 10;
/// The name of the field that holds the object.
const FILE: &str = "file";

/// A form whose fields have been read.
pub(super) struct Form {
    /// The fields in order, with lower-case names.
    fields: Vec<(String, String)>,
    /// The file name given by the browser.
    pub(super) filename: String,
    pub(super) file: FormFile,
}

impl Form {
    /// Reads the fields up to the file. `boundary` comes from the request's `Content-Type`. Error:
    /// `MalformedPOSTRequest`.
    pub(super) async fn read(body: Body, boundary: &str) -> S3Result<Self> {
        let mut reader = Reader { body, buffer: BytesMut::new(), read: 0 };
        // The first delimiter of the body has no line break before it.
        reader.buffer.extend_from_slice(b"\r\n");
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        reader.read_until(&delimiter).await?;
        let mut fields: Vec<(String, String)> = Vec::new();
        while !reader.skip_delimiter_end().await? {
            let head = reader.read_until(b"\r\n\r\n").await?;
            let head = Head::parse(&String::from_utf8_lossy(&head)).ok_or_else(malformed)?;
            if head.name == FILE {
                let file =
                    FormFile { reader, delimiter, has_ended: false, len_max: u64::MAX, len_min: 0, len: 0 };
                return Ok(Self { fields, filename: head.filename, file });
            }
            if fields.iter().any(|(name, _)| *name == head.name) {
                return Err(duplicate_field(&head.name));
            }
            let value = reader.read_until(&delimiter).await?;
            fields.push((head.name, String::from_utf8(value.to_vec()).map_err(|_| malformed())?));
        }
        Err(invalid_argument("POST requires exactly one file upload per request.", FILE, "0"))
    }

    /// Returns the value of a field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields().find(|(field, _)| *field == name).map(|(_, value)| value)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Replaces `${filename}` in all fields by the name of the file.
    pub(super) fn expand_filename(&mut self) {
        let name = self.filename.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        self.fields.iter_mut().for_each(|(_, value)| *value = value.replace("${filename}", &name));
    }
}

/// The relevant headers of a field.
struct Head {
    name: String,
    filename: String,
}

impl Head {
    fn parse(text: &str) -> Option<Self> {
        let disposition = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        })?;
        let name = header_parameter(disposition, "name")?.to_ascii_lowercase();
        Some(Self { name, filename: header_parameter(disposition, "filename").unwrap_or_default() })
    }
}

/// Returns a parameter of a header's value, quoted or not; `None` if there is none.
pub(super) fn header_parameter(value: &str, wanted: &str) -> Option<String> {
    let mut rest = value;
    loop {
        rest = rest.split_once(';')?.1.trim_start();
        let (name, after) = rest.split_once('=')?;
        let (text, next) = match after.strip_prefix('"') {
            Some(quoted) => parse_quoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(text);
        }
        rest = next;
    }
}

fn parse_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// The file of a form, up to the next delimiter.
pub(super) struct FormFile {
    reader: Reader,
    delimiter: Vec<u8>,
    has_ended: bool,
    /// The least and the greatest length that the policy of the form allows.
    len_min: u64,
    len_max: u64,
    /// The number of bytes of the file so far.
    len: u64,
}

impl FormFile {
    /// Returns a body of the file's bytes. It fails unless their number lies within the bounds.
    pub(super) fn into_body(mut self, (len_min, len_max): (u64, u64)) -> Body {
        (self.len_min, self.len_max) = (len_min, len_max);
        streamed(self)
    }
}

impl PieceSource for FormFile {
    async fn next(&mut self) -> S3Result<Option<Bytes>> {
        if self.has_ended {
            return Ok(None);
        }
        let piece = match self.reader.read_before(&self.delimiter).await? {
            Piece::More(piece) => piece,
            Piece::Last(piece) => {
                self.has_ended = true;
                self.reader.drain().await?;
                piece
            }
        };
        self.len += piece.len() as u64;
        if self.len > self.len_max {
            return Err(wrong_size("EntityTooLarge", self.len, ("MaxSizeAllowed", self.len_max)));
        }
        if self.has_ended && self.len < self.len_min {
            return Err(wrong_size("EntityTooSmall", self.len, ("MinSizeAllowed", self.len_min)));
        }
        Ok(Some(piece))
    }
}

/// A buffered reader of a form.
struct Reader {
    body: Body,
    buffer: BytesMut,
    /// Bytes read so far, up to the file.
    read: usize,
}

/// A piece of the data before a delimiter.
enum Piece {
    More(Bytes),
    Last(Bytes),
}

impl Reader {
    /// Returns the bytes before a delimiter, and skips the delimiter. Fails if the fields become too long.
    async fn read_until(&mut self, text: &[u8]) -> S3Result<Bytes> {
        let mut from = 0;
        loop {
            if let Some(at) = position(&self.buffer[from..], text) {
                let before = self.buffer.split_to(from + at).freeze();
                drop(self.buffer.split_to(text.len()));
                self.read += before.len() + text.len();
                return Ok(before);
            }
            from = self.buffer.len().saturating_sub(text.len() - 1);
            if self.read + self.buffer.len() > FIELDS_BYTES_MAX {
                return Err(too_long());
            }
            self.fill().await?;
        }
    }

    /// Reads some of the data before a delimiter. Bytes that may begin the delimiter are held back.
    async fn read_before(&mut self, text: &[u8]) -> S3Result<Piece> {
        loop {
            if let Some(at) = position(&self.buffer, text) {
                return Ok(Piece::Last(self.buffer.split_to(at).freeze()));
            }
            let safe = self.buffer.len().saturating_sub(text.len() - 1);
            if safe > 0 {
                return Ok(Piece::More(self.buffer.split_to(safe).freeze()));
            }
            self.fill().await?;
        }
    }

    /// Skips the end of a delimiter line; returns whether the delimiter was the form's last.
    async fn skip_delimiter_end(&mut self) -> S3Result<bool> {
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if &self.buffer[..2] == b"--" {
            return Ok(true);
        }
        // A delimiter may be followed by blanks.
        let blanks = self.read_until(b"\r\n").await?;
        if blanks.iter().all(|byte| b" \t".contains(byte)) { Ok(false) } else { Err(malformed()) }
    }

    /// Reads and discards the data after the file, up to [`DRAIN_BYTES_MAX`], so that the client gets the response.
    async fn drain(&mut self) -> S3Result<()> {
        let mut read = 0;
        while read < DRAIN_BYTES_MAX
            && let Some(piece) = self.body.next().await
        {
            read += piece.map_err(body_error)?.len();
        }
        Ok(())
    }

    /// Reads another piece of the body into the buffer.
    async fn fill(&mut self) -> S3Result<()> {
        let piece = self.body.next().await.ok_or_else(malformed)?;
        self.buffer.extend_from_slice(&piece.map_err(body_error)?);
        Ok(())
    }
}

/// Returns the offset of `text` in `bytes`.
fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let (first, rest) = text.split_first()?;
    let mut from = 0;
    while let Some(at) = bytes.get(from..)?.iter().position(|byte| byte == first) {
        from += at + 1;
        if bytes[from..].starts_with(rest) {
            return Some(from - 1);
        }
    }
    None
}

/// Returns the error for a repeated field: the policy would be checked against one value, and the other be stored.
pub(super) fn duplicate_field(field: &str) -> S3Error {
    invalid_argument("POST requires exactly one value for each form field.", field, "")
}

pub(super) fn malformed() -> S3Error {
    let message = "The body of your POST request is not well-formed multipart/form-data.";
    custom("MalformedPOSTRequest", http::StatusCode::BAD_REQUEST, message)
}

fn too_long() -> S3Error {
    let message = "Your POST request fields preceding the upload file were too large.";
    custom("MaxPostPreDataLengthExceeded", http::StatusCode::BAD_REQUEST, message)
}

fn wrong_size(code: &'static str, size: u64, (name, limit): (&str, u64)) -> S3Error {
    let error = custom(code, http::StatusCode::BAD_REQUEST, "");
    let (size, limit) = (size.to_string(), limit.to_string());
    crate::error_document::with_details(error, &[("ProposedSize", &size), (name, &limit)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a body that arrives in pieces of `size` bytes.
    fn body(text: &str, size: usize) -> Body {
        struct Text(Vec<Bytes>);
        impl PieceSource for Text {
            async fn next(&mut self) -> S3Result<Option<Bytes>> {
                Ok(self.0.pop())
            }
        }
        let pieces = text.as_bytes().chunks(size).rev().map(Bytes::copy_from_slice);
        streamed(Text(pieces.collect()))
    }

    const FORM: &str = "--x\r\nContent-Disposition: form-data; name=\"Key\"\r\n\r\na/${filename}\r\n--x\r\ncontent-disposition: form-data; name=file; filename=\"C:\\\\d\\\\e \\\"1\\\".txt\"\r\nContent-Type: text/plain\r\n\r\none\r\n--y\r\ntwo\r\n--x--\r\nignored";

    #[tokio::test]
    async fn fields_and_a_file_come_in_any_pieces() {
        for size in [1, 2, 7, 1000] {
            let mut form = Form::read(body(FORM, size), "x").await.unwrap();
            form.expand_filename();
            assert_eq!(form.field("key"), Some("a/e \"1\".txt"));
            let mut file = form.file.into_body((0, 100));
            let file = file.store_all_limited(1000).await.unwrap();
            assert_eq!(file, "one\r\n--y\r\ntwo");
        }
    }

    #[tokio::test]
    async fn malformed_forms_are_refused() {
        for (text, code) in [
            ("", "MalformedPOSTRequest"),
            ("--x", "MalformedPOSTRequest"),
            ("--x\r\n\r\n\r\na\r\n--x--", "MalformedPOSTRequest"),
            ("--x--\r\n", "InvalidArgument"),
            (
                "--x\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--x\r\ncontent-disposition: form-data; name=A\r\n\r\n2\r\n--x",
                "InvalidArgument",
            ),
        ] {
            let error = Form::read(body(text, 3), "x").await.err().unwrap();
            assert_eq!(error.code().as_str(), code, "{text}");
        }
        let cut = &FORM[..FORM.len() - 20];
        let form = Form::read(body(cut, 3), "x").await.unwrap();
        assert!(form.file.into_body((0, 100)).store_all_limited(1000).await.is_err());
        let long = format!("--x\r\ncontent-disposition: form-data; name=a\r\n\r\n{}", "a".repeat(2 << 20));
        let error = Form::read(body(&long, 1 << 16), "x").await.err().unwrap();
        assert_eq!(error.code().as_str(), "MaxPostPreDataLengthExceeded");
    }

    #[tokio::test]
    async fn file_length_is_bounded() {
        for (bounds, is_right) in [((0, 13), true), ((13, 100), true), ((0, 12), false), ((14, 100), false)] {
            let form = Form::read(body(FORM, 5), "x").await.unwrap();
            let read = form.file.into_body(bounds).store_all_limited(1000).await;
            assert_eq!(read.is_ok(), is_right, "{bounds:?}");
        }
    }
}
