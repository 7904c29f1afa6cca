//! Ids of traces and spans, computed from the numbers of operations, so that a late request finds the trace of its operation.

use metrics::scramble;

/// Id of a trace; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub(crate) [u8; 16]);

/// Id of a span; never zero, which stands for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub(crate) [u8; 8]);

impl TraceId {
    /// Returns the id of the trace of something that several processes know by these numbers.
    pub fn named([one, other]: [u64; 2]) -> Self {
        Self((u128::from(scramble(one).max(1)) << 64 | u128::from(scramble(other ^ one))).to_be_bytes())
    }
}

impl SpanId {
    /// Returns the id of a span that several processes know by this number.
    pub fn named(number: u64) -> Self {
        Self(scramble(number).max(1).to_be_bytes())
    }
}

/// The ids of a process. Processes with different seeds have different ids.
#[derive(Debug, Clone, Copy)]
pub struct Ids {
    process: u64,
    operations: u64,
    spans: u64,
}

impl Ids {
    /// Makes the ids of a process from random numbers.
    pub fn new([process, operations, spans]: [u64; 3]) -> Self {
        Self { process: process.max(1), operations, spans }
    }

    /// Returns the id of the trace of an operation.
    pub fn trace(&self, operation: u64) -> TraceId {
        let id = u128::from(self.process) << 64 | u128::from(scramble(operation ^ self.operations));
        TraceId(id.to_be_bytes())
    }

    /// Returns the id of a span by its number. Operations and the requests below them share the numbers.
    pub fn span(&self, number: u64) -> SpanId {
        SpanId(scramble(number ^ self.spans).max(1).to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn named_ids_are_those_of_their_numbers() {
        assert_eq!(TraceId::named([1, 2]), TraceId::named([1, 2]));
        let named: HashSet<_> = (0..1000)
            .flat_map(|number| [TraceId::named([1, number]), TraceId::named([number + 2, 1])])
            .collect();
        assert_eq!(named.len(), 2000);
        assert!(TraceId::named([0, 0]).0 != [0; 16] && SpanId::named(0).0 != [0; 8]);
    }

    #[test]
    fn ids_differ_by_number_and_process() {
        let (one, other) = (Ids::new([1, 2, 3]), Ids::new([2, 2, 3]));
        let traces: HashSet<_> =
            (0..1000).flat_map(|number| [one.trace(number), other.trace(number)]).collect();
        let spans: HashSet<_> = (0..1000).map(|number| one.span(number)).collect();
        assert_eq!((traces.len(), spans.len()), (2000, 1000));
        assert!(Ids::new([0, 0, 0]).trace(0).0 != [0; 16] && Ids::new([0, 0, 0]).span(0).0 != [0; 8]);
    }
}
