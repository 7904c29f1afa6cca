//! Reading partitions in the background, each as fast as what it brings is taken.

use crate::source::broker::connection::PATIENCE;
use rskafka::client::Client;
use rskafka::client::error::Error;
use rskafka::client::partition::PartitionClient;
use rskafka::record::RecordAndOffset;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A partition, and records of it in their order.
pub(super) type Fetched = (i32, Vec<RecordAndOffset>);

/// How many bytes one answer has at most, unless one record is larger.
const FETCH_BYTES_MAX: i32 = 1 << 20;

/// How long a broker keeps a question open while there is nothing.
const WAIT_MS: i32 = 2_000;

/// After an answer without records, which also comes at once where there are none but those of the broker itself.
const PAUSE: Duration = Duration::from_millis(20);

/// How often somebody looks whether there are more partitions.
const LOOK: Duration = Duration::from_secs(60);

/// Reads a partition from `offset` on, until it fails.
pub(super) async fn follow(
    reader: Arc<PartitionClient>,
    mut offset: i64,
    sender: mpsc::Sender<Result<Fetched, Error>>,
) {
    loop {
        let asked = timeout(PATIENCE, reader.fetch_records(offset, 1..FETCH_BYTES_MAX, WAIT_MS)).await;
        let fetched = match asked {
            Ok(Ok((records, _))) if records.is_empty() => {
                sleep(PAUSE).await;
                continue;
            }
            Ok(fetched) => fetched.map(|(records, _)| records),
            Err(_) => Err(Error::Timeout),
        };
        let is_over = fetched.is_err();
        if let Ok(records) = &fetched {
            offset = records.last().map_or(offset, |last| last.offset + 1);
        }
        let sent = sender.send(fetched.map(|records| (reader.partition(), records))).await;
        if is_over || sent.is_err() {
            return;
        }
    }
}

/// Says so when a topic has other partitions than these.
pub(super) async fn watch(
    client: Client,
    topic: String,
    known: BTreeSet<i32>,
    sender: mpsc::Sender<Result<Fetched, Error>>,
) {
    loop {
        sleep(LOOK).await;
        let Ok(Ok(topics)) = timeout(PATIENCE, client.list_topics()).await else { continue };
        let now = topics.into_iter().find(|one| one.name == topic).map(|one| one.partitions);
        if now.is_none_or(|now| now != known) {
            let other = Error::InvalidResponse("the topic has other partitions now".to_owned());
            let _ = sender.send(Err(other)).await;
            return;
        }
    }
}
