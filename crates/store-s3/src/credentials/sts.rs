//! A client of the Security Token Service (AWS Security Token Service API Reference).

use super::provider_request::{ProviderContext, ProviderError, ProviderRequest};
use super::{Credentials, CredentialsError, ExpiringCredentials, document};
use crate::config::Endpoint;
use crate::sign::{self, Signable, Signer};
use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use std::time::Duration;

const VERSION: &str = "2011-06-15";

/// Time limits of connecting to STS and of the whole exchange.
const WITHIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// A Security Token Service.
#[derive(Debug, Clone)]
pub(super) struct Sts {
    endpoint: Endpoint,
    region: String,
}

impl Sts {
    /// Makes a client of the given endpoint, or of AWS's endpoint in the region.
    pub(super) fn new(endpoint: Option<&str>, region: &str) -> Result<Self, CredentialsError> {
        let endpoint = Endpoint::given_or_aws(endpoint, "sts", region)
            .map_err(|error| CredentialsError::malformed("STS", &error.to_string()))?;
        Ok(Self { endpoint, region: region.to_owned() })
    }

    /// Sends the form of an action, signed if `credentials` are given, and returns the credentials in the response.
    pub(super) async fn send(
        &self,
        action: &str,
        fields: &[(&str, &str)],
        credentials: Option<&Credentials>,
        context: &ProviderContext,
    ) -> Result<ExpiringCredentials, ProviderError> {
        let body = Bytes::from(form(action, fields));
        let path = format!("{}/", self.endpoint.base_path);
        let mut request = ProviderRequest::get(
            &format!("{}://{}{path}", self.endpoint.scheme, self.endpoint.authority),
            WITHIN,
        )?;
        request.method = Method::POST;
        request.headers = self.headers(body.len())?;
        if let Some(credentials) = credentials {
            let payload = sign::sha256_hex([body.as_ref()]);
            let signable = Signable { method: "POST", path: path.as_bytes(), query: b"", payload: &payload };
            Signer::new(&self.region, "sts").sign(
                signable,
                &mut request.headers,
                credentials,
                context.clock.now(),
            );
        }
        request.body = body;
        Ok(document::parse_sts(&request.send(context).await?, action)?)
    }

    fn headers(&self, len: usize) -> Result<HeaderMap, ProviderError> {
        let host = HeaderValue::from_str(self.endpoint.authority.as_str()).map_err(|_| {
            ProviderError::permanent("the host contains characters that HTTP headers cannot contain")
        })?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8");
        Ok([(HOST, host), (CONTENT_TYPE, form), (CONTENT_LENGTH, len.into())].into_iter().collect())
    }
}

fn form(action: &str, fields: &[(&str, &str)]) -> String {
    let query = crate::escape::query;
    let mut form = format!("Action={action}&Version={VERSION}");
    for (name, value) in fields {
        form.push_str(&format!("&{name}={}", query(value)));
    }
    form
}
