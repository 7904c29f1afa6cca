//! The jobs, timed by the CPU they take, background threads of the store included.

use crate::schemas::{Dir, Schema};
use meta::{Ino, Name};
use rustix::time::{ClockId, clock_gettime};
use store::Entropy;

/// How often each job but the first runs.
const SAMPLES: usize = 50_000;

/// Directories that are made at the same time, as by programs that run side by side.
const SIDE_BY_SIDE: usize = 50;

/// CPU microseconds per op, in the order of the columns.
pub fn run(schema: &mut impl Schema, dirs: usize, files: usize) -> Vec<f64> {
    let root = Dir { ino: Ino::ROOT, parent: Ino(0), name: name("root") };
    let mut made = Vec::new();
    let mut inos = Vec::new();
    let create = timed(dirs * (files + 1), || {
        for group in 0..dirs / SIDE_BY_SIDE {
            let group: Vec<Dir> = (0..SIDE_BY_SIDE)
                .map(|at| schema.make_dir(&root, name(&format!("sample-{:06}", group * SIDE_BY_SIDE + at))))
                .collect();
            for file in 0..files {
                inos.extend(group.iter().map(|dir| schema.make_file(dir, file_name(file))));
            }
            made.extend(group);
        }
        schema.settle();
    });
    let entropy = Entropy::new(7);
    let pick = |bound: usize| entropy.below(bound as u64) as usize;
    let listings = SAMPLES / 10;
    let mut entries = 0;
    let list = timed(listings * files, || {
        for _ in 0..listings {
            entries += schema.list(&made[pick(dirs)]);
        }
    });
    assert_eq!(entries, listings * files);
    let lookup = timed(SAMPLES, || {
        for _ in 0..SAMPLES {
            schema.lookup(&made[pick(dirs)], &file_name(pick(files)));
        }
    });
    let by_number = timed(SAMPLES, || {
        for _ in 0..SAMPLES {
            schema.by_number(inos[pick(inos.len())]);
        }
    });
    let publish = timed(SAMPLES, || {
        for size in 0..SAMPLES {
            schema.publish(&made[pick(dirs)], &file_name(pick(files)), size as u64);
        }
    });
    let rename_file = timed(SAMPLES, || {
        for at in 0..SAMPLES {
            let (from, to) = (&made[at % dirs], &made[(at + 1) % dirs]);
            schema.rename(
                (from, &file_name(at / dirs)),
                (to, &name(&format!("moved-{:06}.fastq.gz", at / dirs))),
            );
        }
    });
    let rename_dir = timed(dirs, || {
        for dir in &mut made {
            let to = name(&format!("moved-{}", dir.name));
            schema.rename((&root, &dir.name), (&root, &to));
            dir.name = to;
        }
    });
    vec![create, list, lookup, by_number, publish, rename_file, rename_dir]
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("a name")
}

fn file_name(number: usize) -> Name {
    name(&format!("reads_{number:06}.fastq.gz"))
}

fn timed(count: usize, job: impl FnOnce()) -> f64 {
    let before = cpu_us();
    job();
    (cpu_us() - before) / count as f64
}

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
