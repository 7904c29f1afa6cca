//! A real beanstalkd.

use super::recording_feed::{RunningFeed, eventually, message};
use events::{Source, Wanted};
use sources::{SourceAccess, open};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{Entropy, SystemClock};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

pub(crate) fn access() -> SourceAccess {
    SourceAccess::unsigned(Arc::new(SystemClock), Arc::new(Entropy::new(1)))
}

async fn source(url: &str) -> Box<dyn Source> {
    open(&format!("{url}/oio"), access()).await.unwrap()
}

/// A client that speaks to the server as OpenIO's services do.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let mut client = Self(BufReader::new(TcpStream::connect(address).await.unwrap()));
        assert_eq!(client.send("use oio").await, "USING oio");
        client
    }

    async fn send(&mut self, command: &str) -> String {
        self.0.write_all(format!("{command}\r\n").as_bytes()).await.unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    async fn put(&mut self, job: &str) {
        let response = self.send(&format!("put 0 0 60 {}\r\n{job}", job.len())).await;
        assert!(response.starts_with("INSERTED "), "{response}");
    }

    async fn ready_and_reserved(&mut self) -> (String, String) {
        let head = self.send("stats-tube oio").await;
        assert!(head.starts_with("OK "), "{head}");
        let (mut ready, mut reserved) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            match line.trim_end().split_once(": ") {
                Some(("current-jobs-ready", count)) => ready = count.to_owned(),
                Some(("current-jobs-reserved", count)) => reserved = count.to_owned(),
                _ if line.trim().is_empty() => return (ready, reserved),
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s234_jobs_are_deleted_after_sinks_took_them() {
    let server = servers::beanstalkd();
    let mut client = Client::connect(server.address()).await;
    for number in 0..1000 {
        client.put(&message(&format!("key-{number}"), number)).await;
    }
    let mut source = source(&server.url_without_user()).await;
    let first = source.receive(300).await.unwrap();
    assert!((2..=300).contains(&first.len()), "{}", first.len());
    drop(source);
    let dir = tempfile::tempdir().unwrap();
    let source = self::source(&server.url_without_user()).await;
    let running = RunningFeed::start(source, &dir.path().join("dead"), Wanted::default());
    running.sink.wait_for(1000).await;
    let mut keys = running.sink.keys();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 1000, "messages received by the first source must come again, each once");
    client.put("nonsense").await;
    client.put(&message("late", 1)).await;
    running.sink.wait_for(1001).await;
    eventually("the unreadable message is a dead letter", || running.status.counts().unreadable == 1).await;
    for _ in 0..500 {
        if client.ready_and_reserved().await == ("0".to_owned(), "0".to_owned()) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("jobs are left: {:?}", client.ready_and_reserved().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s234_a_server_that_comes_back_is_found_again() {
    let mut server = servers::beanstalkd();
    let dir = tempfile::tempdir().unwrap();
    let source = source(&server.url_without_user()).await;
    let running = RunningFeed::start(source, &dir.path().join("dead"), Wanted::default());
    Client::connect(server.address()).await.put(&message("a", 1)).await;
    running.sink.wait_for(1).await;
    server.stop();
    eventually("the connection was lost", || !running.status.counts().is_connected).await;
    server.restart();
    Client::connect(server.address()).await.put(&message("b", 2)).await;
    eventually("the second event was recorded", || running.sink.keys().contains(&"b".to_owned())).await;
    assert!(running.status.counts().last_error.unwrap().contains("beanstalkd://127.0.0.1:"));
}

/// Dropping `receive` while it waits loses nothing.
#[tokio::test]
async fn a_dropped_receive_loses_nothing() {
    let server = servers::beanstalkd();
    let mut source = source(&server.url_without_user()).await;
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(100), source.receive(10)).await.is_err());
    }
    Client::connect(server.address()).await.put("job").await;
    let [got] = source.receive(10).await.unwrap().try_into().unwrap();
    assert_eq!(got.body, "job");
    source.acknowledge().await.unwrap();
}

#[tokio::test]
async fn invalid_source_urls_are_refused() {
    for (url, expected) in [
        ("no where", "not a URL"),
        ("/path", "SCHEME://"),
        ("gopher://host/", "scheme is unknown"),
        ("beanstalkd://host:11300", "TUBE"),
        ("beanstalkd://user:hush@host/oio", "separately"),
        ("webhook://localhost:80/", "numeric"),
        ("sqs+http://127.0.0.1:9324/0/queue", "region"),
    ] {
        let error = open(url, access()).await.unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("hush"), "{url}: {error}");
    }
}
