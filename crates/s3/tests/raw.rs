//! Raw HTTP requests that Tenon's own client cannot send: signed by hand, one connection per request.

use super::test_server::{SECRET, TestServer};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Returns the present time as `20130524T000000Z`.
pub(crate) fn now() -> String {
    let secs = store::Clock::now(&store::SystemClock).secs();
    let (days, rest) = (secs / 86_400, secs % 86_400);
    // Years count from March, so that the leap day comes last.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the text of an element's first occurrence.
    pub(crate) fn element(&self, name: &str) -> Option<&str> {
        let (_, rest) = self.body.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0)
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.body);
        self
    }

    #[track_caller]
    pub(crate) fn errs(self, status: u16, code: &str) -> Self {
        let answer = self.is(status);
        assert_eq!(answer.element("Code"), Some(code), "{}", answer.body);
        answer
    }
}

/// Sends a request of a user, or an unsigned one.
pub(crate) async fn send(
    server: &TestServer,
    user: Option<&str>,
    what: (&str, &str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    send_with(server, user.map(|user| (user, SECRET)), what, headers, body).await
}

/// Like [`send`], with an access key and a secret.
pub(crate) async fn send_with(
    server: &TestServer,
    user: Option<(&str, &str)>,
    (method, path, query): (&str, &str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    let signed = signed(server, user, (method, path, query), headers, body);
    send_signed(server, (method, path, query), &signed, body).await
}

/// Returns the headers of a request, with its signature if it has a user.
pub(crate) fn signed(
    server: &TestServer,
    user: Option<(&str, &str)>,
    what: (&str, &str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<(String, String)> {
    let mut headers: Vec<(String, String)> =
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if headers.iter().all(|(name, _)| name != "host") {
        headers.push(("host".to_owned(), server.inner.address().to_string()));
    }
    if let Some(user) = user {
        sign(user, what, &mut headers, body);
    }
    headers
}

/// Sends a request with exactly these headers.
pub(crate) async fn send_signed(
    server: &TestServer,
    (method, path, query): (&str, &str, &str),
    headers: &[(String, String)],
    body: &str,
) -> Answer {
    let host = server.inner.address();
    let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()));
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

fn sign(
    (user, secret): (&str, &str),
    (method, path, query): (&str, &str, &str),
    headers: &mut Vec<(String, String)>,
    body: &str,
) {
    let time = now();
    let given = headers.iter().find(|(name, _)| name == "x-amz-content-sha256").map(|(_, hash)| hash.clone());
    let hash = given.clone().unwrap_or_else(|| sha256(body));
    if given.is_none() {
        headers.push(("x-amz-content-sha256".to_owned(), hash.clone()));
    }
    headers.push(("x-amz-date".to_owned(), time.clone()));
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let mut words: Vec<String> =
        query.split('&').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    words.iter_mut().filter(|word| !word.contains('=')).for_each(|word| word.push('='));
    words.sort();
    let canonical = format!("{method}\n{path}\n{}\n{lines}\n{names}\n{hash}", words.join("&"));
    let scope = scope(&time);
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(&canonical));
    let signature = signature(secret, &time, &text);
    let value =
        format!("AWS4-HMAC-SHA256 Credential={user}/{scope}, SignedHeaders={names}, Signature={signature}");
    headers.push(("authorization".to_owned(), value));
}

/// Returns the credential scope of a time.
pub(crate) fn scope(time: &str) -> String {
    format!("{}/us-east-1/s3/aws4_request", &time[..8])
}

/// Signs a text with the signing key derived from a secret and a time.
pub(crate) fn signature(secret: &str, time: &str, text: &str) -> String {
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope(time).split('/') {
        key = hmac(&key, part.as_bytes());
    }
    hex(&hmac(&key, text.as_bytes()))
}

pub(crate) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Computes HMAC-SHA256 (RFC 2104) for keys up to one block.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
