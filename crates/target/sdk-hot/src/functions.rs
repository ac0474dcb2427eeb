//! The functions of the API tables by the kind and operation of their records.

use crate::markers::operation;
use crate::state::STATE;
use midair_abi::ompt;
use midair_abi::tables::{ALL, Function};
use midair_record::event::kind;

/// Returns the function of a call's record.
pub fn function_of(record_kind: u8, operation: u32) -> Option<&'static Function> {
    let by_kind = STATE.functions.get_or_init(|| {
        let mut kinds = vec![Vec::new(); usize::from(midair_domain::KindSet::LIMIT)];
        for table in ALL {
            let ids = table.functions.iter().map(|function| function.operation);
            let mut list = vec![None; ids.max().map_or(0, |id| id as usize + 1)];
            for function in table.functions {
                if let Some(entry) = list.get_mut(function.operation as usize) {
                    *entry = Some(function);
                }
            }
            let domain = midair_domain::of_buffer_kind(i32::from(table.kind));
            let entry = domain.and_then(|domain| kinds.get_mut(usize::from(domain.kind)));
            if let Some(entry) = entry {
                *entry = list;
            }
        }
        if let Some(entry) = kinds.get_mut(usize::from(kind::OMPT)) {
            *entry = ompt::FUNCTIONS.iter().map(Some).collect();
        }
        kinds
    });
    // A range has the argument of the call that starts it.
    let (record_kind, operation) = match (record_kind, operation) {
        (kind::MARKER_CORE_RANGE_API, operation::MARK) => (kind::MARKER_CORE_API, operation::MARK),
        (kind::MARKER_CORE_RANGE_API, operation::RANGE_THREAD) => {
            (kind::MARKER_CORE_API, operation::PUSH)
        }
        (kind::MARKER_CORE_RANGE_API, operation::RANGE_PROCESS) => {
            (kind::MARKER_CORE_API, operation::START)
        }
        (kind::MARKER_CORE_RANGE_API, operation::RANGE_GET_THREAD_ID) => {
            (kind::MARKER_CORE_API, operation::GET_THREAD_ID)
        }
        other => other,
    };
    by_kind
        .get(usize::from(record_kind))?
        .get(operation as usize)
        .copied()
        .flatten()
}
