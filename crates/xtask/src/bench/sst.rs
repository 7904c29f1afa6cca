//! `cargo xtask bench sst`: CPU time of sorted tables, for each entry or call.
//!
//! A table of a million entries in memory, read by one thread; of several rounds the best counts. What a device takes is not in
//! these figures.

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

/// Tables that are merged, each with its share of the entries.
const SHARES: u32 = 4;

/// Measures, and says so on standard output.
pub(super) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("{}", super::USAGE);
    }
    if cfg!(debug_assertions) {
        return super::again_in_release(root, "bench", &["sst".to_owned()]);
    }
    println!("{ENTRIES} entries, keys of 30 bytes, values of {}; ns of CPU time each", VALUE.len());
    row("build", ENTRIES, || build(0..ENTRIES).map(drop))?;
    let cache = Arc::new(Cache::new(1 << 30));
    let open = |bytes, id| anyhow::Ok(Arc::new(Table::open(bytes, id, Arc::clone(&cache))?));
    let bytes = build(0..ENTRIES)?;
    let table = open(bytes.clone(), 0)?;
    row("scan", ENTRIES, || count(table.scan(Bound::Unbounded)))?;
    row("get, in order", ENTRIES, || get(&table, 0..ENTRIES))?;
    row("get, in no order", ENTRIES, || get(&table, (0..ENTRIES).map(shuffled)))?;
    row("get of what is not there", ENTRIES, || miss(&table))?;
    row("scan of 10", ENTRIES / 10, || short_scans(&table))?;
    row("verify", ENTRIES, || Ok(table.verify()?))?;
    let share =
        |share| open(build((0..ENTRIES).filter(|number| scattered(*number) == share))?, 1 + u64::from(share));
    let shares = (0..SHARES).map(share).collect::<Result<Vec<_>>>()?;
    row("merge of 4", ENTRIES, || {
        count(Merge::new(shares.iter().map(|table| table.scan(Bound::Unbounded))))
    })?;
    println!("{} bytes an entry", bytes.len() as f64 / f64::from(ENTRIES));
    Ok(())
}

fn row(what: &str, calls: u32, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut best = u64::MAX;
    for _ in 0..ROUNDS {
        let before = resource_usage::cpu_of_thread()?;
        work()?;
        best = best.min((resource_usage::cpu_of_thread()? - before).as_nanos() as u64);
    }
    println!("{what:<26} {:>6}", best / u64::from(calls));
    Ok(())
}

/// As an index of objects has them.
fn key(number: u32) -> [u8; 30] {
    let mut key = *b"O|bucket|files-00000/000000000";
    put_digits(&mut key[15..20], number / 1000);
    put_digits(&mut key[21..], number % 1000 * 7);
    key
}

fn put_digits(place: &mut [u8], mut number: u32) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// All numbers in another order.
fn shuffled(number: u32) -> u32 {
    (u64::from(number) * 618_033 % u64::from(ENTRIES)) as u32
}

/// Which table has an entry.
fn scattered(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1) % SHARES
}

fn build(numbers: impl Iterator<Item = u32>) -> Result<Bytes> {
    let mut writer = Writer::new(Vec::new(), Options::default());
    for number in numbers {
        writer.add(&key(number), &VALUE)?;
    }
    Ok(writer.finish()?.0.into())
}

fn count(mut sorted: impl Sorted) -> Result<()> {
    let mut count = 0;
    while sorted.advance()? {
        black_box((sorted.key(), sorted.value()));
        count += 1;
    }
    ensure!(count == ENTRIES, "{count} entries instead of {ENTRIES}");
    Ok(())
}

fn get(table: &Table<Bytes>, numbers: impl Iterator<Item = u32>) -> Result<()> {
    for number in numbers {
        table.get(&key(number))?.context("an entry is not there")?;
    }
    Ok(())
}

fn miss(table: &Table<Bytes>) -> Result<()> {
    for number in (0..ENTRIES).map(shuffled) {
        let key = [&key(number)[..], &[0]].concat();
        ensure!(table.get(&key)?.is_none(), "an entry is there that was not added");
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
