//! Amazon SQS and compatible services (SQS API reference, JSON protocol).

use crate::SourceAccess;
use bytes::Bytes;
use events::{Message, Source, SourceError};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store_s3::{AwsService, AwsServiceError};
use tokio::task::JoinHandle;

/// Maximum number of messages in a request, a limit of SQS.
const REQUEST_MAX: usize = 10;
/// Maximum number of requests in flight.
const REQUESTS_MAX: usize = 16;
/// Time for which SQS holds a request until a first message arrives, in seconds: the maximum that SQS allows.
const LONG_POLL_SECS: u32 = 20;
/// Timeout of a response, beyond the maximum time for which SQS holds a request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A queue. A message that was received and not deleted is delivered again after its visibility timeout.
///
/// A receive request runs in a task of its own, because SQS hides the messages of a response even if nobody reads it. If the caller
/// drops `receive`, its next call gets the result of the same request.
#[derive(Debug)]
pub(super) struct Sqs {
    queue: Arc<Queue>,
    receiving: Option<JoinHandle<Result<Vec<ReceivedMessage>, SourceError>>>,
    /// Receipt handles of messages that were delivered and not deleted yet.
    receipts: Vec<String>,
}

#[derive(Debug)]
struct Queue {
    service: AwsService,
    url: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveRequest<'a> {
    queue_url: &'a str,
    max_number_of_messages: usize,
    wait_time_seconds: u32,
}

#[derive(Deserialize)]
struct ReceiveResponse {
    #[serde(rename = "Messages", default)]
    messages: Vec<ReceivedMessage>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceivedMessage {
    body: String,
    receipt_handle: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteRequest<'a> {
    queue_url: &'a str,
    entries: Vec<DeleteEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteEntry {
    id: String,
    receipt_handle: String,
}

#[derive(Deserialize)]
struct DeleteResponse {
    #[serde(rename = "Failed", default)]
    failed: Vec<serde::de::IgnoredAny>,
}

/// The queue attribute with the approximate number of messages.
const WAITING_ATTRIBUTE: &str = "ApproximateNumberOfMessages";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct AttributesRequest<'a> {
    queue_url: &'a str,
    attribute_names: [&'a str; 1],
}

#[derive(Deserialize)]
struct AttributesResponse {
    #[serde(rename = "Attributes", default)]
    attributes: BTreeMap<String, String>,
}

impl Sqs {
    /// Opens the queue with this URL. Nothing is sent yet.
    pub(super) fn new(url: &str, access: SourceAccess) -> Result<Self, SourceError> {
        let region = access.region.clone().or_else(|| region_of_url(url)).ok_or_else(|| {
            SourceError::Refused(format!(
                "the queue {url}: its address does not contain the region; give one"
            ))
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
    /// Waits for messages, and requests more at once if there may be more.
    async fn receive(&self, max: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let mut messages = Vec::new();
        while messages.is_empty() {
            messages = self.receive_some(max, LONG_POLL_SECS).await?;
        }
        // A full response means that there may be more messages, so several further requests are sent at once.
        if messages.len() == REQUEST_MAX {
            let left = max.saturating_sub(messages.len());
            let more = (0..left).step_by(REQUEST_MAX).take(REQUESTS_MAX);
            for more in join_all(more.map(|asked| self.receive_some(left - asked, 0))).await {
                match more {
                    Ok(more) => messages.extend(more),
                    Err(error) => {
                        tracing::debug!(%error, "a request for further messages failed; the messages that were received are used")
                    }
                }
            }
        }
        Ok(messages)
    }

    async fn receive_some(
        &self,
        max: usize,
        wait_time_seconds: u32,
    ) -> Result<Vec<ReceivedMessage>, SourceError> {
        let request = ReceiveRequest {
            queue_url: &self.url,
            max_number_of_messages: max.clamp(1, REQUEST_MAX),
            wait_time_seconds,
        };
        let received: ReceiveResponse = self.call("AmazonSQS.ReceiveMessage", &request).await?;
        Ok(received.messages)
    }

    async fn delete(&self, receipts: &[String]) -> Result<(), SourceError> {
        let entry = |(number, receipt): (usize, &'_ String)| DeleteEntry {
            id: number.to_string(),
            receipt_handle: receipt.clone(),
        };
        let entries = receipts.iter().enumerate().map(entry).collect();
        let request = DeleteRequest { queue_url: &self.url, entries };
        let deleted: DeleteResponse = self.call("AmazonSQS.DeleteMessageBatch", &request).await?;
        if !deleted.failed.is_empty() {
            tracing::debug!(
                queue = self.url,
                count = deleted.failed.len(),
                "some messages could not be deleted and are delivered again"
            );
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
        let limit = RESPONSE_TIMEOUT + Duration::from_secs(u64::from(LONG_POLL_SECS));
        let headers = [("content-type", "application/x-amz-json-1.0"), ("x-amz-target", target)];
        let answer = self.service.post(&headers, Bytes::from(body), limit).await;
        let answer = answer.map_err(|error| match error {
            AwsServiceError::Refused(reason) => {
                SourceError::Refused(format!("the queue {}: {reason}", self.url))
            }
            other => unavailable(other.to_string()),
        })?;
        serde_json::from_slice(&answer)
            .map_err(|error| unavailable(format!("the response cannot be parsed: {error}")))
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
        let messages = received.map_err(|error| SourceError::Unavailable(error.to_string()))??;
        let to_message = |message: ReceivedMessage| {
            self.receipts.push(message.receipt_handle);
            Message::from(Bytes::from(message.body))
        };
        Ok(messages.into_iter().map(to_message).collect())
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
        let request = AttributesRequest { queue_url: &self.queue.url, attribute_names: [WAITING_ATTRIBUTE] };
        let response: AttributesResponse = self.queue.call("AmazonSQS.GetQueueAttributes", &request).await?;
        Ok(response.attributes.get(WAITING_ATTRIBUTE).and_then(|count| count.parse().ok()))
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        if let Some(receiving) = &self.receiving {
            receiving.abort();
        }
    }
}

/// Returns the region in an AWS address: `sqs.REGION.amazonaws.com`, or the older `REGION.queue.amazonaws.com`. `None`
/// for any other address.
fn region_of_url(url: &str) -> Option<String> {
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
        let of = |url: &str| region_of_url(url);
        assert_eq!(of("https://sqs.eu-west-1.amazonaws.com/1/q").as_deref(), Some("eu-west-1"));
        assert_eq!(of("https://sqs.cn-north-1.amazonaws.com.cn/1/q").as_deref(), Some("cn-north-1"));
        assert_eq!(of("https://us-west-2.queue.amazonaws.com/1/q").as_deref(), Some("us-west-2"));
        assert_eq!(of("http://127.0.0.1:9324/1/q"), None);
    }
}
