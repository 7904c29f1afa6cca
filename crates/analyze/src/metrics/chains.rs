//! Chains: sequences of requests with adjacent sectors, in the order of issue (section 3.2 of the paper).

use super::distribution::distribution;
use crate::model::{Chains, Kind, NATURAL_TRANSFER_BYTES, Operation, Region, Request, SECTOR_BYTES};
use std::collections::{HashMap, VecDeque};

/// Maximum number of chains that can still be continued. Must exceed the number of threads of any node.
const OPEN_MAX: usize = 256;

/// Computes the chains of reads and of writes. `requests` are in the order of issue; `regions` are those of a raw device, ordered by sector.
pub(super) fn chains(requests: &[&Request], regions: &[Region]) -> Vec<Chains> {
    let mut global = global_lengths(requests);
    [Operation::Read, Operation::Write]
        .into_iter()
        .map(|operation| {
            let of_operation = requests.iter().copied().filter(|request| request.operation == operation);
            let lengths = object_lengths(of_operation, regions);
            let natural: Vec<u64> =
                lengths.iter().copied().filter(|length| *length >= NATURAL_TRANSFER_BYTES).collect();
            Chains {
                operation,
                natural: share(natural.len() as u64, lengths.len() as u64),
                bytes_in_natural: share(natural.iter().sum(), lengths.iter().sum()),
                per_stream: distribution(lengths),
                global: distribution(global.remove(&operation).unwrap_or_default()),
            }
        })
        .collect()
}

/// Returns `part / total`, or 0 if both are 0.
fn share(part: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { part as f64 / total as f64 }
}

/// Returns the lengths in bytes of the chains that the device sees: any request to another address, or of another operation, ends a chain.
fn global_lengths(requests: &[&Request]) -> HashMap<Operation, Vec<u64>> {
    let mut ended: HashMap<Operation, Vec<u64>> = HashMap::new();
    // By device: operation, sector after the chain, length in bytes.
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

/// Returns the lengths in bytes of the chains within each object. A request continues a chain if it begins at the chain's end and belongs to
/// the same object (file, or region of a raw device). An object can have several open chains, as it can have several readers.
fn object_lengths<'a>(requests: impl Iterator<Item = &'a Request>, regions: &[Region]) -> Vec<u64> {
    let mut ended = Vec::new();
    let mut open: VecDeque<Part> = VecDeque::new();
    let with_data = requests.filter(|request| request.size_bytes > 0);
    for part in with_data.flat_map(|request| object_parts(request, regions)) {
        let before = open.iter().position(|before| (before.object, before.end) == (part.object, part.begin));
        let begin = before.and_then(|before| open.remove(before)).map_or(part.begin, |before| before.begin);
        open.push_back(Part { begin, ..part });
        if open.len() > OPEN_MAX {
            ended.extend(open.pop_front());
        }
    }
    ended.extend(open);
    ended.into_iter().map(|chain| (chain.end - chain.begin) * SECTOR_BYTES).collect()
}

/// The part of a request that lies in one object, or a chain of such parts.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Device, and the id of the file or thread; on a raw device, the index of the region instead.
    object: (usize, u64),
    begin: u64,
    end: u64,
}

/// Returns the parts of a request that hold object data; on a raw device, one part for each object.
fn object_parts(request: &Request, regions: &[Region]) -> Vec<Part> {
    let (begin, end) = (request.sector, request.sector + request.size_bytes / SECTOR_BYTES);
    if regions.is_empty() {
        let part = Part { object: (request.device, request.file_or_thread), begin, end };
        return Vec::from_iter((request.kind == Kind::ObjectData).then_some(part));
    }
    let first = regions.partition_point(|region| region.sectors.end <= begin);
    let overlapping =
        regions.iter().enumerate().skip(first).take_while(|(_, region)| region.sectors.start < end);
    let data = overlapping.filter(|(_, region)| region.kind == Kind::ObjectData);
    let part = |(index, region): (usize, &Region)| Part {
        object: (request.device, index as u64),
        begin: begin.max(region.sectors.start),
        end: end.min(region.sectors.end),
    };
    data.map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Step;

    const FILE: u64 = 1;
    const THREAD: u64 = Request::THREAD;

    fn request(operation: Operation, file_or_thread: u64, sector: u64, sectors: u64) -> Request {
        Request {
            device: 0,
            operation,
            kind: Kind::ObjectData,
            sector,
            size_bytes: sectors * SECTOR_BYTES,
            queued_ns: 0,
            issued_ns: 0,
            completed_ns: 1,
            file_or_thread,
            forced: false,
        }
    }

    fn chains_of(requests: &[Request], operation: Operation) -> Chains {
        chains_within(requests, &[], operation)
    }

    fn chains_within(requests: &[Request], regions: &[Region], operation: Operation) -> Chains {
        let borrowed: Vec<&Request> = requests.iter().collect();
        chains(&borrowed, regions).into_iter().find(|chains| chains.operation == operation).unwrap()
    }

    /// Two files are written at the same time, request by request in turn. Each file has one chain; the device sees one chain per request.
    #[test]
    fn interleaved_files_have_separate_chains() {
        let mib = 2048;
        let requests: Vec<Request> = (0..4)
            .flat_map(|i| {
                [
                    request(Operation::Write, FILE, i * mib, mib),
                    request(Operation::Write, FILE + 1, 100_000 + i * mib, mib),
                ]
            })
            .collect();
        let found = chains_of(&requests, Operation::Write);
        assert_eq!(found.per_stream.count, 2);
        assert_eq!(found.per_stream.steps, [Step { at_most: 4 << 20, share: 1.0 }]);
        assert_eq!(found.global.count, 8);
        assert_eq!(found.bytes_in_natural, 1.0);
    }

    #[test]
    fn a_gap_ends_a_files_chain() {
        let requests = [request(Operation::Read, FILE, 0, 8), request(Operation::Read, FILE, 16, 8)];
        let found = chains_of(&requests, Operation::Read);
        assert_eq!(found.per_stream.count, 2);
        assert_eq!(found.bytes_in_natural, 0.0);
    }

    /// One thread writes two objects of a raw device in turn.
    #[test]
    fn objects_of_a_raw_device_are_distinguished_by_address() {
        let requests: Vec<Request> = (0..3)
            .flat_map(|i| {
                [
                    request(Operation::Write, THREAD, i * 8, 8),
                    request(Operation::Write, THREAD, 1000 + i * 8, 8),
                ]
            })
            .collect();
        let regions = [0..24, 1000..1024].map(|sectors| Region { sectors, kind: Kind::ObjectData });
        let found = chains_within(&requests, &regions, Operation::Write);
        assert_eq!(found.per_stream.steps, [Step { at_most: 3 * 4096, share: 1.0 }]);
        assert_eq!(found.per_stream.count, 2);
    }

    /// A bug: adjacent objects of a drive formed one chain, together with the checksums between them and index blocks.
    #[test]
    fn a_chain_ends_at_the_end_of_its_object() {
        let region = |sectors, kind| Region { sectors, kind };
        let regions = [
            region(0..8192, Kind::ObjectData),
            region(8192..8200, Kind::ObjectMetadata),
            region(8200..9000, Kind::ObjectData),
            region(9000..9100, Kind::Index),
        ];
        let requests: Vec<Request> = [(0, 4096), (4096, 4104), (8200, 800), (9000, 100), (9100, 8)]
            .map(|(sector, sectors)| request(Operation::Read, THREAD, sector, sectors))
            .to_vec();
        let found = chains_within(&requests, &regions, Operation::Read);
        let steps = [Step { at_most: 800 * 512, share: 0.5 }, Step { at_most: 4 << 20, share: 1.0 }];
        assert_eq!(found.per_stream.steps, steps);
        assert_eq!(found.natural, 0.5);
        assert!((found.bytes_in_natural - 8192.0 / 8992.0).abs() < 1e-9);
    }

    /// Requests of a removed file do not count, as it may not have held object data. Two readers of one file do not end each other's chains.
    #[test]
    fn chains_are_counted_for_each_reader_of_object_data() {
        let mib = 2048;
        let reads =
            (0..4).flat_map(|i| [0, 8].map(|from| request(Operation::Read, FILE, (from + i) * mib, mib)));
        let removed = Request { kind: Kind::Unnamed, ..request(Operation::Read, FILE + 1, 0, 8) };
        let found = chains_of(&reads.chain([removed]).collect::<Vec<_>>(), Operation::Read);
        assert_eq!((found.per_stream.count, found.natural), (2, 1.0));
    }

    #[test]
    fn a_read_between_two_writes_ends_the_global_chain() {
        let requests = [
            request(Operation::Write, FILE, 0, 8),
            request(Operation::Read, FILE, 500, 8),
            request(Operation::Write, FILE, 8, 8),
        ];
        let found = chains_of(&requests, Operation::Write);
        assert_eq!(found.global.count, 2);
        assert_eq!(found.per_stream.steps, [Step { at_most: 8192, share: 1.0 }]);
    }
}
