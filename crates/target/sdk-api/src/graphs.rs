//! The numbers of HIP's executable graphs, as tools get them: HIP gives the handle of a graph that
//! was destroyed to the next one.

use midair_record::event::{GraphCall, flag, graph};
use std::collections::BTreeMap;

/// The most graphs that have a number at a time. What a launch beyond them launched has no number
/// (0).
const MOST: usize = 1 << 16;

/// The numbers, by handle.
#[derive(Debug)]
pub(crate) struct Numbers {
    last: u64,
    of: BTreeMap<u64, u64>,
}

impl Numbers {
    pub const fn new() -> Numbers {
        Numbers {
            last: 0,
            of: BTreeMap::new(),
        }
    }

    /// Takes note of a call.
    pub fn saw(&mut self, call: &GraphCall) {
        if call.result != 0 || call.graph == 0 {
            return;
        }
        if call.header.operation == graph::EXEC_DESTROY {
            self.of.remove(&call.graph);
        } else if self.of.len() < MOST && !self.of.contains_key(&call.graph) {
            self.last += 1;
            self.of.insert(call.graph, self.last);
        }
    }

    /// Returns the number of a graph, from 1 on; 0 for one that has none.
    pub fn of(&self, handle: u64) -> u64 {
        self.of.get(&handle).copied().unwrap_or(0)
    }
}

/// Returns whether a call is a launch that succeeded.
pub(crate) fn is_launch(call: &GraphCall) -> bool {
    call.header.operation == graph::EXEC_LAUNCH && call.result == 0
}

/// Returns whether all dispatches of a launch can have been seen: recording was the same from its
/// start to its end.
pub(crate) fn is_whole(call: &GraphCall) -> bool {
    call.header.flags & (flag::CUT | flag::OPEN_AT_DETACH) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_record::event::Header;

    fn call(operation: u32, graph: u64, result: u32) -> GraphCall {
        GraphCall {
            header: Header {
                operation,
                ..Header::default()
            },
            graph,
            result,
            ..GraphCall::default()
        }
    }

    #[test]
    fn a_handle_that_is_used_again_is_another_graph() {
        let mut numbers = Numbers::new();
        for (operation, handle, result, number) in [
            (graph::EXEC_LAUNCH, 7, 0, 1),
            (graph::EXEC_LAUNCH, 7, 0, 1),
            (graph::EXEC_LAUNCH, 8, 0, 2),
            (graph::EXEC_DESTROY, 7, 1, 1),
            (graph::EXEC_DESTROY, 7, 0, 0),
            (graph::EXEC_LAUNCH, 7, 0, 3),
            (graph::EXEC_LAUNCH, 9, 1, 0),
            (graph::EXEC_LAUNCH, 0, 0, 0),
        ] {
            numbers.saw(&call(operation, handle, result));
            assert_eq!(numbers.of(handle), number, "{operation} {handle} {result}");
        }
        assert_eq!(numbers.of(8), 2);
    }

    #[test]
    fn graphs_are_bounded() {
        let mut numbers = Numbers::new();
        for handle in 1..=MOST as u64 + 3 {
            numbers.saw(&call(graph::EXEC_LAUNCH, handle, 0));
        }
        assert_eq!(numbers.of(MOST as u64), MOST as u64);
        assert_eq!(numbers.of(MOST as u64 + 1), 0);
    }
}
