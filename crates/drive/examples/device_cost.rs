//! Measures the cost of reads and writes of a device, from a runtime with two workers like that of the S3 endpoint: CPU time per
//! operation and operations per second, for each way to wait.
//!
//! ```text
//! cargo run --release -p drive --example device_cost -- /dev/loop0 ["read 4 KiB"]
//! ```
//!
//! Everything on the device is lost. CPU time is that of this process, including kernel threads that work for its ring.

use bytes::Bytes;
use drive::device::{BlockDevice, Buffer, Buffers, FileDevice, Io, Ring};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::{Clock as _, Entropy, SystemClock};
use tokio::sync::oneshot;

const ROUNDS: usize = 3;
const POOL_THREADS: usize = 16;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A measurement: one size and kind of operation, several at once.
#[derive(Debug, Clone, Copy)]
struct Job {
    name: &'static str,
    bytes: usize,
    writes: bool,
    memory: Memory,
    at_once: u64,
    operations: u64,
    sequential: bool,
}

/// The memory that is read into or written from.
#[derive(Debug, Clone, Copy)]
enum Memory {
    /// One buffer for each task.
    Kept,
    /// A new buffer for each read, as in a GET.
    New,
    /// A pooled buffer for each operation.
    UsedAgain,
}

const JOBS: [Job; 9] = [
    Job { name: "read 4 KiB, 1 at once", at_once: 1, operations: 8_000, ..SMALL_READ },
    Job { name: "read 4 KiB, 32 at once", at_once: 32, operations: 64_000, ..SMALL_READ },
    Job { name: "write 4 KiB, 1 at once", at_once: 1, operations: 8_000, writes: true, ..SMALL_READ },
    Job { name: "write 4 KiB, 32 at once", at_once: 32, operations: 64_000, writes: true, ..SMALL_READ },
    BIG_READ,
    Job { name: "read 1 MiB, 8 at once, into new memory", memory: Memory::New, ..BIG_READ },
    Job { name: "read 1 MiB, 8 at once, into memory used again", memory: Memory::UsedAgain, ..BIG_READ },
    Job { name: "write 1 MiB, 8 at once", writes: true, ..BIG_READ },
    Job {
        name: "write 1 MiB, 8 at once, from memory used again",
        writes: true,
        memory: Memory::UsedAgain,
        ..BIG_READ
    },
];

const SMALL_READ: Job = Job {
    name: "",
    bytes: 4096,
    writes: false,
    memory: Memory::Kept,
    at_once: 1,
    operations: 0,
    sequential: false,
};

const BIG_READ: Job = Job {
    name: "read 1 MiB, 8 at once",
    bytes: 1 << 20,
    writes: false,
    memory: Memory::Kept,
    at_once: 8,
    operations: 2_000,
    sequential: true,
};

/// The ways to wait for a device.
#[derive(Clone)]
enum Way {
    /// On the worker, which runs nothing else meanwhile.
    InPlace,
    /// On Tokio's blocking threads, or by the ring: the ways that a drive uses.
    Awaited(Io),
    /// On threads of a pool of its own.
    Pool(SyncSender<Work>),
}

struct Work {
    call: Box<dyn FnOnce() -> io::Result<Buffer> + Send>,
    reply: oneshot::Sender<io::Result<Buffer>>,
}

fn main() -> Outcome {
    let path = std::env::args().nth(1).ok_or("name a device or a file; its contents will be lost")?;
    let device = Arc::new(FileDevice::open(Path::new(&path))?);
    fill(&device)?;
    let ways = [
        ("in place", Way::InPlace),
        ("spawn_blocking", Way::Awaited(Io::Blocking(device.clone()))),
        ("own threads", Way::Pool(pool())),
        ("ring", Way::Awaited(Io::Ring(Arc::new(Ring::start(device.clone())?)))),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let asked = std::env::args().nth(2).unwrap_or_default();
    for job in JOBS.into_iter().filter(|job| job.name.contains(&asked)) {
        println!("{}", job.name);
        for _ in 0..ROUNDS {
            for (name, way) in &ways {
                let (cpu, time) = runtime.block_on(measure(job, way, &device))?;
                let operations = job.operations as f64;
                let each_us = cpu.as_secs_f64() * 1e6 / operations;
                println!(
                    "  {name:<16} {each_us:7.1} us CPU, {:8.0} a second",
                    operations / time.as_secs_f64()
                );
            }
        }
    }
    Ok(())
}

/// Writes the whole device, because blocks that were never written are not read from the device either.
fn fill(device: &FileDevice) -> io::Result<()> {
    let mut bytes = Buffer::zeroed(1 << 20);
    bytes.fill(7);
    for at in (0..device.len_bytes()).step_by(bytes.len()) {
        let len = bytes.len().min((device.len_bytes() - at) as usize);
        device.write_at(at, &bytes[..len])?;
    }
    device.flush()
}

async fn measure(job: Job, way: &Way, device: &Arc<FileDevice>) -> Outcome<(Duration, Duration)> {
    let (cpu, begun) = (cpu_time()?, SystemClock.now());
    let each = job.operations / job.at_once;
    let buffers = Buffers::new(64 << 20);
    let tasks: Vec<_> = (0..job.at_once)
        .map(|task| tokio::spawn(run(job, way.clone(), device.clone(), buffers.clone(), task, each)))
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok((cpu_time()? - cpu, Duration::from_nanos((SystemClock.now().0 - begun.0) as u64)))
}

async fn run(
    job: Job,
    way: Way,
    device: Arc<FileDevice>,
    buffers: Buffers,
    task: u64,
    operations: u64,
) -> io::Result<()> {
    let entropy = Entropy::new(task);
    let places = device.len_bytes() / job.bytes as u64;
    let mut buffer = Buffer::zeroed(job.bytes);
    let bytes = Bytes::from(Buffer::zeroed(job.bytes));
    for n in 0..operations {
        let place = if job.sequential { (task + n * job.at_once) % places } else { entropy.below(places) };
        let at = place * job.bytes as u64;
        if job.writes {
            let bytes = match job.memory {
                Memory::Kept => bytes.clone(),
                Memory::New => Buffer::zeroed(job.bytes).into(),
                Memory::UsedAgain => buffers.take(job.bytes).into(),
            };
            write(&way, &device, at, bytes).await?;
            continue;
        }
        buffer = match job.memory {
            Memory::Kept => buffer,
            Memory::New => Buffer::zeroed(job.bytes),
            Memory::UsedAgain => buffers.take(job.bytes),
        };
        buffer = read(&way, &device, at, buffer).await?;
    }
    Ok(())
}

async fn read(way: &Way, device: &Arc<FileDevice>, at: u64, mut into: Buffer) -> io::Result<Buffer> {
    match way {
        Way::InPlace => device.read_at(at, &mut into).map(|()| into),
        Way::Awaited(io) => io.read(at, into).await,
        Way::Pool(pool) => {
            let device = device.clone();
            asked(pool, move || device.read_at(at, &mut into).map(|()| into)).await
        }
    }
}

async fn write(way: &Way, device: &Arc<FileDevice>, at: u64, from: Bytes) -> io::Result<()> {
    match way {
        Way::InPlace => device.write_at(at, &from),
        Way::Awaited(io) => io.write(at, &[from]).await,
        Way::Pool(pool) => {
            let device = device.clone();
            asked(pool, move || device.write_at(at, &from).map(|()| Buffer::zeroed(0))).await.map(drop)
        }
    }
}

async fn asked(
    pool: &SyncSender<Work>,
    call: impl FnOnce() -> io::Result<Buffer> + Send + 'static,
) -> io::Result<Buffer> {
    let (reply, answer) = oneshot::channel();
    pool.send(Work { call: Box::new(call), reply }).map_err(|_| io::Error::other("the pool has ended"))?;
    answer.await.map_err(io::Error::other)?
}

fn pool() -> SyncSender<Work> {
    let (pool, taken) = sync_channel(1024);
    let taken = Arc::new(Mutex::new(taken));
    for _ in 0..POOL_THREADS {
        let taken = taken.clone();
        std::thread::spawn(move || {
            while let Some(work) = next(&taken) {
                let _ = work.reply.send((work.call)());
            }
        });
    }
    pool
}

fn next(taken: &Mutex<Receiver<Work>>) -> Option<Work> {
    taken.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// User and system time of this process so far, from `/proc/self/stat` in ticks of 10 ms.
fn cpu_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit_once(") ").ok_or("no such process")?.1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
