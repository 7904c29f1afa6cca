//! Cost of a file in the memory engine: resident memory before and after a million imports.

use meta::{Ctx, Engine, Ino, Kind, MemoryEngine, Name, Namespace, Observed, Op, Stored};
use std::sync::Arc;
use store::{ETag, Entropy, Timestamp};

const FILES: usize = 1_000_000;
const DIRS: usize = 1000;

pub fn report() {
    let ctx = Ctx { now: Timestamp(1_767_268_800_000_000_000), uid: 1000, gid: 1000 };
    let engine = Arc::new(MemoryEngine::default());
    let namespace = Namespace::new(engine.clone(), &ctx).expect("a namespace");
    let before = resident_bytes();
    let started = cpu_us();
    let entropy = Entropy::new(1);
    for dir in 0..DIRS {
        let ino = namespace.allocate(Ino::ROOT, 1)[0];
        let made = Op::Import {
            parent: Ino::ROOT,
            name: name(&format!("sample-{dir:06}")),
            ino,
            seen: seen(&ctx, &entropy, Kind::Directory),
        };
        namespace.commit(&ctx, &made).expect("a directory");
        let inos = namespace.allocate(ino, FILES / DIRS);
        let page: Vec<Op> = inos
            .into_iter()
            .enumerate()
            .map(|(at, file)| Op::Import {
                parent: ino,
                name: name(&format!("reads_{at:06}.fastq.gz")),
                ino: file,
                seen: seen(&ctx, &entropy, Kind::File),
            })
            .collect();
        assert!(namespace.commit_all(&ctx, &page).expect("a commit").iter().all(Result::is_ok));
    }
    let cpu = (cpu_us() - started) / FILES as f64;
    let resident = resident_bytes() - before;
    println!("{FILES} files with attributes in {DIRS} directories, imported in pages of {}:", FILES / DIRS);
    println!("resident memory per file: {} bytes", resident / FILES as u64);
    println!("what the engine says of itself: {} bytes per file", engine.memory_bytes() / FILES as u64);
    println!("CPU per import: {cpu:.2} us");
    let started = cpu_us();
    for _ in 0..1_000_000 {
        let dir = Ino(2 + entropy.below(16));
        namespace.lookup(dir, &name("reads_000500.fastq.gz")).expect("a lookup");
    }
    println!("CPU per lookup with attributes: {:.2} us", (cpu_us() - started) / 1e6);
}

fn seen(ctx: &Ctx, entropy: &Entropy, kind: Kind) -> Observed {
    let time = Timestamp(ctx.now.0 - entropy.below(1 << 50) as i64);
    let etag = ETag::new(&format!("{:016x}{:016x}", entropy.next_u64(), entropy.next_u64()));
    let object = Stored { key: None, etag, version: None, last_modified: Some(time) };
    Observed {
        kind,
        size_bytes: entropy.below(1 << 30),
        object: (kind == Kind::File).then_some(object),
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        atime: time,
        mtime: time,
        ctime: Timestamp(time.0 + 123_456_789),
        btime: time,
        target: None,
        exact: true,
        looked_at: ctx.now,
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * rustix::param::page_size() as u64
}

fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
