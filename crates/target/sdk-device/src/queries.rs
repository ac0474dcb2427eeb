//! The queries of the HSA runtime, which writes its answers into midair's memory.
//!
//! HSA's queries get an address and no size. The runtime writes as many bytes as the attribute has
//! in its version, and a text as long as the text is. An answer that is longer than the memory runs
//! over the target's stack or heap. So these functions of the runtime are called in this module
//! alone (`clippy.toml` of this crate), and each answer has more room than it needs:
//!
//! | answer | room |
//! |---|---|
//! | a number or a handle | [`ROOM`] bytes; the longest attribute of a fixed size has 128 |
//! | a text | [`Texts`]: megabytes, whatever length the runtime reports |
//! | a struct or a table with its own size | the size that the runtime is given |
//! | handles, one for each call of a function | a vector, up to [`MOST_LISTED`] |
//!
//! The rest is relied on: the runtime writes at the address that it was given.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that calls the runtime's queries"
)]

mod loader;
mod texts;

pub(crate) use loader::Loader;
pub(crate) use texts::{Texts, Untold};

use midair_sdk_hot::wrappers::original;
use std::ffi::c_void;

/// `hsa_status_t`; 0 is success.
pub(crate) type Status = u32;
/// `HSA_STATUS_INFO_BREAK`, which ends an iteration.
const BREAK: Status = 1;

/// Bytes for an answer of a fixed size.
const ROOM: usize = 256;
/// The most handles of one iteration.
const MOST_LISTED: usize = 1 << 20;

/// Integers that are read from the first bytes of an answer.
pub(crate) trait Number: Copy {
    /// Returns the number at the start of an answer.
    fn of(answer: &[u8; ROOM]) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => { $(
        impl Number for $number {
            fn of(answer: &[u8; ROOM]) -> $number {
                let first = answer.first_chunk().copied();
                <$number>::from_ne_bytes(first.unwrap_or_default())
            }
        }
    )* };
}
numbers!(u16, u32, u64);

/// The memory of an answer, aligned for any type.
#[repr(C, align(64))]
struct Answer([u8; ROOM]);

/// Has the runtime write a number. Bytes that the runtime does not write are 0.
fn number<T: Number>(ask: impl FnOnce(*mut c_void) -> Status) -> Option<T> {
    let mut answer = Answer([0; ROOM]);
    (ask((&raw mut answer.0).cast()) == 0).then(|| T::of(&answer.0))
}

/// Returns an attribute of the runtime; `None` if the runtime is closed.
pub(crate) fn system<T: Number>(attribute: u32) -> Option<T> {
    // SAFETY: this is the runtime's own query, and `to` has room for any attribute of a fixed size.
    number(|to| unsafe { original::hsa_system_get_info(attribute, to) })
}

/// Returns an attribute of an agent; `None` for a handle that is none.
pub(crate) fn agent<T: Number>(agent: u64, attribute: u32) -> Option<T> {
    // SAFETY: this is the runtime's own query, which checks the handle, and `to` has room for any
    // attribute of a fixed size.
    number(|to| unsafe { original::hsa_agent_get_info(agent, attribute, to) })
}

/// Returns an attribute of a memory pool.
pub(crate) fn pool<T: Number>(pool: u64, attribute: u32) -> Option<T> {
    // SAFETY: this is the runtime's own query, which checks the handle, and `to` has room for any
    // attribute of a fixed size.
    number(|to| unsafe { original::hsa_amd_memory_pool_get_info(pool, attribute, to) })
}

/// Returns an attribute of a queue.
///
/// # Safety
/// `queue` is a live `hsa_queue_t`, and the runtime has the function.
pub(crate) unsafe fn queue<T: Number>(queue: u64, attribute: u32) -> Option<T> {
    let queue = std::ptr::with_exposed_provenance_mut(queue as usize);
    // SAFETY: the caller promises a live queue, and `to` has room for any attribute of a fixed size.
    number(|to| unsafe { original::hsa_amd_queue_get_info(queue, attribute, to) })
}

/// Returns an attribute of an executable.
///
/// # Safety
/// The executable is not destroyed during the call.
pub(crate) unsafe fn executable<T: Number>(executable: u64, attribute: u32) -> Option<T> {
    // SAFETY: the caller promises a live executable, and `to` has room for any attribute.
    number(|to| unsafe { original::hsa_executable_get_info(executable, attribute, to) })
}

/// Returns an attribute of a fixed size of a symbol.
///
/// # Safety
/// The symbol is one of an executable that is not destroyed during the call.
pub(crate) unsafe fn symbol<T: Number>(symbol: u64, attribute: u32) -> Option<T> {
    // SAFETY: the caller promises a live symbol, and `to` has room for any attribute of a fixed
    // size.
    number(|to| unsafe { original::hsa_executable_symbol_get_info(symbol, attribute, to) })
}

/// Returns the name of a symbol.
///
/// # Errors
/// The runtime does not tell the name, or it is too long.
///
/// # Safety
/// As [`symbol`].
pub(crate) unsafe fn symbol_name(symbol: u64, texts: &mut Texts) -> Result<&[u8], Untold> {
    /// `HSA_EXECUTABLE_SYMBOL_INFO_NAME_LENGTH` and `..._NAME`.
    const NAME_LENGTH: u32 = 1;
    const NAME: u32 = 2;
    // SAFETY: the caller promises a live symbol.
    let len = || unsafe { self::symbol::<u32>(symbol, NAME_LENGTH) };
    texts.ask(len, |to| {
        // SAFETY: the caller promises a live symbol; `to` has more room than the name has bytes.
        unsafe { original::hsa_executable_symbol_get_info(symbol, NAME, to) }
    })
}

/// `hsa_amd_pointer_info_t` (source: `docs/sources.md#hsa`), of which newer runtimes have a longer
/// version.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pointer {
    size: u32,
    /// `hsa_amd_pointer_type_t`; 0 is memory that the runtime does not know.
    pub kind: u32,
    addresses: [u64; 2],
    bytes: u64,
    user_data: u64,
    /// The agent that owns the memory.
    pub owner: u64,
    flags: [u32; 2],
}

/// Returns what the runtime knows about the memory at an address, which is not touched.
pub(crate) fn pointer(at: u64) -> Option<Pointer> {
    /// A pointer's information, and room for what a runtime writes past the size that it is given.
    #[repr(C)]
    struct Padded(Pointer, Answer);
    let pointer = Pointer {
        size: size_of::<Pointer>() as u32,
        ..Pointer::default()
    };
    let mut answer = Padded(pointer, Answer([0; ROOM]));
    // SAFETY: this is the runtime's own query, and the out pointer is valid for the size that its
    // first field says and more. No list of agents is asked for.
    let status = unsafe {
        original::hsa_amd_pointer_info(
            std::ptr::with_exposed_provenance_mut(at as usize),
            (&raw mut answer).cast(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    (status == 0).then_some(answer.0)
}

/// Takes a handle from the runtime. The address of a vector of handles is passed through the
/// runtime.
unsafe extern "C" fn take(handle: u64, data: *mut c_void) -> Status {
    // SAFETY: `data` is the vector of `listed`, which nothing else uses during the iteration.
    let handles = unsafe { &mut *data.cast::<Vec<u64>>() };
    if handles.len() >= MOST_LISTED || handles.try_reserve(1).is_err() {
        return BREAK;
    }
    handles.push(handle);
    0
}

/// The same for an iteration that passes what the handles belong to as well.
unsafe extern "C" fn take_second(_of: u64, handle: u64, data: *mut c_void) -> Status {
    // SAFETY: as this function's own arguments.
    unsafe { take(handle, data) }
}

/// Returns the handles that the runtime passes to the function during `iterate`, which gets the
/// data for that function, and whether it has passed all of them.
fn listed(iterate: impl FnOnce(*mut c_void) -> Status) -> (Vec<u64>, bool) {
    let mut handles: Vec<u64> = Vec::new();
    let is_whole = iterate((&raw mut handles).cast()) == 0;
    (handles, is_whole)
}

/// Returns the agents; `None` if the runtime is closed.
pub(crate) fn agents() -> Option<Vec<u64>> {
    // SAFETY: this is the runtime's own query, and the function has its type.
    let list = |data| unsafe { original::hsa_iterate_agents(take as *mut c_void, data) };
    let (agents, is_whole) = listed(list);
    is_whole.then_some(agents)
}

/// Returns the memory pools of an agent.
pub(crate) fn pools(agent: u64) -> Vec<u64> {
    let list = |data| {
        // SAFETY: this is the runtime's own query, and the function has its type.
        unsafe { original::hsa_amd_agent_iterate_memory_pools(agent, take as *mut c_void, data) }
    };
    listed(list).0
}

/// Returns the memory regions of an agent.
pub(crate) fn regions(agent: u64) -> Vec<u64> {
    // SAFETY: this is the runtime's own query, and the function has its type.
    let list =
        |data| unsafe { original::hsa_agent_iterate_regions(agent, take as *mut c_void, data) };
    listed(list).0
}

/// Returns the symbols of an executable.
///
/// # Safety
/// As [`executable`].
pub(crate) unsafe fn symbols(executable: u64) -> Vec<u64> {
    let list = |data| {
        let each = take_second as *mut c_void;
        // SAFETY: the caller promises a live executable, and the function has the query's type.
        unsafe { original::hsa_executable_iterate_symbols(executable, each, data) }
    };
    listed(list).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_room_for_a_longer_answer() {
        let whole = |to: *mut c_void| {
            // SAFETY: there is room for so many bytes.
            unsafe { to.cast::<u8>().write_bytes(0x11, 128) };
            0
        };
        assert_eq!(number::<u16>(whole), Some(0x1111));
        assert_eq!(number::<u32>(whole), Some(0x1111_1111));
        assert_eq!(number::<u64>(whole), Some(0x1111_1111_1111_1111));
        // What is shorter than the number leaves its upper bytes 0.
        let byte = |to: *mut c_void| {
            // SAFETY: there is room for a byte.
            unsafe { to.cast::<u8>().write(1) };
            0
        };
        assert_eq!(number::<u32>(byte), Some(1));
        assert_eq!(number::<u32>(|_| 4096), None);
    }

    #[test]
    fn an_iteration_without_end_is_ended() {
        let endless = |data: *mut c_void| {
            // SAFETY: `listed` passes the `data` that `take_second` expects.
            while unsafe { take_second(1, 7, data) } == 0 {}
            BREAK
        };
        let (handles, is_whole) = listed(endless);
        assert_eq!((handles.len(), is_whole), (MOST_LISTED, false));
        assert!(handles.iter().all(|handle| *handle == 7));
    }
}
