//! Background tasks: one fetches each partition, at the pace at which its records are received; one watches for new partitions.

use crate::broker::connection::TIMEOUT;
use rskafka::client::Client;
use rskafka::client::error::Error;
use rskafka::client::partition::PartitionClient;
use rskafka::record::RecordAndOffset;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// A partition and some of its records, in order.
pub(super) type Fetched = (i32, Vec<RecordAndOffset>);

/// Maximum length of a response, unless a single record is larger.
const FETCH_BYTES_MAX: i32 = 1 << 20;

/// Time for which a broker holds a request if there are no records.
const FETCH_WAIT_MS: i32 = 2_000;

/// Pause after a response without records. Such a response arrives at once if a range holds only the broker's control records.
const EMPTY_PAUSE: Duration = Duration::from_millis(20);

/// Interval at which the list of partitions is checked.
const WATCH_INTERVAL: Duration = Duration::from_secs(60);

/// Fetches a partition from `offset` on until an error.
pub(super) async fn fetch_partition(
    reader: Arc<PartitionClient>,
    mut offset: i64,
    sender: mpsc::Sender<Result<Fetched, Error>>,
) {
    loop {
        let asked = timeout(TIMEOUT, reader.fetch_records(offset, 1..FETCH_BYTES_MAX, FETCH_WAIT_MS)).await;
        let fetched = match asked {
            Ok(Ok((records, _))) if records.is_empty() => {
                sleep(EMPTY_PAUSE).await;
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

/// Returns the record just before an offset; `None` if it is not there any more, as in a compacted topic.
pub(super) async fn record_before(
    reader: &PartitionClient,
    offset: i64,
) -> Result<Option<RecordAndOffset>, Error> {
    let (records, _) = reader.fetch_records(offset - 1, 1..FETCH_BYTES_MAX, FETCH_WAIT_MS).await?;
    Ok(records.into_iter().find(|record| record.offset == offset - 1))
}

/// Sends an error when the topic's partitions differ from `known`.
pub(super) async fn watch_partitions(
    client: Client,
    topic: String,
    known: BTreeSet<i32>,
    sender: mpsc::Sender<Result<Fetched, Error>>,
) {
    loop {
        sleep(WATCH_INTERVAL).await;
        let Ok(Ok(topics)) = timeout(TIMEOUT, client.list_topics()).await else { continue };
        let now = topics.into_iter().find(|one| one.name == topic).map(|one| one.partitions);
        if now.is_none_or(|now| now != known) {
            let other = Error::InvalidResponse("the partitions of the topic have changed".to_owned());
            let _ = sender.send(Err(other)).await;
            return;
        }
    }
}
