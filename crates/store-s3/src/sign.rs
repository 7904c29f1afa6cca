//! AWS Signature Version 4 in headers ("Authenticating Requests: Using the Authorization Header", S3 API reference).

use super::credentials::Credentials;
use aws_lc_rs::{digest, hmac};
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use store::Timestamp;
use store::{hex, push_hex};

/// Sent instead of the payload's hash if the signature does not cover the payload.
pub(super) const UNSIGNED_PAYLOAD: &str = "UNSIGNED-PAYLOAD";

/// SHA-256 of an empty payload.
pub(super) const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

pub(super) const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
pub(super) const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
pub(super) const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Signs requests to a service in a region. Caches the signing key of the current day.
pub(super) struct Signer {
    region: Box<str>,
    service: &'static str,
    derived: Mutex<Option<Arc<Derived>>>,
}

/// The signing key of a day and a secret.
struct Derived {
    day: String,
    access_key: String,
    secret_key: String,
    key: hmac::Key,
}

/// The signed parts of a request other than its headers. Path and query are as sent: encoded, the query sorted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signable<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a [u8],
    pub(super) query: &'a [u8],
    /// The payload's hash in hexadecimal, or [`UNSIGNED_PAYLOAD`].
    pub(super) payload: &'a str,
}

impl Signer {
    pub(super) fn new(region: &str, service: &'static str) -> Self {
        Self { region: region.into(), service, derived: Mutex::new(None) }
    }

    /// Adds date, payload hash, session token and signature to `headers`, which must contain `host`. Signs all headers.
    pub(super) fn sign(
        &self,
        signable: Signable<'_>,
        headers: &mut HeaderMap,
        credentials: &Credentials,
        now: Timestamp,
    ) {
        let date = basic_date(now);
        let day = &date[..8];
        headers.insert(X_AMZ_DATE, ascii(date.as_bytes()));
        headers.insert(X_AMZ_CONTENT_SHA256, ascii(signable.payload.as_bytes()));
        if let Some(token) = credentials.session_token() {
            let mut token = ascii(token.as_bytes());
            token.set_sensitive(true);
            headers.insert(X_AMZ_SECURITY_TOKEN, token);
        }
        let (canonical, names) = canonical_request(signable, headers);
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let mut to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n").into_bytes();
        push_hex(&mut to_sign, digest::digest(&digest::SHA256, &canonical).as_ref());
        let tag = hmac::sign(&self.derived(day, credentials).key, &to_sign);
        let mut value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature=",
            credentials.access_key()
        )
        .into_bytes();
        push_hex(&mut value, tag.as_ref());
        headers.insert(AUTHORIZATION, ascii(&value));
    }

    /// Returns the signing key of a day, from the cache if it is that of the last request.
    fn derived(&self, day: &str, credentials: &Credentials) -> Arc<Derived> {
        let mut cached = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(derived) = cached.as_ref().filter(|derived| derived.is_of(day, credentials)) {
            return derived.clone();
        }
        let fresh = Arc::new(Derived {
            day: day.to_owned(),
            access_key: credentials.access_key().to_owned(),
            secret_key: credentials.secret_key().to_owned(),
            key: derive(credentials.secret_key(), day, &self.region, self.service),
        });
        *cached = Some(fresh.clone());
        fresh
    }
}

impl Derived {
    /// Returns whether the key is of a day and these credentials.
    fn is_of(&self, day: &str, credentials: &Credentials) -> bool {
        self.day == day
            && self.access_key == credentials.access_key()
            && self.secret_key == credentials.secret_key()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("region", &self.region).finish_non_exhaustive()
    }
}

/// Computes the SHA-256 of several pieces, in hexadecimal.
pub(super) fn sha256_hex<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    pieces.into_iter().for_each(|piece| context.update(piece));
    hex(context.finish().as_ref())
}

/// Returns the canonical request and the list of signed headers.
fn canonical_request(signable: Signable<'_>, headers: &HeaderMap) -> (Vec<u8>, String) {
    let mut sorted: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    sorted.sort_unstable();
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(signable.method.as_bytes());
    for line in [signable.path, signable.query] {
        out.push(b'\n');
        out.extend_from_slice(line);
    }
    out.push(b'\n');
    let mut names = String::with_capacity(64);
    for (name, value) in sorted {
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        push_collapsed(&mut out, value.trim_ascii());
        out.push(b'\n');
        if !names.is_empty() {
            names.push(';');
        }
        names.push_str(name);
    }
    for line in [names.as_str(), signable.payload] {
        out.push(b'\n');
        out.extend_from_slice(line.as_bytes());
    }
    (out, names)
}

/// Appends a header's value in canonical form: sequences of spaces become one space.
fn push_collapsed(out: &mut Vec<u8>, value: &[u8]) {
    let mut before = 0;
    for &byte in value {
        if byte != b' ' || before != b' ' {
            out.push(byte);
        }
        before = byte;
    }
}

/// Derives the signing key of a day, a region and a service.
fn derive(secret: &str, day: &str, region: &str, service: &str) -> hmac::Key {
    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{secret}").as_bytes());
    [day, region, service, "aws4_request"].iter().fold(first, |key, step| {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, step.as_bytes()).as_ref())
    })
}

/// Formats a time like `20130524T000000Z`.
fn basic_date(now: Timestamp) -> String {
    let moment = jiff::Timestamp::from_second(now.secs()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let at = moment.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let (year, month, day) = (at.year(), at.month(), at.day());
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", at.hour(), at.minute(), at.second())
}

/// Makes a header value of text that is known to be printable.
fn ascii(text: &[u8]) -> HeaderValue {
    HeaderValue::from_bytes(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs an example of the S3 API reference, "Signature Calculations for the Authorization Header: Transferring
    /// Payload in a Single Chunk", with its example account.
    fn example(
        method: &str,
        path: &str,
        query: &str,
        payload: &str,
        more: &[(&'static str, &str)],
    ) -> String {
        let credentials =
            Credentials::new("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", None)
                .unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("examplebucket.s3.amazonaws.com"));
        for (name, value) in more {
            headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let signable = Signable { method, path: path.as_bytes(), query: query.as_bytes(), payload };
        let now = Timestamp::from_secs(1_369_353_600, 0);
        Signer::new("us-east-1", "s3").sign(signable, &mut headers, &credentials, now);
        let value = headers[AUTHORIZATION].to_str().unwrap();
        value.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    #[test]
    fn get_object_with_a_range() {
        let signature = example("GET", "/test.txt", "", EMPTY_SHA256, &[("range", "bytes=0-9")]);
        assert_eq!(signature, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    }

    #[test]
    fn put_object_with_a_signed_payload() {
        let hash = sha256_hex([b"Welcome to ".as_slice(), b"Amazon S3."]);
        assert_eq!(hash, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
        let more = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
        let signature = example("PUT", "/test%24file.text", "", &hash, &more);
        assert_eq!(signature, "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    }

    #[test]
    fn bucket_calls_with_queries() {
        let lifecycle = example("GET", "/", "lifecycle=", EMPTY_SHA256, &[]);
        assert_eq!(lifecycle, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
        let list = example("GET", "/", "max-keys=2&prefix=J", EMPTY_SHA256, &[]);
        assert_eq!(list, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
    }

    /// A provider may return a new secret for the same access key.
    #[test]
    fn the_key_follows_the_day_and_the_secret() {
        let credentials = Credentials::new("A", "B", None).unwrap();
        let signer = Signer::new("r", "s3");
        let first = signer.derived("20130524", &credentials);
        assert!(Arc::ptr_eq(&first, &signer.derived("20130524", &credentials)));
        assert!(!Arc::ptr_eq(&first, &signer.derived("20130525", &credentials)));
        let renewed = Credentials::new("A", "C", None).unwrap();
        let (old, new) = (signer.derived("20130525", &credentials), signer.derived("20130525", &renewed));
        assert!(!Arc::ptr_eq(&old, &new));
    }
}
