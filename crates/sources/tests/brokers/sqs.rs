//! SQS, which here is ElasticMQ: it keeps no order, and delivers a message again that was not deleted within the visibility timeout.

use super::Queue;
use crate::beanstalkd::access;
use bytes::Bytes;
use events::Source;
use futures_util::FutureExt as _;
use serde_json::json;
use servers::Broker;
use sources::SourceAccess;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store_s3::{AwsService, Credentials, CredentialsSource};

/// Maximum number of messages in a request, a limit of SQS.
const REQUEST_MAX: usize = 10;

const REGION: &str = "eu-test-1";

struct Sqs(Broker);

fn queue() -> Sqs {
    Sqs(servers::elasticmq())
}

impl Sqs {
    /// Returns the settings of a source, with a key. The server accepts any key.
    fn access() -> SourceAccess {
        let credentials = Credentials::new("AKIATEST", "not-a-secret", None).unwrap();
        SourceAccess {
            credentials: CredentialsSource::Fixed(Arc::new(credentials)),
            region: Some(REGION.to_owned()),
            ..access()
        }
    }

    fn queue_url(&self) -> String {
        format!("http://{}/000000000000/events", self.0.address())
    }
}

#[async_trait::async_trait]
impl Queue for Sqs {
    fn broker(&mut self) -> &mut Broker {
        &mut self.0
    }

    fn url(&self) -> String {
        format!("sqs+{}", self.queue_url())
    }

    fn open(&self) -> Box<dyn Source> {
        let (url, access) = (self.url(), Self::access());
        // Opening a queue sends nothing.
        sources::open(&url, access).now_or_never().unwrap().unwrap()
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn counts_after_receiving(&self) -> bool {
        false
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        let SourceAccess { credentials, clock, entropy, .. } = Self::access();
        let url = self.queue_url();
        let service = AwsService::new("sqs", &url, REGION, credentials, None, clock, entropy).unwrap();
        let numbers = Vec::from_iter(numbers);
        for some in numbers.chunks(REQUEST_MAX) {
            let entries = some
                .iter()
                .map(|number| json!({"Id": number.to_string(), "MessageBody": number.to_string()}));
            let request = json!({"QueueUrl": url, "Entries": Vec::from_iter(entries)});
            let headers = [
                ("content-type", "application/x-amz-json-1.0"),
                ("x-amz-target", "AmazonSQS.SendMessageBatch"),
            ];
            let body = Bytes::from(request.to_string());
            let answer = service.post(&headers, body, Duration::from_secs(30)).await.unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["Successful"].as_array().unwrap().len(), some.len(), "{answer}");
        }
    }
}

super::every_shared_queue!(super::sqs::queue());
