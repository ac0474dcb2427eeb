//! OpenMP's events (OMPT) as AMD's SDK tells them: operations, their arguments, and OpenMP's
//! numbers.
//!
//! Source: api/rocprofiler_sdk.json; OpenMP's tool interface is a published standard (OpenMP 5.2,
//! chapter 19).

use crate::names::Name;
use crate::tables::{Class, Function, Parameter, Type};

const fn name(text: &'static str) -> Name {
    Name::from_terminated(text)
}

/// Numbers of operations (`rocprofiler_ompt_operation_t`), under OpenMP's names.
pub mod operation {
    #![expect(missing_docs, reason = "the names are OpenMP's")]
    pub const THREAD_BEGIN: u32 = 0;
    pub const THREAD_END: u32 = 1;
    pub const PARALLEL_BEGIN: u32 = 2;
    pub const PARALLEL_END: u32 = 3;
    pub const TASK_CREATE: u32 = 4;
    pub const TASK_SCHEDULE: u32 = 5;
    pub const IMPLICIT_TASK: u32 = 6;
    pub const DEVICE_INITIALIZE: u32 = 7;
    pub const DEVICE_FINALIZE: u32 = 8;
    pub const DEVICE_LOAD: u32 = 9;
    pub const SYNC_REGION_WAIT: u32 = 10;
    pub const MUTEX_RELEASED: u32 = 11;
    pub const DEPENDENCES: u32 = 12;
    pub const TASK_DEPENDENCE: u32 = 13;
    pub const WORK: u32 = 14;
    pub const MASKED: u32 = 15;
    pub const SYNC_REGION: u32 = 16;
    pub const LOCK_INIT: u32 = 17;
    pub const LOCK_DESTROY: u32 = 18;
    pub const MUTEX_ACQUIRE: u32 = 19;
    pub const MUTEX_ACQUIRED: u32 = 20;
    pub const NEST_LOCK: u32 = 21;
    pub const FLUSH: u32 = 22;
    pub const CANCEL: u32 = 23;
    pub const REDUCTION: u32 = 24;
    pub const DISPATCH: u32 = 25;
    pub const TARGET_EMI: u32 = 26;
    pub const TARGET_DATA_OP_EMI: u32 = 27;
    pub const TARGET_SUBMIT_EMI: u32 = 28;
    pub const ERROR: u32 = 29;
    pub const CALLBACK_FUNCTIONS: u32 = 30;
}

/// The words by which `--ompt-trace` chooses operations, and these operations. AMD's documentation
/// gives the operations of `parallel` and `target`; the others follow from OpenMP's names.
pub const CATEGORIES: &[(&str, &[u32])] = {
    use operation::*;
    &[
        ("thread", &[THREAD_BEGIN, THREAD_END]),
        (
            "parallel",
            &[
                PARALLEL_BEGIN,
                PARALLEL_END,
                IMPLICIT_TASK,
                WORK,
                DISPATCH,
                REDUCTION,
                MASKED,
            ],
        ),
        (
            "task",
            &[
                TASK_CREATE,
                TASK_SCHEDULE,
                DEPENDENCES,
                TASK_DEPENDENCE,
                CANCEL,
            ],
        ),
        ("sync", &[SYNC_REGION, SYNC_REGION_WAIT, FLUSH]),
        (
            "mutex",
            &[
                MUTEX_ACQUIRE,
                MUTEX_ACQUIRED,
                MUTEX_RELEASED,
                LOCK_INIT,
                LOCK_DESTROY,
                NEST_LOCK,
            ],
        ),
        (
            "target",
            &[TARGET_EMI, TARGET_DATA_OP_EMI, TARGET_SUBMIT_EMI],
        ),
        ("device", &[DEVICE_INITIALIZE, DEVICE_FINALIZE, DEVICE_LOAD]),
        ("error", &[ERROR]),
    ]
};

include!(concat!(env!("OUT_DIR"), "/ompt.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_amds_names_and_openmps_numbers() {
        let of = |operation: u32| &FUNCTIONS[operation as usize];
        assert_eq!(&*of(operation::THREAD_BEGIN).name, "thread_begin");
        assert_eq!(&*of(operation::IMPLICIT_TASK).name, "implicit_task");
        assert_eq!(&*of(operation::ERROR).name, "error");
        assert_eq!(FUNCTIONS.len(), operation::CALLBACK_FUNCTIONS as usize + 1);
        for (at, function) in (0..).zip(FUNCTIONS) {
            assert_eq!(function.operation, at);
            assert_eq!(
                CALLBACKS[at as usize] == 0,
                at == operation::CALLBACK_FUNCTIONS
            );
        }
        assert_eq!(CALLBACKS[operation::IMPLICIT_TASK as usize], 7);
        assert_eq!(CALLBACKS[operation::MUTEX_ACQUIRED as usize], 27);
        let bytes = of(operation::TARGET_DATA_OP_EMI)
            .parameters
            .iter()
            .find(|parameter| parameter.name == "bytes");
        assert_eq!(bytes.map(|parameter| parameter.args_offset), Some(72));
    }

    /// Each operation but the runtime's functions belongs to one word.
    #[test]
    fn categories_cover_all_operations() {
        let mut all: Vec<u32> = CATEGORIES.iter().flat_map(|(_, of)| *of).copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..operation::CALLBACK_FUNCTIONS).collect::<Vec<_>>());
    }
}
