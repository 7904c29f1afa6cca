//! Cross-origin requests: which origins a bucket allows (S3 User Guide, "Using cross-origin resource sharing").

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName};
use s3s::dto::{CORSConfiguration, CORSRule};
use s3s::{S3Result, s3_error};

use crate::error::bad_request;
use crate::headers;

/// The methods that a rule may allow.
const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];

/// A cross-origin request, or the one that a preflight asks about.
#[derive(Debug)]
pub(crate) struct CorsRequest {
    origin: String,
    method: String,
    headers: Vec<String>,
}

impl CorsRequest {
    /// Parses a preflight (OPTIONS) request. Error: `BadRequest`.
    pub(crate) fn preflight(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &HeaderName| headers::text(headers, name);
        let origin = text(&ORIGIN)
            .filter(|origin| !origin.is_empty())
            .ok_or_else(|| bad_request("Insufficient information. Origin request header needed."))?;
        let method = text(&ACCESS_CONTROL_REQUEST_METHOD).filter(|method| !method.is_empty());
        let method = method.filter(|method| METHODS.contains(method)).ok_or_else(|| {
            bad_request(format!("Invalid Access-Control-Request-Method: {}", method.unwrap_or("null")))
        })?;
        let headers = requested_headers(headers)?;
        Ok(Self { origin: origin.to_owned(), method: method.to_owned(), headers })
    }

    /// Parses an actual cross-origin request; `None` without an Origin header.
    pub(crate) fn of_request(method: &http::Method, headers: &HeaderMap) -> S3Result<Option<Self>> {
        if headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) && headers.contains_key(ORIGIN) {
            return Self::preflight(headers).map(Some);
        }
        let origin = headers::text(headers, ORIGIN).map(str::to_owned);
        let Some(origin) = origin else { return Ok(None) };
        Ok(Some(Self { origin, method: method.as_str().to_owned(), headers: requested_headers(headers)? }))
    }

    /// Returns the CORS response headers by the first rule that allows the request; `None` if no rule does.
    pub(crate) fn response_headers(&self, configuration: &CORSConfiguration) -> Option<HeaderMap> {
        let rule = configuration.cors_rules.iter().find(|rule| self.is_allowed_by(rule))?;
        let mut headers = HeaderMap::new();
        let mut set = |name: HeaderName, value: String| {
            if let Ok(value) = value.parse() {
                headers.insert(name, value);
            }
        };
        let is_any = rule.allowed_origins.iter().any(|origin| origin == "*");
        set(ACCESS_CONTROL_ALLOW_ORIGIN, if is_any { "*".to_owned() } else { self.origin.clone() });
        if !is_any {
            set(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true".to_owned());
        }
        set(ACCESS_CONTROL_ALLOW_METHODS, rule.allowed_methods.join(", "));
        if !self.headers.is_empty() {
            set(ACCESS_CONTROL_ALLOW_HEADERS, self.headers.join(", "));
        }
        if let Some(exposed) = rule.expose_headers.as_ref().filter(|exposed| !exposed.is_empty()) {
            set(ACCESS_CONTROL_EXPOSE_HEADERS, exposed.join(", "));
        }
        if let Some(age) = rule.max_age_seconds {
            set(ACCESS_CONTROL_MAX_AGE, age.to_string());
        }
        set(VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method".to_owned());
        Some(headers)
    }

    fn is_allowed_by(&self, rule: &CORSRule) -> bool {
        let allowed = rule.allowed_headers.as_deref().unwrap_or_default();
        let has_header =
            |name: &String| allowed.iter().any(|pattern| is_like(&pattern.to_ascii_lowercase(), name));
        rule.allowed_origins.iter().any(|pattern| is_like(pattern, &self.origin))
            && rule.allowed_methods.contains(&self.method)
            && self.headers.iter().all(has_header)
    }
}

/// Returns the names of the headers that the browser wants to send, in lower case.
fn requested_headers(headers: &HeaderMap) -> S3Result<Vec<String>> {
    let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).map(http::HeaderValue::as_bytes);
    let asked = String::from_utf8_lossy(asked.unwrap_or_default()).into_owned();
    let asked: Vec<&str> = asked.split(',').filter(|name| !name.trim().is_empty()).collect();
    match asked.iter().find(|name| HeaderName::from_bytes(name.trim().as_bytes()).is_err()) {
        Some(bad) => {
            Err(bad_request(format!("Access-Control-Request-Headers \"{bad}\" contains invalid character.")))
        }
        None => Ok(asked.iter().map(|name| name.trim().to_ascii_lowercase()).collect()),
    }
}

/// Refuses rules that S3 refuses.
pub(crate) fn check(configuration: &CORSConfiguration) -> S3Result<()> {
    for rule in &configuration.cors_rules {
        if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
            return Err(s3_error!(
                MalformedXML,
                "The XML you provided was not well-formed or did not validate against our published schema"
            ));
        }
        if let Some(method) = rule.allowed_methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return Err(s3_error!(
                InvalidRequest,
                "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            ));
        }
        let headers = rule.allowed_headers.as_deref().unwrap_or_default();
        let exposed = rule.expose_headers.as_deref().unwrap_or_default();
        if let Some(name) = headers.iter().find(|name| !is_header(&name.replace('*', ""))) {
            return Err(s3_error!(InvalidRequest, "AllowedHeader \"{name}\" contains invalid character."));
        }
        if let Some(name) = exposed.iter().find(|name| !is_header(name)) {
            return Err(s3_error!(InvalidRequest, "ExposeHeader \"{name}\" contains invalid character."));
        }
        for pattern in rule.allowed_origins.iter().chain(headers) {
            if pattern.matches('*').count() > 1 {
                return Err(s3_error!(
                    InvalidRequest,
                    "AllowedOrigin \"{pattern}\" can not have more than one wildcard."
                ));
            }
        }
    }
    Ok(())
}

/// Returns whether a name is empty or can be that of a header.
fn is_header(name: &str) -> bool {
    name.is_empty() || HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// Returns whether a text matches a pattern with at most one `*`.
fn is_like(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => {
            text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_one_star() {
        assert!(is_like("http://*.example.com", "http://www.example.com"));
        assert!(is_like("*", "anything"));
        assert!(!is_like("ab*ba", "aba"));
        assert!(!is_like("http://a", "http://ab"));
    }
}
