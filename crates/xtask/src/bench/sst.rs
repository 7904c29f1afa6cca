//! `cargo xtask bench sst`: measures the CPU time of sorted tables, per entry or call.
//!
//! A table of a million entries in memory is read by one thread. The best of several rounds counts. I/O is not measured.

use super::resource_usage;
use ::sst::{Cache, Merge, Options, Sorted, Table, Writer};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use std::hint::black_box;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const ENTRIES: u32 = 1_000_000;
const ROUNDS: usize = 5;
const VALUE: [u8; 100] = [7; 100];

/// Number of tables to merge, each with its share of the entries.
const MERGED_TABLES: u32 = 4;

/// Measures and prints the results.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("{}", super::USAGE);
    }
    if cfg!(debug_assertions) {
        return super::rerun_in_release(root, "bench", &["sst".to_owned()]);
    }
    println!(
        "{ENTRIES} entries, keys of 30 bytes, values of {} bytes; ns of CPU time per entry or call",
        VALUE.len()
    );
    row("build", ENTRIES, || build(0..ENTRIES).map(drop))?;
    let cache = Arc::new(Cache::new(1 << 30));
    let open = |bytes, id| anyhow::Ok(Arc::new(Table::open(bytes, id, Arc::clone(&cache))?));
    let bytes = build(0..ENTRIES)?;
    let table = open(bytes.clone(), 0)?;
    row("scan", ENTRIES, || check_count(table.scan(Bound::Unbounded)))?;
    row("get, in order", ENTRIES, || get(&table, 0..ENTRIES))?;
    row("get, random order", ENTRIES, || get(&table, (0..ENTRIES).map(shuffled)))?;
    row("get of missing keys", ENTRIES, || get_missing(&table))?;
    row("scan of 10", ENTRIES / 10, || short_scans(&table))?;
    row("verify", ENTRIES, || Ok(table.verify()?))?;
    let part =
        |index| open(build((0..ENTRIES).filter(|number| table_of(*number) == index))?, 1 + u64::from(index));
    let parts = (0..MERGED_TABLES).map(part).collect::<Result<Vec<_>>>()?;
    row("merge of 4", ENTRIES, || {
        check_count(Merge::new(parts.iter().map(|table| table.scan(Bound::Unbounded))))
    })?;
    println!("{} bytes per entry", bytes.len() as f64 / f64::from(ENTRIES));
    Ok(())
}

/// Measures `work`, which makes `calls` calls, and prints the CPU time per call of the best round.
fn row(name: &str, calls: u32, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let before = resource_usage::thread_cpu_time()?;
        work()?;
        best = best.min((resource_usage::thread_cpu_time()? - before).as_nanos() as u64);
    }
    println!("{name:<26} {:>6}", best / u64::from(calls));
    Ok(())
}

/// Returns a key like those of an object index.
fn key(number: u32) -> [u8; 30] {
    let mut key = *b"O|bucket|files-00000/000000000";
    write_digits(&mut key[15..20], number / 1000);
    write_digits(&mut key[21..], number % 1000 * 7);
    key
}

fn write_digits(target: &mut [u8], mut number: u32) {
    for digit in target.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Permutes the numbers of entries.
fn shuffled(number: u32) -> u32 {
    (u64::from(number) * 618_033 % u64::from(ENTRIES)) as u32
}

/// Returns the table that an entry belongs to in the merge.
fn table_of(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1) % MERGED_TABLES
}

fn build(numbers: impl Iterator<Item = u32>) -> Result<Bytes> {
    let mut writer = Writer::new(Vec::new(), Options::default());
    for number in numbers {
        writer.add(&key(number), &VALUE)?;
    }
    Ok(writer.finish()?.0.into())
}

/// Reads all entries and checks their number.
fn check_count(mut sorted: impl Sorted) -> Result<()> {
    let mut count = 0;
    while sorted.advance()? {
        black_box((sorted.key(), sorted.value()));
        count += 1;
    }
    ensure!(count == ENTRIES, "found {count} entries instead of {ENTRIES}");
    Ok(())
}

fn get(table: &Table<Bytes>, numbers: impl Iterator<Item = u32>) -> Result<()> {
    for number in numbers {
        table.get(&key(number))?.context("an entry is missing")?;
    }
    Ok(())
}

fn get_missing(table: &Table<Bytes>) -> Result<()> {
    for number in (0..ENTRIES).map(shuffled) {
        let key = [&key(number)[..], &[0]].concat();
        ensure!(table.get(&key)?.is_none(), "found an entry that was not added");
    }
    Ok(())
}

fn short_scans(table: &Arc<Table<Bytes>>) -> Result<()> {
    for number in (0..ENTRIES / 10).map(shuffled) {
        let mut cursor = table.scan(Bound::Included(&key(number)));
        for _ in 0..10 {
            black_box(cursor.advance()?);
        }
    }
    Ok(())
}
