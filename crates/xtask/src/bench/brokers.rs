//! `cargo xtask brokers`: how many events a second come through brokers, beside what the broker itself can give.
//!
//! Each broker is filled with events of MinIO's size; then they are received and acknowledged by `events`' source, in batches, and, of as
//! many again, read by the shortest way there is: for Redis by `redis-benchmark`, for NATS by its client with a consumer that
//! wants no acknowledgements, for
//! beanstalkd, where the reader waits for each deletion, by reservations and deletions sent ahead.

use anyhow::{Context, Result, bail};
use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use events::{BrokerAccess, Source, SourceAccess};
use futures_util::StreamExt;
use servers::Broker;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Entropy, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::again_in_release;
use super::resource_usage::load_average;

/// What a feed asks for at a time.
const BATCH: usize = 512;

const MESSAGES: usize = 200_000;

/// About as long as what MinIO sends of a PUT.
const EVENT_BYTES: usize = 950;

/// As OpenIO starts it.
const OPENIO_SYNC_MS: u32 = 1000;

/// Runs it; `--messages N` for other than 200,000.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let messages = match arguments {
        [] => MESSAGES,
        [flag, count] if flag == "--messages" => count.parse().context("--messages wants a number")?,
        _ => bail!("usage: cargo xtask brokers [--messages N]"),
    };
    if cfg!(debug_assertions) {
        return again_in_release(root, "brokers", arguments);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let load = load_average()?;
    println!("{messages} events of {EVENT_BYTES} bytes, {BATCH} at a time, messages a second; load {load}\n");
    println!("| broker | received and acknowledged | the broker's own |\n|---|---|---|");
    runtime.block_on(async {
        let (ours, own) = beanstalkd(messages).await?;
        println!("| beanstalkd | {ours:.0} | {own:.0} |");
        let (ours, own) = redis_stream(messages).await?;
        println!("| Redis stream | {ours:.0} | {own:.0} |");
        let ours = redis_list(messages).await?;
        println!("| Redis list | {ours:.0} | |");
        let (ours, own) = nats(messages).await?;
        println!("| NATS JetStream | {ours:.0} | {own:.0} |");
        Ok(())
    })
}

/// Receives and acknowledges them all.
async fn receive_all(url: &str, messages: usize) -> Result<f64> {
    receive_from(events::open_broker(url, &BrokerAccess::default())?, messages).await
}

async fn receive_from(mut source: Box<dyn Source>, messages: usize) -> Result<f64> {
    let begun = now();
    let mut received = 0;
    while received < messages {
        received += source.receive(BATCH).await?.len();
        source.acknowledge().await?;
    }
    Ok(rate(messages, begun))
}

async fn beanstalkd(messages: usize) -> Result<(f64, f64)> {
    let broker = servers::beanstalkd_synced_every(OPENIO_SYNC_MS);
    let access = SourceAccess::unsigned(Arc::new(SystemClock), Arc::new(Entropy::new(1)));
    let mut connection = TcpStream::connect(broker.address()).await?;
    let put = [format!("put 0 0 3600 {EVENT_BYTES}\r\n").as_bytes(), &event(), b"\r\n"].concat();
    ask(&mut connection, 0..messages, 1, |_| put.clone()).await?;
    let source = events::open(&format!("{}/default", broker.url_without_user()), access).await?;
    let ours = receive_from(source, messages).await?;
    ask(&mut connection, 0..messages, 1, |_| put.clone()).await?;
    let begun = now();
    // Not all at once: beanstalkd looks through what a connection has reserved at each request.
    for from in (0..messages).step_by(BATCH) {
        let some = from..(from + BATCH).min(messages);
        ask(&mut connection, some.clone(), 2, |_| b"reserve-with-timeout 0\r\n".to_vec()).await?;
        // Jobs are numbered from 1, and those of before are gone.
        let delete = |job| format!("delete {}\r\n", messages + job + 1).into_bytes();
        ask(&mut connection, some, 1, delete).await?;
    }
    Ok((ours, rate(messages, begun)))
}

/// Sends commands of beanstalkd by number, a batch ahead of the answers, which have so many lines each.
async fn ask(
    connection: &mut TcpStream,
    numbers: Range<usize>,
    lines: usize,
    command: impl Fn(usize) -> Vec<u8>,
) -> Result<()> {
    let mut answer = vec![0; 1 << 20];
    for from in numbers.clone().step_by(BATCH) {
        let some = from..(from + BATCH).min(numbers.end);
        let mut missing = some.len() * lines;
        connection.write_all(&some.flat_map(&command).collect::<Vec<u8>>()).await?;
        while missing > 0 {
            let bytes = connection.read(&mut answer).await?;
            if bytes == 0 {
                bail!("beanstalkd ended the connection");
            }
            missing -= answer[..bytes].iter().filter(|byte| **byte == b'\n').count();
        }
    }
    Ok(())
}

async fn redis_stream(messages: usize) -> Result<(f64, f64)> {
    let broker = servers::redis();
    fill_redis(&broker, messages, &["XADD", "events", "*", "event"]).await?;
    let ours = receive_all(&format!("{}/0?stream=events&group=ours", broker.url()), messages).await?;
    let client = redis::Client::open(broker.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut group = redis::cmd("XGROUP");
    group.arg(&["CREATE", "events", "own", "0"]);
    group.query_async::<redis::Value>(&mut connection).await?;
    let questions = messages.div_ceil(BATCH).to_string();
    let count = BATCH.to_string();
    let port = broker.address().port().to_string();
    let begun = now();
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
            &questions,
        ])
        .args(["XREADGROUP", "GROUP", "own", "one", "COUNT", &count, "STREAMS", "events", ">"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()?;
    if !status.success() {
        bail!("redis-benchmark failed");
    }
    Ok((ours, rate(messages, begun)))
}

async fn redis_list(messages: usize) -> Result<f64> {
    let broker = servers::redis();
    fill_redis(&broker, messages, &["RPUSH", "events"]).await?;
    receive_all(&format!("{}/0?list=events", broker.url()), messages).await
}

async fn fill_redis(broker: &Broker, messages: usize, command: &[&str]) -> Result<()> {
    let client = redis::Client::open(broker.url())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    connection.set_response_timeout(Duration::from_secs(60));
    let mut left = messages;
    while left > 0 {
        let some = left.min(1000);
        let mut commands = redis::pipe();
        for _ in 0..some {
            commands.cmd(command[0]).arg(&command[1..]).arg(event()).ignore();
        }
        commands.query_async::<()>(&mut connection).await?;
        left -= some;
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
        let some = left.min(1000);
        let mut stored = Vec::with_capacity(some);
        for _ in 0..some {
            stored.push(context.publish("events", event().into()).await?);
        }
        for one in stored {
            one.await?;
        }
        left -= some;
    }
    let ours = receive_all(&format!("{}/EVENTS?consumer=ours", broker.url()), messages).await?;
    let config = pull::Config { ack_policy: AckPolicy::None, ..Default::default() };
    let consumer = stream.create_consumer(config).await?;
    let begun = now();
    let mut own = consumer.stream().max_messages_per_batch(2 * BATCH).messages().await?;
    for _ in 0..messages {
        own.next().await.context("the consumer ended")??;
    }
    Ok((ours, rate(messages, begun)))
}

fn event() -> Vec<u8> {
    vec![b'x'; EVENT_BYTES]
}

fn rate(messages: usize, begun: Instant) -> f64 {
    messages as f64 / begun.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
