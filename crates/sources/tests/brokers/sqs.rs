//! SQS, which here is ElasticMQ: it keeps no order, and delivers a message again that was not deleted within the visibility timeout.

use super::Queue;
use crate::sqs::{REGION, SECRET, signed};
use bytes::Bytes;
use events::Source;
use futures_util::FutureExt as _;
use serde_json::json;
use servers::Broker;
use sources::SourceAccess;
use std::ops::Range;
use std::time::Duration;
use store_s3::AwsService;

/// Maximum number of messages in a request, a limit of SQS.
const REQUEST_MAX: usize = 10;

struct Sqs(Broker);

fn queue() -> Sqs {
    Sqs(servers::elasticmq())
}

impl Sqs {
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
        let url = self.url();
        // Opening a queue sends nothing.
        sources::open(&url, signed(SECRET)).now_or_never().unwrap().unwrap()
    }

    fn keeps_order(&self) -> bool {
        false
    }

    fn counts_after_receiving(&self) -> bool {
        false
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        let SourceAccess { credentials, clock, entropy, .. } = signed(SECRET);
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
