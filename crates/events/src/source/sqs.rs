//! Amazon SQS, and what speaks as it does (SQS API reference, JSON protocol).

use super::{Message, Source, SourceAccess, SourceError};
use bytes::Bytes;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::s3::{AwsService, AwsServiceError};
use tokio::task::JoinHandle;

/// Messages of a request, which SQS limits.
const REQUEST_MAX: usize = 10;
/// Requests at the same time.
const REQUESTS_MAX: usize = 16;
/// How long SQS waits for a first message, in seconds: the most that it allows.
const WAIT_SECS: u32 = 20;
/// How long an answer may take beyond that.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A queue. A message that was received and not deleted comes again when its visibility timeout is over.
///
/// A request in flight belongs to a task, since SQS hides the messages of an answer that nobody reads: a caller that drops
/// `receive` finds them at its next call.
#[derive(Debug)]
pub(super) struct Sqs {
    queue: Arc<Queue>,
    receiving: Option<JoinHandle<Result<Vec<Got>, SourceError>>>,
    /// Messages handed out and not deleted yet.
    receipts: Vec<String>,
}

#[derive(Debug)]
struct Queue {
    service: AwsService,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Receive<'a> {
    queue_url: &'a str,
    max_number_of_messages: usize,
    wait_time_seconds: u32,
}

#[derive(Deserialize)]
struct Received {
    #[serde(rename = "Messages", default)]
    messages: Vec<Got>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Got {
    body: String,
    receipt_handle: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Delete<'a> {
    queue_url: &'a str,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    id: String,
    receipt_handle: String,
}

#[derive(Deserialize)]
struct Deleted {
    #[serde(rename = "Failed", default)]
    failed: Vec<serde::de::IgnoredAny>,
}

/// How many messages there are, about.
const WAITING: &str = "ApproximateNumberOfMessages";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Ask<'a> {
    queue_url: &'a str,
    attribute_names: [&'a str; 1],
}

#[derive(Deserialize)]
struct Said {
    #[serde(rename = "Attributes", default)]
    attributes: BTreeMap<String, String>,
}

impl Sqs {
    /// The queue of this URL.
    pub(super) fn new(url: &str, access: SourceAccess) -> Result<Self, SourceError> {
        let region = access.region.clone().or_else(|| region(url)).ok_or_else(|| {
            SourceError::Refused(format!("the queue {url}: its address does not say its region; give one"))
        })?;
        let service = AwsService::new(
            "sqs",
            url,
            &region,
            access.credentials,
            access.ca_bundle,
            access.clock,
            access.entropy,
        );
        let service = service.map_err(|error| SourceError::Refused(format!("the queue {url}: {error}")))?;
        let queue = Arc::new(Queue { service, url: url.to_owned() });
        Ok(Self { queue, receiving: None, receipts: Vec::new() })
    }
}

impl Queue {
    /// Waits for messages; asks for more at once where there may be more.
    async fn receive(&self, max: usize) -> Result<Vec<Got>, SourceError> {
        let mut got = Vec::new();
        while got.is_empty() {
            got = self.receive_some(max, WAIT_SECS).await?;
        }
        // A full answer says that there may be more: several requests ask for it at once.
        if got.len() == REQUEST_MAX {
            let left = max.saturating_sub(got.len());
            let more = (0..left).step_by(REQUEST_MAX).take(REQUESTS_MAX);
            for more in join_all(more.map(|asked| self.receive_some(left - asked, 0))).await {
                match more {
                    Ok(more) => got.extend(more),
                    Err(error) => tracing::debug!(%error, "less was received than there may be"),
                }
            }
        }
        Ok(got)
    }

    async fn receive_some(&self, max: usize, wait_time_seconds: u32) -> Result<Vec<Got>, SourceError> {
        let request = Receive {
            queue_url: &self.url,
            max_number_of_messages: max.clamp(1, REQUEST_MAX),
            wait_time_seconds,
        };
        let received: Received = self.call("AmazonSQS.ReceiveMessage", &request).await?;
        Ok(received.messages)
    }

    async fn delete(&self, receipts: &[String]) -> Result<(), SourceError> {
        let entry = |(number, receipt): (usize, &'_ String)| Entry {
            id: number.to_string(),
            receipt_handle: receipt.clone(),
        };
        let entries = receipts.iter().enumerate().map(entry).collect();
        let request = Delete { queue_url: &self.url, entries };
        let deleted: Deleted = self.call("AmazonSQS.DeleteMessageBatch", &request).await?;
        if !deleted.failed.is_empty() {
            tracing::debug!(queue = self.url, count = deleted.failed.len(), "messages come again");
        }
        Ok(())
    }

    async fn call<T: for<'de> Deserialize<'de>>(
        &self,
        target: &'static str,
        request: &impl Serialize,
    ) -> Result<T, SourceError> {
        let unavailable =
            |reason: String| SourceError::Unavailable(format!("the queue {}: {reason}", self.url));
        let body = serde_json::to_vec(request).map_err(|error| unavailable(error.to_string()))?;
        let limit = ANSWER_WITHIN + Duration::from_secs(u64::from(WAIT_SECS));
        let headers = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target)];
        let answer = self.service.post(&headers, Bytes::from(body), limit).await;
        let answer = answer.map_err(|error| match error {
            AwsServiceError::Refused(reason) => {
                SourceError::Refused(format!("the queue {}: {reason}", self.url))
            }
            other => unavailable(other.to_string()),
        })?;
        serde_json::from_slice(&answer)
            .map_err(|error| unavailable(format!("an answer of no sense: {error}")))
    }
}

#[async_trait::async_trait]
impl Source for Sqs {
    async fn receive(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let queue = self.queue.clone();
        let receiving =
            self.receiving.get_or_insert_with(|| tokio::spawn(async move { queue.receive(max).await }));
        let received = receiving.await;
        self.receiving = None;
        let got = received.map_err(|error| SourceError::Unavailable(error.to_string()))??;
        let message = |got: Got| {
            self.receipts.push(got.receipt_handle);
            Message::from(Bytes::from(got.body))
        };
        Ok(got.into_iter().map(message).collect())
    }

    async fn acknowledge(&mut self) -> Result<(), SourceError> {
        let receipts = std::mem::take(&mut self.receipts);
        let deleting: Vec<&[String]> = receipts.chunks(REQUEST_MAX).collect();
        for some in deleting.chunks(REQUESTS_MAX) {
            let deleted = join_all(some.iter().map(|some| self.queue.delete(some))).await;
            deleted.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    async fn waiting(&mut self) -> Result<Option<u64>, SourceError> {
        let request = Ask { queue_url: &self.queue.url, attribute_names: [WAITING] };
        let said: Said = self.queue.call("AmazonSQS.GetQueueAttributes", &request).await?;
        Ok(said.attributes.get(WAITING).and_then(|count| count.parse().ok()))
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        if let Some(receiving) = &self.receiving {
            receiving.abort();
        }
    }
}

/// The region that an address of AWS says: `sqs.REGION.amazonaws.com`, or the older `REGION.queue.amazonaws.com`.
fn region(url: &str) -> Option<String> {
    let host = url.split_once("://")?.1.split(['/', ':']).next()?;
    let (host, _) = host.split_once(".amazonaws.com")?;
    let region = host.strip_prefix("sqs.").or_else(|| host.strip_suffix(".queue"))?;
    Some(region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_aws_say_their_region() {
        let of = |url: &str| region(url);
        assert_eq!(of("https://sqs.eu-west-1.amazonaws.com/1/q").as_deref(), Some("eu-west-1"));
        assert_eq!(of("https://sqs.cn-north-1.amazonaws.com.cn/1/q").as_deref(), Some("cn-north-1"));
        assert_eq!(of("https://us-west-2.queue.amazonaws.com/1/q").as_deref(), Some("us-west-2"));
        assert_eq!(of("http://127.0.0.1:9324/1/q"), None);
    }
}
