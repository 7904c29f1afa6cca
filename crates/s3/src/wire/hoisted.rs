//! Headers hoisted into the query of a presigned URL.
//!
//! SDKs move `x-amz-` headers into the query, and S3 treats them as headers (S3 API Reference, "Authenticating
//! Requests: Using Query Parameters"). The signature covers the query, so that they need no further check.

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use s3s::S3Result;

use crate::error::invalid_argument;
use crate::query::Query;

/// The parameters that make up the signature of a presigned URL.
pub(super) const SIGNATURE_PARAMETERS: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Content-Sha256",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-Signature",
    "X-Amz-SignedHeaders",
];

/// Headers that say how a request is signed and how its body is framed. They are never moved back, because the signature would then be
/// verified as a signature of another form.
const OF_SIGNING: [&str; 4] =
    ["x-amz-content-sha256", "x-amz-date", "x-amz-decoded-content-length", "x-amz-trailer"];

/// Turns hoisted parameters back into headers. A header given in both places is refused.
pub(crate) fn unhoist(head: &mut Parts) -> S3Result<()> {
    for (parameter, value) in Query::of(&head.uri).iter() {
        let name = parameter.to_ascii_lowercase();
        let is_hoisted = name.starts_with("x-amz-")
            && !SIGNATURE_PARAMETERS.contains(&parameter)
            && !OF_SIGNING.contains(&name.as_str());
        if !is_hoisted {
            continue;
        }
        let invalid = |why: &str| invalid_argument(why, parameter, value);
        let header = HeaderName::try_from(name.as_str());
        let header = header.map_err(|_| invalid("A query parameter is not the name of a header"))?;
        let given = HeaderValue::from_bytes(value.as_bytes());
        let given = given.map_err(|_| invalid("A query parameter is not the value of a header"))?;
        if head.headers.contains_key(&header) {
            return Err(invalid("A header is given in the query as well"));
        }
        head.headers.insert(header, given);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unhoisted(target: &str) -> S3Result<Parts> {
        let request = http::Request::put(target).header("x-amz-acl", "private").body(()).unwrap();
        let mut head = request.into_parts().0;
        unhoist(&mut head).map(|()| head)
    }

    #[test]
    fn headers_in_the_query_become_headers() {
        let head = unhoisted(
            "/b/k?X-Amz-Signature=0&X-Amz-Security-Token=t&X-Amz-Meta-A=b%20c&x-amz-tagging=a%3Db&x-amz-date=1",
        );
        let head = head.unwrap();
        let mut names: Vec<_> = head.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["x-amz-acl", "x-amz-meta-a", "x-amz-tagging"]);
        assert_eq!(head.headers["x-amz-meta-a"], "b c");
        unhoisted("/b/k?x-amz-acl=public-read").unwrap_err();
        unhoisted("/b/k?x-amz-meta-a=%0a").unwrap_err();
    }
}
