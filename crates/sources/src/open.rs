//! Opens the source to which a URL refers.

use crate::beanstalkd::Beanstalkd;
use crate::broker::{BrokerAccess, Login, is_broker, is_encrypted, open_broker};
use crate::sqs::Sqs;
use connect::tls_config;
use events::{Authorization, Source, SourceError, WebhookSource};
use http::Uri;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Clock, Entropy};
use store_s3::CredentialsSource;

/// Settings of a source besides its URL.
#[derive(Clone)]
pub struct SourceAccess {
    /// For a webhook: the token that senders must present, sent as `Bearer TOKEN`, or the whole value of `Authorization`. For a broker:
    /// `USER:PASSWORD`, or a password alone.
    pub secret: Option<String>,
    /// The credentials for services of AWS.
    pub credentials: CredentialsSource,
    /// The region of an AWS service whose address does not contain it.
    pub region: Option<String>,
    /// A PEM file of certificate authorities to trust besides the system's.
    pub ca_bundle: Option<PathBuf>,
    /// A directory for the positions of sources that do not store them on the broker: Kafka.
    pub positions: Option<PathBuf>,
    /// The clock for the times in signatures of requests.
    pub clock: Arc<dyn Clock>,
    /// The source of random numbers for the lengths of pauses.
    pub entropy: Arc<Entropy>,
}

impl fmt::Debug for SourceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceAccess").field("region", &self.region).finish_non_exhaustive()
    }
}

/// Opens the source to which a URL refers: `webhook://ADDRESS:PORT/PATH`, `beanstalkd://HOST[:PORT]/TUBE`,
/// `sqs+https://HOST/ACCOUNT/QUEUE`, or a broker's URL ([`open_broker`]). Only a webhook acts at once: it starts to listen.
///
/// # Errors
/// [`SourceError::Refused`], which states what is wrong.
pub async fn open(url: &str, access: SourceAccess) -> Result<Box<dyn Source>, SourceError> {
    let refuse = |what: &str| Err(SourceError::Refused(format!("the source '{}': {what}", redacted(url))));
    let Ok(parsed) = url.parse::<Uri>() else { return refuse("it is not a URL") };
    let (Some(scheme), Some(authority)) = (parsed.scheme_str(), parsed.authority()) else {
        return refuse("write it as SCHEME://HOST/NAME");
    };
    if authority.as_str().contains('@') {
        return refuse(
            "a URL must not contain a user or a password, because it is visible to others; give them separately",
        );
    }
    match scheme {
        "webhook" => {
            let secret = access.secret.as_deref().map(Authorization::of).transpose();
            let secret = secret.map_err(|error| SourceError::Refused(error.to_string()))?;
            let Ok(address) = authority.as_str().parse() else {
                return refuse("write it as webhook://ADDRESS:PORT/PATH, with a numeric address");
            };
            Ok(Box::new(WebhookSource::listen(address, parsed.path(), secret).await?))
        }
        "beanstalkd" | "beanstalk" => {
            let tube = parsed.path().trim_start_matches('/');
            if tube.is_empty() || tube.len() > 200 || !tube.bytes().all(|byte| byte.is_ascii_graphic()) {
                return refuse("write it as beanstalkd://HOST:11300/TUBE");
            }
            Ok(Box::new(Beanstalkd::new(authority.host(), authority.port_u16(), tube)))
        }
        "sqs+http" | "sqs+https" => Ok(Box::new(Sqs::new(url.trim_start_matches("sqs+"), access)?)),
        _ if is_broker(scheme) => open_broker(url, &access.for_broker(scheme)?),
        _ => refuse("its scheme is unknown; use webhook, beanstalkd, sqs+https, nats, redis, kafka or amqp"),
    }
}

impl SourceAccess {
    /// Returns settings for a source that needs none.
    pub fn unsigned(clock: Arc<dyn Clock>, entropy: Arc<Entropy>) -> Self {
        Self {
            secret: None,
            credentials: CredentialsSource::Anonymous,
            region: None,
            ca_bundle: None,
            positions: None,
            clock,
            entropy,
        }
    }

    fn for_broker(&self, scheme: &str) -> Result<BrokerAccess, SourceError> {
        let tls = is_encrypted(scheme).then(|| tls_config(self.ca_bundle.as_deref())).transpose();
        let tls = tls.map_err(|error| SourceError::Refused(error.to_string()))?;
        Ok(BrokerAccess {
            login: self.secret.as_deref().map(Login::of),
            tls: tls.map(Arc::new),
            positions: self.positions.clone(),
        })
    }
}

/// Returns the URL without user and password, so that it can be shown.
fn redacted(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}
