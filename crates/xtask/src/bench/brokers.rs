//! `cargo xtask brokers`: measures the events per second that Tenon receives from brokers, and the limit of each broker.
//!
//! Each broker is filled with events of MinIO's size, which a source of the crate `sources` receives and acknowledges in batches. Then the same
//! number of events is read in the fastest way: from Redis by `redis-benchmark`, from NATS by its client with a consumer without
//! acknowledgements, from beanstalkd by pipelined reservations and deletions (its clients usually wait for each deletion).

use anyhow::{Context, Result, bail};
use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use events::Source;
use futures_util::StreamExt;
use servers::Broker;
use sources::{BrokerAccess, SourceAccess};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Entropy, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::rerun_in_release;
use super::resource_usage::load_average;

/// Number of messages that a feed requests at a time.
const BATCH: usize = 512;

const MESSAGES: usize = 200_000;

/// Size of an event; about that of MinIO for a PUT.
const EVENT_BYTES: usize = 950;

/// Sync interval of OpenIO's beanstalkd.
const OPENIO_SYNC_MS: u32 = 1000;

/// Measures all brokers. `--messages N` sets the number of messages (default 200,000).
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let messages = match arguments {
        [] => MESSAGES,
        [flag, count] if flag == "--messages" => count.parse().context("--messages needs a number")?,
        _ => bail!("usage: cargo xtask brokers [--messages N]"),
    };
    if cfg!(debug_assertions) {
        return rerun_in_release(root, "brokers", arguments);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let load = load_average()?;
    println!(
        "messages per second; {messages} events of {EVENT_BYTES} bytes, {BATCH} at a time; load average {load}\n"
    );
    println!("| broker | received and acknowledged | limit of the broker |\n|---|---|---|");
    runtime.block_on(async {
        let (received, limit) = beanstalkd(messages).await?;
        println!("| beanstalkd | {received:.0} | {limit:.0} |");
        let (received, limit) = redis_stream(messages).await?;
        println!("| Redis stream | {received:.0} | {limit:.0} |");
        let received = redis_list(messages).await?;
        println!("| Redis list | {received:.0} | |");
        let (received, limit) = nats(messages).await?;
        println!("| NATS JetStream | {received:.0} | {limit:.0} |");
        Ok(())
    })
}

/// Receives and acknowledges all messages of a broker; returns the rate.
async fn receive_all(url: &str, messages: usize) -> Result<f64> {
    receive_from(sources::open_broker(url, &BrokerAccess::default())?, messages).await
}

async fn receive_from(mut source: Box<dyn Source>, messages: usize) -> Result<f64> {
    let start = now();
    let mut received = 0;
    while received < messages {
        received += source.receive(BATCH).await?.len();
        source.acknowledge().await?;
    }
    Ok(rate(messages, start))
}

async fn beanstalkd(messages: usize) -> Result<(f64, f64)> {
    let broker = servers::beanstalkd_synced_every(OPENIO_SYNC_MS);
    let access = SourceAccess::unsigned(Arc::new(SystemClock), Arc::new(Entropy::new(1)));
    let mut connection = TcpStream::connect(broker.address()).await?;
    let put = [format!("put 0 0 3600 {EVENT_BYTES}\r\n").as_bytes(), &event(), b"\r\n"].concat();
    send_commands(&mut connection, 0..messages, 1, |_| put.clone()).await?;
    let source = sources::open(&format!("{}/default", broker.url_without_user()), access).await?;
    let received = receive_from(source, messages).await?;
    send_commands(&mut connection, 0..messages, 1, |_| put.clone()).await?;
    let start = now();
    // In batches: beanstalkd searches all reservations of a connection at each request.
    for from in (0..messages).step_by(BATCH) {
        let batch = from..(from + BATCH).min(messages);
        send_commands(&mut connection, batch.clone(), 2, |_| b"reserve-with-timeout 0\r\n".to_vec()).await?;
        // Job ids begin with 1 and are not reused; the first `messages` jobs are already deleted.
        let delete = |job| format!("delete {}\r\n", messages + job + 1).into_bytes();
        send_commands(&mut connection, batch, 1, delete).await?;
    }
    Ok((received, rate(messages, start)))
}

/// Sends a command for each number to beanstalkd, in batches without waiting for single responses. Each response has `lines` lines.
async fn send_commands(
    connection: &mut TcpStream,
    numbers: Range<usize>,
    lines: usize,
    command: impl Fn(usize) -> Vec<u8>,
) -> Result<()> {
    let mut response = vec![0; 1 << 20];
    for from in numbers.clone().step_by(BATCH) {
        let batch = from..(from + BATCH).min(numbers.end);
        let mut missing = batch.len() * lines;
        connection.write_all(&batch.flat_map(&command).collect::<Vec<u8>>()).await?;
        while missing > 0 {
            let bytes = connection.read(&mut response).await?;
            if bytes == 0 {
                bail!("beanstalkd closed the connection");
            }
            missing -= response[..bytes].iter().filter(|byte| **byte == b'\n').count();
        }
    }
    Ok(())
}

async fn redis_stream(messages: usize) -> Result<(f64, f64)> {
    let broker = servers::redis_with("appendfsync everysec");
    fill_redis(&broker, messages, &["XADD", "events", "*", "event"]).await?;
    let received = receive_all(&format!("{}/0?stream=events&group=ours", broker.url()), messages).await?;
    let client = redis::Client::open(broker.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut group = redis::cmd("XGROUP");
    group.arg(&["CREATE", "events", "own", "0"]);
    group.query_async::<redis::Value>(&mut connection).await?;
    let requests = messages.div_ceil(BATCH).to_string();
    let count = BATCH.to_string();
    let port = broker.address().port().to_string();
    let start = now();
    let status = Command::new("redis-benchmark")
        .args([
            "-p",
            &port,
            "--user",
            broker.user(),
            "-a",
            broker.password(),
            "-q",
            "-c",
            "1",
            "-n",
            &requests,
        ])
        .args(["XREADGROUP", "GROUP", "own", "one", "COUNT", &count, "STREAMS", "events", ">"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        bail!("redis-benchmark failed");
    }
    Ok((received, rate(messages, start)))
}

async fn redis_list(messages: usize) -> Result<f64> {
    let broker = servers::redis_with("appendfsync everysec");
    fill_redis(&broker, messages, &["RPUSH", "events"]).await?;
    receive_all(&format!("{}/0?list=events", broker.url()), messages).await
}

async fn fill_redis(broker: &Broker, messages: usize, command: &[&str]) -> Result<()> {
    let client = redis::Client::open(broker.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    connection.set_response_timeout(Duration::from_secs(60));
    let mut left = messages;
    while left > 0 {
        let batch = left.min(1000);
        let mut commands = redis::pipe();
        for _ in 0..batch {
            commands.cmd(command[0]).arg(&command[1..]).arg(event()).ignore();
        }
        commands.query_async::<()>(&mut connection).await?;
        left -= batch;
    }
    Ok(())
}

async fn nats(messages: usize) -> Result<(f64, f64)> {
    let broker = servers::nats();
    let login = (broker.user().to_owned(), broker.password().to_owned());
    let options = async_nats::ConnectOptions::with_user_and_password(login.0, login.1);
    let context = jetstream::new(options.connect(broker.url_without_user()).await?);
    let (name, subjects) = ("EVENTS".to_owned(), vec!["events".to_owned()]);
    let config = jetstream::stream::Config { name, subjects, ..Default::default() };
    let stream = context.create_stream(config).await?;
    let mut left = messages;
    while left > 0 {
        let batch = left.min(1000);
        let mut acknowledgements = Vec::with_capacity(batch);
        for _ in 0..batch {
            acknowledgements.push(context.publish("events", event().into()).await?);
        }
        for acknowledgement in acknowledgements {
            acknowledgement.await?;
        }
        left -= batch;
    }
    let received = receive_all(&format!("{}/EVENTS?consumer=ours", broker.url()), messages).await?;
    let config = pull::Config { ack_policy: AckPolicy::None, ..Default::default() };
    let consumer = stream.create_consumer(config).await?;
    let start = now();
    let mut unacknowledged = consumer.stream().max_messages_per_batch(2 * BATCH).messages().await?;
    for _ in 0..messages {
        unacknowledged.next().await.context("the consumer ended")??;
    }
    Ok((received, rate(messages, start)))
}

fn event() -> Vec<u8> {
    vec![b'x'; EVENT_BYTES]
}

fn rate(messages: usize, start: Instant) -> f64 {
    messages as f64 / start.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
