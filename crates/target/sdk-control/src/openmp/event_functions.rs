//! The functions that the runtime calls for its events.

use midair_abi::ompt::operation;
use midair_capi_build::edge;
use midair_sdk_hot::openmp;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A pointer of the runtime.
type Pointer = *const c_void;
/// `ompt_scope_endpoint_t`.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Endpoint(c_int);

impl Endpoint {
    const BEGIN: c_int = 1;
    const END: c_int = 2;
}

/// An argument as a word, as in the records of calls: signed numbers are extended by their sign.
trait Word: Copy {
    fn word(self) -> u64;
}
impl Word for c_int {
    fn word(self) -> u64 {
        i64::from(self).cast_unsigned()
    }
}
impl Word for c_uint {
    fn word(self) -> u64 {
        u64::from(self)
    }
}
impl Word for u64 {
    fn word(self) -> u64 {
        self
    }
}
impl Word for i64 {
    fn word(self) -> u64 {
        self.cast_unsigned()
    }
}
impl Word for Pointer {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }
}
impl Word for *const c_char {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }
}
impl Word for Endpoint {
    fn word(self) -> u64 {
        self.0.word()
    }
}

fn tell(operation: u32, words: &[u64]) {
    edge((), || openmp::event(operation, words));
}

/// An endpoint that is both means an event without duration.
fn tell_end(operation: u32, endpoint: Endpoint, words: &[u64]) {
    edge((), || match endpoint.0 {
        Endpoint::BEGIN => openmp::region_begins(operation, words),
        Endpoint::END => openmp::region_ends(operation, words),
        _ => openmp::event(operation, words),
    });
}

/// Defines the functions, and the table of them by operation. A function with an endpoint tells
/// both ends of a region.
macro_rules! functions {
    ($( $name:ident = $operation:ident ( $($argument:ident : $type:ty),* ) $(ends $endpoint:ident)? ;)*) => {
        $( extern "C" fn $name($($argument: $type),*) {
            let words = [$(Word::word($argument)),*];
            functions!(@ $operation words $($endpoint)?);
        } )*
        /// Returns the function for an operation.
        pub(super) fn function(operation: u32) -> Option<super::Function> {
            let address = match operation {
                $( operation::$operation => $name as *const (), )*
                _ => return None,
            };
            // SAFETY: it is the address of a function; the runtime calls it by its own type.
            Some(unsafe { std::mem::transmute::<*const (), super::Function>(address) })
        }
    };
    (@ $operation:ident $words:ident) => { tell(operation::$operation, &$words) };
    (@ $operation:ident $words:ident $endpoint:ident) => {
        tell_end(operation::$operation, $endpoint, &$words)
    };
}

functions! {
    thread_begin = THREAD_BEGIN(thread_type: c_int, thread_data: Pointer);
    thread_end = THREAD_END(thread_data: Pointer);
    parallel_begin = PARALLEL_BEGIN(encountering_task_data: Pointer, encountering_task_frame: Pointer, parallel_data: Pointer, requested_parallelism: c_uint, flags: c_int, codeptr_ra: Pointer);
    parallel_end = PARALLEL_END(parallel_data: Pointer, encountering_task_data: Pointer, flags: c_int, codeptr_ra: Pointer);
    task_create = TASK_CREATE(encountering_task_data: Pointer, encountering_task_frame: Pointer, new_task_data: Pointer, flags: c_int, has_dependences: c_int, codeptr_ra: Pointer);
    task_schedule = TASK_SCHEDULE(prior_task_data: Pointer, prior_task_status: c_int, next_task_data: Pointer);
    implicit_task = IMPLICIT_TASK(endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, actual_parallelism: c_uint, index: c_uint, flags: c_int) ends endpoint;
    device_initialize = DEVICE_INITIALIZE(device_num: c_int, kind_name: *const c_char, device: Pointer, lookup: Pointer, documentation: *const c_char);
    device_finalize = DEVICE_FINALIZE(device_num: c_int);
    device_load = DEVICE_LOAD(device_num: c_int, filename: *const c_char, offset_in_file: i64, vma_in_file: Pointer, bytes: u64, host_addr: Pointer, device_addr: Pointer, module_id: u64);
    sync_region_wait = SYNC_REGION_WAIT(kind: c_int, endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, codeptr_ra: Pointer) ends endpoint;
    mutex_released = MUTEX_RELEASED(kind: c_int, wait_id: u64, codeptr_ra: Pointer);
    dependences = DEPENDENCES(task_data: Pointer, deps: Pointer, ndeps: c_int);
    task_dependence = TASK_DEPENDENCE(src_task_data: Pointer, sink_task_data: Pointer);
    work = WORK(work_type: c_int, endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, count: u64, codeptr_ra: Pointer) ends endpoint;
    masked = MASKED(endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, codeptr_ra: Pointer) ends endpoint;
    sync_region = SYNC_REGION(kind: c_int, endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, codeptr_ra: Pointer) ends endpoint;
    lock_init = LOCK_INIT(kind: c_int, hint: c_uint, implementation: c_uint, wait_id: u64, codeptr_ra: Pointer);
    lock_destroy = LOCK_DESTROY(kind: c_int, wait_id: u64, codeptr_ra: Pointer);
    mutex_acquire = MUTEX_ACQUIRE(kind: c_int, hint: c_uint, implementation: c_uint, wait_id: u64, codeptr_ra: Pointer);
    mutex_acquired = MUTEX_ACQUIRED(kind: c_int, wait_id: u64, codeptr_ra: Pointer);
    nest_lock = NEST_LOCK(endpoint: c_int, wait_id: u64, codeptr_ra: Pointer);
    flush = FLUSH(thread_data: Pointer, codeptr_ra: Pointer);
    cancel = CANCEL(task_data: Pointer, flags: c_int, codeptr_ra: Pointer);
    reduction = REDUCTION(kind: c_int, endpoint: Endpoint, parallel_data: Pointer, task_data: Pointer, codeptr_ra: Pointer) ends endpoint;
    dispatch = DISPATCH(parallel_data: Pointer, task_data: Pointer, kind: c_int, instance: u64);
    target_emi = TARGET_EMI(kind: c_int, endpoint: Endpoint, device_num: c_int, task_data: Pointer, target_task_data: Pointer, target_data: Pointer, codeptr_ra: Pointer) ends endpoint;
    target_data_op_emi = TARGET_DATA_OP_EMI(endpoint: Endpoint, target_task_data: Pointer, target_data: Pointer, host_op_id: Pointer, optype: c_int, src_addr: Pointer, src_device_num: c_int, dest_addr: Pointer, dest_device_num: c_int, bytes: u64, codeptr_ra: Pointer) ends endpoint;
    target_submit_emi = TARGET_SUBMIT_EMI(endpoint: Endpoint, target_data: Pointer, host_op_id: Pointer, requested_num_teams: c_uint) ends endpoint;
    error = ERROR(severity: c_int, message: *const c_char, length: u64, codeptr_ra: Pointer);
}

#[cfg(test)]
mod tests {
    use midair_abi::ompt::{CALLBACKS, FUNCTIONS};

    #[test]
    fn each_callback_of_openmps_has_a_function() {
        let mut seen = std::collections::BTreeSet::new();
        for (function, number) in FUNCTIONS.iter().zip(CALLBACKS) {
            let ours = super::function(function.operation);
            assert_eq!(ours.is_some(), number != 0, "{}", function.name);
            if let Some(ours) = ours {
                assert!(seen.insert(ours as usize), "{}", function.name);
            }
        }
        assert_eq!(seen.len(), 30);
    }
}
