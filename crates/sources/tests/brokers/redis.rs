//! Redis.

use super::{PATIENCE, Queue, assert_refused, receive};
use redis::AsyncConnectionConfig;
use servers::Broker;
use std::ops::Range;
use std::time::Duration;

pub(super) struct Redis {
    broker: Broker,
    query: &'static str,
    command: &'static [&'static str],
}

pub(super) fn list() -> Redis {
    Redis { broker: servers::redis(), query: "list=events", command: &["RPUSH", "events"] }
}

fn stream() -> Redis {
    let command = &["XADD", "events", "*", "message"];
    Redis { broker: servers::redis(), query: "stream=events&group=views", command }
}

fn channel() -> Redis {
    Redis { broker: servers::redis(), query: "channel=events", command: &["PUBLISH", "events"] }
}

impl Redis {
    async fn do_all(&self, commands: &redis::Pipeline) {
        let client = redis::Client::open(self.broker.url()).unwrap();
        // The client's default timeout for a reply, 500 ms, is too short for syncs on a busy disk.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        commands.query_async::<redis::Value>(&mut connection).await.unwrap();
    }
}

#[async_trait::async_trait]
impl Queue for Redis {
    fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    fn url(&self) -> String {
        format!("{}/0?{}", self.broker.url(), self.query)
    }

    async fn publish(&mut self, numbers: Range<u32>) {
        let mut commands = redis::pipe();
        for number in numbers {
            commands.cmd(self.command[0]);
            for part in &self.command[1..] {
                commands.arg(part);
            }
            commands.arg(number.to_string());
        }
        self.do_all(&commands).await;
    }
}

mod lists {
    super::super::every_shared_queue!(super::list());
}

mod streams {
    super::super::every_shared_queue!(super::stream());
}

/// Messages published without a subscriber are lost, and a new subscriber is told that some may be.
#[tokio::test]
async fn a_channel_reports_possible_loss() {
    let mut queue = channel();
    let mut source = queue.open();
    assert!(receive(&mut *source, Duration::from_millis(500)).await.is_empty());
    assert!(source.take_lost() && !source.take_lost());
    queue.publish(0..100).await;
    assert_eq!(super::drain(&mut *source, 0..100).await, Vec::from_iter(0..100));
    assert!(!source.take_lost());
    queue.broker().restart();
    assert!(receive(&mut *source, Duration::from_secs(2)).await.is_empty());
    assert!(source.take_lost());
    queue.publish(100..110).await;
    super::drain(&mut *source, 100..110).await;
    assert!(!source.take_lost());
}

/// Further fields of a stream entry are attributes. An entry may be deleted between its delivery and its claiming.
#[tokio::test]
async fn entries_of_streams_have_attributes_and_may_be_deleted() {
    let queue = stream();
    let mut commands = redis::pipe();
    commands.cmd("XADD").arg(&["events", "1-1", "body", "one", "Kind", "x"]);
    commands.cmd("XADD").arg(&["events", "1-2", "body", "two"]);
    queue.do_all(&commands).await;
    let mut source = queue.open();
    let messages = receive(&mut *source, Duration::from_secs(9)).await;
    assert_eq!(messages[0].attributes, [("kind".to_owned(), "x".to_owned())]);
    drop(source);
    let mut commands = redis::pipe();
    commands.cmd("XDEL").arg(&["events", "1-1"]);
    queue.do_all(&commands).await;
    let mut source = queue.open();
    let messages = receive(&mut *source, PATIENCE).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].body, "two");
}

#[tokio::test]
async fn errors_state_the_remedy() {
    let mut queue = list();
    let url = queue.url();
    assert_refused(
        &url.replace(queue.broker().password(), "secret"),
        &queue.access(),
        "rejected the user or the password",
    )
    .await;
    assert_refused(
        &url.replace("tenon:no-secret-either@", ""),
        &queue.access(),
        "rejected the user or the password",
    )
    .await;
    queue.publish(0..1).await;
    let url = url.replace("list=events", "stream=events&group=x");
    assert_refused(&url, &queue.access(), "has another type").await;
}
