//! Access to a bucket, as the secrets of a request give it.

use crate::message::Texts;
use std::fmt;
use tonic::Status;

/// Access to the server of a volume. What is `None` comes from the driver's own flags and environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// URL of the server.
    pub endpoint_url: Option<String>,
    /// Region of the bucket.
    pub region: Option<String>,
    /// The access key.
    pub key: Option<AccessKey>,
}

/// An access key. Its `Debug` form shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The public id.
    pub id: String,
    /// The secret.
    pub secret: String,
    /// The session token of temporary credentials.
    pub session_token: Option<String>,
}

impl Access {
    /// Reads the secrets of a request. Their names are those of the AWS tools' variables, so that one Kubernetes secret also serves as
    /// the environment of a program.
    pub(crate) fn from_secrets(secrets: &Texts) -> Result<Self, Status> {
        let mut access = Self::default();
        let (mut id, mut secret, mut session_token) = (None, None, None);
        for (name, value) in secrets {
            let field = match name.as_str() {
                "AWS_ACCESS_KEY_ID" => &mut id,
                "AWS_SECRET_ACCESS_KEY" => &mut secret,
                "AWS_SESSION_TOKEN" => &mut session_token,
                "AWS_ENDPOINT_URL" => &mut access.endpoint_url,
                "AWS_REGION" => &mut access.region,
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "the secret has an unknown entry '{}'; use AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_ENDPOINT_URL and AWS_REGION",
                        name.escape_debug()
                    )));
                }
            };
            *field = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        access.key = match (id, secret) {
            (Some(id), Some(secret)) if [&id, &secret].into_iter().any(|part| part.contains([':', '\n'])) => {
                return Err(Status::invalid_argument(
                    "the access key in the secret must not contain ':' or a line break",
                ));
            }
            (Some(id), Some(secret)) => Some(AccessKey { id, secret, session_token }),
            (None, None) => None,
            _ => {
                return Err(Status::invalid_argument(
                    "the secret needs both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                ));
            }
        };
        Ok(access)
    }
}

impl AccessKey {
    /// Returns the content of a file for `--access-key-file`.
    pub(crate) fn file_content(&self) -> String {
        match &self.session_token {
            Some(token) => format!("{}:{}:{token}\n", self.id, self.secret),
            None => format!("{}:{}\n", self.id, self.secret),
        }
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint_url, region, key } = self;
        f.debug_struct("Access")
            .field("endpoint_url", endpoint_url)
            .field("region", region)
            .field("key", key)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(entries: &[(&str, &str)]) -> Texts {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn secrets_are_read_and_never_shown() {
        let given = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hush\n"),
            ("AWS_SESSION_TOKEN", "quiet"),
            ("AWS_ENDPOINT_URL", "http://s3"),
        ];
        let access = Access::from_secrets(&secrets(&given)).unwrap();
        let shown = format!("{access:?}");
        assert!(
            shown.contains("http://s3") && !shown.contains("hush") && !shown.contains("quiet"),
            "{shown}"
        );
        assert_eq!(access.key.unwrap().file_content(), "id:hush:quiet\n");
        for bad in [&given[..1], &given[1..2], &[("password", "hush")]] {
            let refused = Access::from_secrets(&secrets(bad)).unwrap_err();
            assert!(!refused.message().contains("hush"), "{refused}");
        }
    }
}
