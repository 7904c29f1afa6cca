//! A relay from MinIO's webhook to handlers that delays, repeats and reorders posts.
//!
//! The relay keeps each post per receiver until that receiver has accepted it.

use crate::events::read_post;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use store::Entropy;

/// The longest time that a receiver may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A receiver of all events.
#[derive(Debug, Clone)]
pub(super) enum PostTarget {
    /// A handler's webhook: its port and secret.
    Webhook(u16, &'static str),
    /// A Redis stream: address, user and password.
    Stream(SocketAddr, &'static str, &'static str),
    /// A tube of a beanstalkd, filled with events in OpenIO's format.
    Tube(SocketAddr, String),
}

#[derive(Debug)]
pub(super) struct PostRelay {
    pub(super) address: SocketAddr,
    receivers: Vec<PostTarget>,
    /// By receiver, the posts that it has not accepted yet.
    held: Arc<Mutex<Vec<Vec<String>>>>,
}

impl PostRelay {
    pub(super) fn to(receivers: Vec<PostTarget>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let held = Arc::new(Mutex::new(vec![Vec::new(); receivers.len()]));
        let posts = Self { address: listener.local_addr().unwrap(), receivers, held: Arc::clone(&held) };
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let held = Arc::clone(&held);
                thread::spawn(move || take(stream, &held));
            }
        });
        posts
    }

    /// Returns how many posts each receiver has not accepted yet.
    pub(super) fn held(&self) -> Vec<usize> {
        self.held.lock().unwrap().iter().map(Vec::len).collect()
    }

    /// Delivers up to `most` posts to each receiver, in random order. Some of them are kept and delivered again
    /// later.
    pub(super) fn deliver(&self, most: u64, entropy: &Entropy) {
        for (at, receiver) in self.receivers.iter().enumerate() {
            for _ in 0..most {
                let (count, random) = (self.held.lock().unwrap()[at].len() as u64, entropy.below(4));
                if count == 0 {
                    break;
                }
                let chosen = entropy.below(count) as usize;
                let post = self.held.lock().unwrap()[at][chosen].clone();
                if send(receiver, &post).is_none() {
                    break;
                }
                if random > 0 {
                    self.held.lock().unwrap()[at].remove(chosen);
                }
            }
        }
    }
}

/// Accepts MinIO's posts and queues each for every receiver.
fn take(stream: TcpStream, held: &Mutex<Vec<Vec<String>>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let (_, body) = read_post(&mut reader)?;
        if !body.is_empty() {
            let body = String::from_utf8(body).unwrap();
            held.lock().unwrap().iter_mut().for_each(|posts| posts.push(body.clone()));
        }
        write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()?;
    }
}

/// Sends a post. Returns `None` if the receiver did not accept it.
fn send(to: &PostTarget, post: &str) -> Option<()> {
    match to {
        PostTarget::Webhook(port, secret) => {
            let head = format!(
                "POST /events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {secret}\r\ncontent-length: {}\r\n\r\n",
                post.len()
            );
            let mut receiver = connect(([127, 0, 0, 1], *port).into())?;
            receiver.get_mut().write_all(format!("{head}{post}").as_bytes()).ok()?;
            read_line(&mut receiver)?.starts_with("HTTP/1.1 200").then_some(())
        }
        PostTarget::Stream(address, user, password) => {
            let mut redis = connect(*address)?;
            let commands = resp(&["AUTH", user, password]) + &resp(&["XADD", "events", "*", "message", post]);
            redis.get_mut().write_all(commands.as_bytes()).ok()?;
            // The reply to XADD begins with the length of the entry's id.
            (read_line(&mut redis)? == "+OK" && read_line(&mut redis)?.starts_with('$')).then_some(())
        }
        PostTarget::Tube(address, tube) => {
            let mut queue = connect(*address)?;
            queue.get_mut().write_all(format!("use {tube}\r\n").as_bytes()).ok()?;
            read_line(&mut queue)?;
            for event in as_openio(&serde_json::from_str(post).unwrap()) {
                let event = event.to_string();
                let put = format!("put 0 0 5 {}\r\n{event}\r\n", event.len());
                queue.get_mut().write_all(put.as_bytes()).ok()?;
                read_line(&mut queue)?.strip_prefix("INSERTED")?;
            }
            Some(())
        }
    }
}

fn connect(address: SocketAddr) -> Option<BufReader<TcpStream>> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Some(BufReader::new(stream))
}

fn read_line(from: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    from.take(4096).read_line(&mut line).ok().filter(|read| *read > 0)?;
    Some(line.trim_end().to_owned())
}

/// Encodes a command in the Redis protocol (RESP).
fn resp(words: &[&str]) -> String {
    let all: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{all}", words.len())
}

/// Converts MinIO's records to the events that a node of OpenIO would send. Times have microseconds, as in OpenIO;
/// changes of properties carry no time.
fn as_openio(post: &Value) -> Vec<Value> {
    let record = |record: &Value| {
        let object = &record["s3"]["object"];
        let key = decoded(object["key"].as_str().unwrap());
        let nanoseconds = u64::from_str_radix(object["sequencer"].as_str().unwrap(), 16).unwrap();
        let url = json!({"ns": "OPENIO", "user": record["s3"]["bucket"]["name"], "path": key});
        let name = record["eventName"].as_str().unwrap();
        if name.contains("Removed") {
            return json!({"event": "storage.content.deleted", "when": nanoseconds / 1000, "url": url, "data": []});
        }
        if name.contains("Tagging") {
            return json!({"event": "storage.content.update", "url": url, "data": []});
        }
        let header = json!({"type": "contents_headers", "hash": object["eTag"], "size": object["size"],
            "mime-type": object["contentType"]});
        let properties =
            object["userMetadata"].as_object().into_iter().flatten().filter_map(|(name, value)| {
                let name = name.to_lowercase();
                let name = name.strip_prefix("x-amz-meta-")?;
                Some(json!({"type": "properties", "key": name, "value": value}))
            });
        let data: Vec<Value> = [header].into_iter().chain(properties).collect();
        json!({"event": "storage.content.new", "when": nanoseconds / 1000, "url": url, "data": data})
    };
    post["Records"].as_array().unwrap().iter().map(record).collect()
}

/// Decodes a key of MinIO's notifications. Keys of these tests contain no other character that MinIO encodes.
fn decoded(key: &str) -> String {
    key.replace("%2F", "/")
}
