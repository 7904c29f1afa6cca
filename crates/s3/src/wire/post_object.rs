//! POST Object (S3 API Reference, "Browser-based uploads using POST"): checks a form and converts it to the equivalent
//! PUT.

use aws_lc_rs::hmac;
use base64::Engine as _;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use s3s::auth::S3Auth as _;
use s3s::{Body, S3Error, S3Result, s3_error};
use std::fmt::Write as _;

use super::document;
use super::form::{Form, duplicate_field, header_parameter, malformed};
use super::post_policy::{PostPolicy, expired};
use super::signing_key::{ALGORITHM, Scope, is_equal_constant_time};
use crate::addressing::encode_path;
use crate::authentication::{Credential, SigningContext};
use crate::body::BODY_BYTES_MAX;
use crate::error::{invalid_argument, malformed_xml, not_implemented, precondition_failed};
use crate::error_document::{escaped, with_details};
use crate::headers;
use crate::scope::object_url;
use crate::sessions::Sessions;

/// The time for which a signature is valid after its date (one week), in seconds.
const SIGNED_SECS_MAX: i64 = 7 * 24 * 3600;
/// The time by which a client's clock may be ahead, in seconds.
const AHEAD_SECS_MAX: i64 = 15 * 60;

/// The signature fields of a form.
const SIGNATURE_FIELDS: [&str; 5] =
    ["policy", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"];

/// Fields that become headers of the PUT, in addition to [`HEADER_FAMILIES`].
const HEADER_FIELDS: [&str; 12] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-md5",
    "content-type",
    "expires",
    "x-amz-acl",
    "x-amz-server-side-encryption",
    "x-amz-storage-class",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
];
const HEADER_FAMILIES: [&str; 4] = ["x-amz-meta-", "x-amz-checksum-", "x-amz-object-lock-", "x-amz-grant-"];
/// Further `x-amz-` fields that are allowed and do not become headers.
const OTHER_AMZ_FIELDS: [&str; 2] = ["x-amz-security-token", "x-amz-sdk-checksum-algorithm"];

/// The response that a form asks for.
#[derive(Debug)]
pub(crate) struct FormResponse {
    bucket: String,
    key: String,
    /// The URL of the new object.
    location: String,
    status: StatusCode,
    redirect: Option<url::Url>,
}

/// A form as the equivalent PUT.
pub(crate) struct FormPost {
    pub(crate) head: Parts,
    pub(crate) body: Body,
    pub(crate) key: String,
    /// The access key that signed the form's policy.
    pub(crate) signer: Option<String>,
    pub(crate) response: FormResponse,
}

fn is_form(value: &[u8]) -> bool {
    let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"multipart/form-data")
}

/// Reads a form up to its file, verifies its signature and policy, and returns the equivalent PUT.
pub(crate) async fn read(
    head: Parts,
    body: Body,
    (bucket, bucket_url): (&str, &str),
    context: SigningContext<'_>,
) -> S3Result<FormPost> {
    let kind = head.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if !is_form(kind) {
        let wanted = "Bucket POST must be of the enclosure-type multipart/form-data";
        return Err(with_details(precondition_failed(), &[("Condition", wanted)]));
    }
    let boundary = header_parameter(&String::from_utf8_lossy(kind), "boundary").ok_or_else(malformed)?;
    let mut form = Form::read(body, &boundary).await?;
    form.expand_filename();
    let signer = verify_signer(&form, context).await?;
    let lengths = match form.field("policy") {
        Some(policy) if signer.is_some() => {
            let policy = PostPolicy::parse(policy)?;
            policy.check(&form, bucket, context.now)?;
            let (min, max) = policy.length_range();
            (min, max.min(BODY_BYTES_MAX))
        }
        _ => (0, BODY_BYTES_MAX),
    };
    let key = form.field("key").filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| missing("key"))?.to_owned();
    let response = FormResponse {
        bucket: bucket.to_owned(),
        key: key.clone(),
        status: requested_status(form.field("success_action_status")),
        redirect: requested_redirect(&form),
        location: object_url(bucket_url, &key),
    };
    let mut put = head;
    put.method = Method::PUT;
    let path = format!("/{}/{}", encode_path(bucket), encode_path(&key));
    put.uri = path.parse().map_err(|_| s3_error!(InvalidURI))?;
    put.headers = put_headers(&form, &put.headers)?;
    Ok(FormPost { head: put, body: form.file.into_body(lengths), key, signer, response })
}

/// Returns the access key that signed the form's policy; `None` if the form is unsigned.
async fn verify_signer(
    form: &Form,
    SigningContext { region, sessions, now }: SigningContext<'_>,
) -> S3Result<Option<String>> {
    if let Some(access_key) = form.field("awsaccesskeyid") {
        return verify_signer_v2(form, access_key, sessions).await.map(Some);
    }
    if SIGNATURE_FIELDS.iter().all(|name| form.field(name).is_none()) {
        return Ok(None);
    }
    let field = |name: &'static str| form.field(name).ok_or_else(|| missing(name));
    let (policy, signature) = (field("policy")?, field("x-amz-signature")?);
    let (credential, date) = (field("x-amz-credential")?, field("x-amz-date")?);
    let algorithm = field("x-amz-algorithm")?;
    if algorithm != ALGORITHM {
        return Err(invalid_argument("Only AWS4-HMAC-SHA256 is supported", "X-Amz-Algorithm", algorithm));
    }
    let signed = headers::basic_date(date).ok_or_else(|| {
        invalid_argument("X-Amz-Date must be formated via ISO8601 Long format", "X-Amz-Date", date)
    })?;
    let invalid = |what: &str| invalid_argument(what, "x-amz-credential", credential);
    let parsed = Credential::parse(credential).ok_or_else(|| {
        invalid(
            "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
        )
    })?;
    parsed.check(region).map_err(|wrong| invalid(&wrong.text))?;
    if !date.starts_with(parsed.date) {
        return Err(invalid("the date is not the one of x-amz-date"));
    }
    let age = now.secs().saturating_sub(signed);
    if !(-AHEAD_SECS_MAX..=SIGNED_SECS_MAX).contains(&age) {
        return Err(expired());
    }
    let access_key = credential.split('/').next().unwrap_or_default();
    let secret = find_secret(access_key, sessions).await?;
    let scope = Scope::of(credential).ok_or_else(|| invalid("the Credential is mal-formed"))?;
    if !is_equal_constant_time(&scope.key(secret.expose()).sign(policy), signature) {
        return Err(signature_mismatch(access_key, policy, signature));
    }
    sessions.check_token(Some(access_key), form.field("x-amz-security-token"))?;
    Ok(Some(access_key.to_owned()))
}

/// Verifies a form with the older signature (S3 User Guide, "Signing and authenticating REST requests (AWS signature
/// version 2)").
async fn verify_signer_v2(form: &Form, access_key: &str, sessions: &Sessions) -> S3Result<String> {
    let (policy, signature) = match (form.field("policy"), form.field("signature")) {
        (Some(policy), Some(signature)) => (policy, signature),
        (None, _) => return Err(missing("policy")),
        (_, None) => return Err(missing("signature")),
    };
    let secret = find_secret(access_key, sessions).await?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.expose().as_bytes());
    let right = base64::engine::general_purpose::STANDARD.encode(hmac::sign(&key, policy.as_bytes()));
    if !is_equal_constant_time(&right, signature) {
        return Err(signature_mismatch(access_key, policy, signature));
    }
    sessions.check_token(Some(access_key), form.field("x-amz-security-token"))?;
    Ok(access_key.to_owned())
}

async fn find_secret(access_key: &str, sessions: &Sessions) -> S3Result<s3s::auth::SecretKey> {
    let secret = sessions.get_secret_key(access_key).await;
    secret.map_err(|error| with_details(error, &[("AWSAccessKeyId", access_key)]))
}

/// Returns the headers of the PUT: those of the form's fields, and a few of the request's.
fn put_headers(form: &Form, request: &HeaderMap) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for name in
        [http::header::HOST, http::header::ORIGIN, HeaderName::from_static("x-amz-expected-bucket-owner")]
    {
        headers.extend(request.get(&name).map(|value| (name.clone(), value.clone())));
    }
    for (field, value) in form.fields() {
        let name = match field {
            "acl" => "x-amz-acl",
            "tagging" => {
                let tags = tags_to_query(value)?;
                if headers.contains_key("x-amz-tagging") {
                    return Err(duplicate_field(field));
                }
                headers.insert("x-amz-tagging", HeaderValue::try_from(tags).map_err(|_| malformed_xml())?);
                continue;
            }
            field => field,
        };
        let is_header =
            HEADER_FIELDS.contains(&name) || HEADER_FAMILIES.iter().any(|family| name.starts_with(family));
        if is_header {
            let invalid =
                || invalid_argument("The value of a form's field is not one of a header", field, value);
            let name = HeaderName::try_from(name).map_err(|_| invalid())?;
            // Several field names can mean one header, such as `acl` and `x-amz-acl`.
            if headers.contains_key(&name) {
                return Err(duplicate_field(field));
            }
            headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?);
        } else if name.starts_with("x-amz-")
            && !SIGNATURE_FIELDS.contains(&name)
            && !OTHER_AMZ_FIELDS.contains(&name)
        {
            return Err(not_implemented(&format!("The form field {field}")));
        }
    }
    Ok(headers)
}

/// Converts a `Tagging` document to the value of the header `x-amz-tagging`.
fn tags_to_query(xml: &str) -> S3Result<String> {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for tag in document::parse_tags(xml)? {
        query.append_pair(&tag.key.unwrap_or_default(), &tag.value.unwrap_or_default());
    }
    Ok(query.finish())
}

/// Returns the status that a form asks for. Anything but 200 and 201 means 204.
fn requested_status(asked: Option<&str>) -> StatusCode {
    match asked {
        Some("200") => StatusCode::OK,
        Some("201") => StatusCode::CREATED,
        _ => StatusCode::NO_CONTENT,
    }
}

fn requested_redirect(form: &Form) -> Option<url::Url> {
    let target = form.field("success_action_redirect").or_else(|| form.field("redirect"))?;
    target.parse::<url::Url>().ok().filter(|url| ["http", "https"].contains(&url.scheme()))
}

impl FormResponse {
    /// Converts the response to the PUT to the response to the form.
    pub(crate) fn into_response(self, mut answer: Response<Body>) -> Response<Body> {
        if !answer.status().is_success() {
            return answer;
        }
        let etag = headers::text(answer.headers(), ETAG).unwrap_or_default();
        let etag = etag.to_owned();
        *answer.status_mut() = self.status;
        if let Some(mut target) = self.redirect {
            *answer.status_mut() = StatusCode::SEE_OTHER;
            let query = [("bucket", &self.bucket), ("key", &self.key), ("etag", &etag)];
            target.query_pairs_mut().extend_pairs(query);
            insert(answer.headers_mut(), LOCATION, target.as_str());
            return answer;
        }
        insert(answer.headers_mut(), LOCATION, &self.location);
        if self.status == StatusCode::CREATED {
            let body = format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<PostResponse xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Location>{}</Location><Bucket>{}</Bucket><Key>{}</Key><ETag>{}</ETag></PostResponse>",
                escaped(&self.location),
                escaped(&self.bucket),
                escaped(&self.key),
                escaped(&etag)
            );
            insert(answer.headers_mut(), CONTENT_TYPE, "application/xml");
            insert(answer.headers_mut(), CONTENT_LENGTH, &body.len().to_string());
            *answer.body_mut() = Body::from(body);
        }
        answer
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

fn missing(field: &str) -> S3Error {
    let message = format!(
        "Bucket POST must contain a field named '{field}'.  If it is specified, please check the order of the fields."
    );
    invalid_argument(&message, field, "")
}

fn signature_mismatch(access_key: &str, policy: &str, signature: &str) -> S3Error {
    let mut bytes = policy.bytes().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x} ").ok();
        text
    });
    bytes.pop();
    let error = s3_error!(
        SignatureDoesNotMatch,
        "The request signature we calculated does not match the signature you provided. Check your key and signing method."
    );
    with_details(
        error,
        &[
            ("AWSAccessKeyId", access_key),
            ("StringToSign", policy),
            ("SignatureProvided", signature),
            ("StringToSignBytes", &bytes),
        ],
    )
}
