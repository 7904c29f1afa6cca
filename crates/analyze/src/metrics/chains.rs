//! Runs of requests with adjacent sectors, in the order in which they went to the device (section 3.2 of the paper).

use super::distribution::distribution;
use crate::model::{Chains, Kind, NATURAL_TRANSFER_BYTES, Operation, Request, SECTOR_BYTES};
use std::collections::{HashMap, VecDeque};

/// Chains of a raw device that may still be continued: more streams at once than any node has threads.
const OPEN_MAX: usize = 256;

/// Chains of reads and of writes; `requests` are in the order of issue.
pub(super) fn chains(requests: &[&Request]) -> Vec<Chains> {
    let mut global = global(requests);
    [Operation::Read, Operation::Write]
        .into_iter()
        .map(|operation| {
            let lengths =
                per_stream(requests.iter().copied().filter(|request| request.operation == operation));
            let all: u64 = lengths.iter().sum();
            let natural: u64 = lengths.iter().filter(|length| **length >= NATURAL_TRANSFER_BYTES).sum();
            Chains {
                operation,
                per_stream: distribution(lengths),
                global: distribution(global.remove(&operation).unwrap_or_default()),
                bytes_in_natural: if all == 0 { 0.0 } else { natural as f64 / all as f64 },
            }
        })
        .collect()
}

/// As the device sees them: any request elsewhere, or of another operation, ends a chain.
fn global(requests: &[&Request]) -> HashMap<Operation, Vec<u64>> {
    let mut ended: HashMap<Operation, Vec<u64>> = HashMap::new();
    let mut open: HashMap<usize, (Operation, u64, u64)> = HashMap::new();
    for request in requests.iter().filter(|request| request.size_bytes > 0) {
        let end = request.sector + request.size_bytes / SECTOR_BYTES;
        let before = open.insert(request.device, (request.operation, end, request.size_bytes));
        match before {
            Some((operation, at, length)) if (operation, at) == (request.operation, request.sector) => {
                open.insert(request.device, (operation, end, length + request.size_bytes));
            }
            Some((operation, _, length)) => ended.entry(operation).or_default().push(length),
            None => (),
        }
    }
    for (operation, _, length) in open.into_values() {
        ended.entry(operation).or_default().push(length);
    }
    ended
}

/// Of each file by itself. On a raw device nobody says which object a request is of, so a chain is continued by
/// whatever begins where it ends.
fn per_stream<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<u64> {
    let mut ended = Vec::new();
    let mut files: HashMap<u64, (u64, u64)> = HashMap::new();
    let mut raw: VecDeque<(usize, u64, u64)> = VecDeque::new();
    let of_objects = |request: &&Request| matches!(request.kind, Kind::ObjectData | Kind::Unnamed);
    for request in requests.filter(of_objects).filter(|request| request.size_bytes > 0) {
        let end = request.sector + request.size_bytes / SECTOR_BYTES;
        let so_far = match request.is_of_file() {
            true => files.remove(&request.stream).map(|(at, length)| (at == request.sector, length)),
            false => raw
                .iter()
                .position(|(device, at, _)| (*device, *at) == (request.device, request.sector))
                .and_then(|open| raw.remove(open))
                .map(|(_, _, length)| (true, length)),
        };
        let length = match so_far {
            Some((true, length)) => length + request.size_bytes,
            Some((false, length)) => {
                ended.push(length);
                request.size_bytes
            }
            None => request.size_bytes,
        };
        match request.is_of_file() {
            true => drop(files.insert(request.stream, (end, length))),
            false => raw.push_back((request.device, end, length)),
        }
        if raw.len() > OPEN_MAX {
            ended.extend(raw.pop_front().map(|(_, _, length)| length));
        }
    }
    ended.extend(files.into_values().map(|(_, length)| length));
    ended.extend(raw.into_iter().map(|(_, _, length)| length));
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Step;

    const FILE: u64 = 1;
    const THREAD: u64 = 1 << 63;

    fn request(operation: Operation, stream: u64, sector: u64, sectors: u64) -> Request {
        Request {
            device: 0,
            operation,
            kind: Kind::ObjectData,
            sector,
            size_bytes: sectors * SECTOR_BYTES,
            queued_ns: 0,
            issued_ns: 0,
            completed_ns: 1,
            stream,
            forced: false,
        }
    }

    fn of(requests: &[Request], operation: Operation) -> Chains {
        let borrowed: Vec<&Request> = requests.iter().collect();
        chains(&borrowed).into_iter().find(|chains| chains.operation == operation).unwrap()
    }

    /// Two files written at once: each is one chain of its own, the device sees four.
    #[test]
    fn interleaved_files_are_chains_of_their_own() {
        let mib = 2048;
        let requests: Vec<Request> = (0..4)
            .flat_map(|i| {
                [
                    request(Operation::Write, FILE, i * mib, mib),
                    request(Operation::Write, FILE + 1, 100_000 + i * mib, mib),
                ]
            })
            .collect();
        let found = of(&requests, Operation::Write);
        assert_eq!(found.per_stream.count, 2);
        assert_eq!(found.per_stream.steps, [Step { at_most: 4 << 20, share: 1.0 }]);
        assert_eq!(found.global.count, 8);
        assert_eq!(found.bytes_in_natural, 1.0);
    }

    #[test]
    fn a_gap_ends_a_files_chain() {
        let requests = [request(Operation::Read, FILE, 0, 8), request(Operation::Read, FILE, 16, 8)];
        let found = of(&requests, Operation::Read);
        assert_eq!(found.per_stream.count, 2);
        assert_eq!(found.bytes_in_natural, 0.0);
    }

    /// A raw device's one thread writes two objects by turns: their chains are found by address.
    #[test]
    fn objects_of_a_raw_device_are_told_apart_by_address() {
        let requests: Vec<Request> = (0..3)
            .flat_map(|i| {
                [
                    request(Operation::Write, THREAD, i * 8, 8),
                    request(Operation::Write, THREAD, 1000 + i * 8, 8),
                ]
            })
            .collect();
        let found = of(&requests, Operation::Write);
        assert_eq!(found.per_stream.steps, [Step { at_most: 3 * 4096, share: 1.0 }]);
        assert_eq!(found.per_stream.count, 2);
    }

    #[test]
    fn a_read_between_two_writes_ends_the_devices_chain() {
        let requests = [
            request(Operation::Write, FILE, 0, 8),
            request(Operation::Read, FILE, 500, 8),
            request(Operation::Write, FILE, 8, 8),
        ];
        let found = of(&requests, Operation::Write);
        assert_eq!(found.global.count, 2);
        assert_eq!(found.per_stream.steps, [Step { at_most: 8192, share: 1.0 }]);
    }
}
