//! Measures the S3 client's CPU time per object of a listing, from the socket to the page, with pages like S3's.
//!
//! ```text
//! cargo run --release -p store --example list_cost
//! ```

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use store::{Buckets, Entropy, ListRequest, ObjectStore, SystemClock};
use store_s3::{Credentials, S3Buckets, S3Config};

const OBJECTS: usize = 1000;
const PAGES: usize = 500;
const ROUNDS: usize = 7;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs the client and the server on one thread each, so that the CPU time of the first thread is the client's.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let config = S3Config {
        endpoint: Some(format!("http://{}", listener.local_addr()?)),
        credentials: Credentials::new("access", "secret", None)?.into(),
        ..S3Config::default()
    };
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(|| serve(connection));
        }
    });
    let buckets = S3Buckets::new(config, Arc::new(SystemClock), Arc::new(Entropy::new(7)))?;
    let bucket = buckets.open("bucket").await?;
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let before = cpu_of_thread()?;
        list(&*bucket).await?;
        best = best.min(cpu_of_thread()? - before);
    }
    println!("{} ns of CPU an object", best.as_nanos() / (OBJECTS * PAGES) as u128);
    Ok(())
}

async fn list(bucket: &dyn ObjectStore) -> Outcome {
    for _ in 0..PAGES {
        let page = bucket.list(ListRequest { limit: OBJECTS, ..ListRequest::default() }).await?;
        assert_eq!(page.entries.len(), OBJECTS);
    }
    Ok(())
}

/// Serves a connection: responds to every request with the page, or with its head for HEAD.
fn serve(connection: TcpStream) -> std::io::Result<()> {
    let page = page();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
    let whole = [head.as_str(), &page].concat();
    let (mut line, mut answer) = (String::new(), whole.as_str());
    let mut requests = BufReader::new(&connection);
    while requests.read_line(&mut line)? > 0 {
        match line.as_str() {
            "\r\n" => (&connection).write_all(answer.as_bytes())?,
            text if text.starts_with("HEAD ") => answer = &head,
            text if text.starts_with("GET ") => answer = &whole,
            _ => {}
        }
        line.clear();
    }
    Ok(())
}

fn page() -> String {
    let mut page = String::from(concat!(
        r#"<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">"#,
        "<Name>bucket</Name><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>",
    ));
    for number in 0..OBJECTS as u64 {
        let tag = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let row = write!(
            page,
            "<Contents><Key>objects/{number:016x}</Key><LastModified>2026-01-02T03:04:05.678Z</LastModified>\
             <ETag>&quot;{tag:032x}&quot;</ETag><Size>{number}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        );
        row.unwrap_or_else(|_| unreachable!("a string takes all"));
    }
    page.push_str("</ListBucketResult>");
    page
}

/// Returns the CPU time of this thread.
fn cpu_of_thread() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(Duration::from_nanos(stat.split(' ').next().unwrap_or_default().parse()?))
}
