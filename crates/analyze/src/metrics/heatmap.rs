//! Heat maps: I/O by time and by address on the device (Figure 4 of the paper).

use crate::model::Operation;
use crate::model::{HeatCell, Heatmap, Request, SECTOR_BYTES};
use std::collections::BTreeMap;

const COLUMNS: usize = 96;
const ROWS: usize = 48;

/// Computes the heat map of one device. A request counts at the time when it was queued, in the row of its first sector.
pub(super) fn heatmap(
    index: usize,
    (device, device_bytes): &(String, u64),
    requests: &[&Request],
    span: (u64, u64),
    trace_begin_ns: u64,
) -> Heatmap {
    let column_ns = (span.1 - span.0).div_ceil(COLUMNS as u64).max(1);
    let row_bytes = device_bytes.div_ceil(ROWS as u64).max(1);
    let mut cells: BTreeMap<(u32, u32), HeatCell> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.device == index && request.size_bytes > 0) {
        let column = (request.queued_ns.saturating_sub(span.0) / column_ns).min(COLUMNS as u64 - 1) as u32;
        let row = (request.sector * SECTOR_BYTES / row_bytes).min(ROWS as u64 - 1) as u32;
        let cell =
            cells.entry((column, row)).or_insert(HeatCell { column, row, read_bytes: 0, written_bytes: 0 });
        match request.operation {
            Operation::Read => cell.read_bytes += request.size_bytes,
            Operation::Write => cell.written_bytes += request.size_bytes,
            Operation::Flush | Operation::Discard => (),
        }
    }
    Heatmap {
        device: device.clone(),
        device_bytes: *device_bytes,
        begin_ns: span.0 - trace_begin_ns,
        column_ns,
        columns: COLUMNS,
        rows: ROWS,
        cells: cells.into_values().collect(),
    }
}
