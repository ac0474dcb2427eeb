//! Buffers with a slow callback, small buffers, and a tool that is part of the application (without
//! attach functions).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_abi::constants as c;
use midair_abi::records::RecordHeader;
use midair_abi::registration::{ClientFinalize, ClientId, ConfigureResult};
use midair_record::event::{self, Header, encode, kind};
use midair_sdk_api::ended::Ended;
use midair_sdk_api::status::Status;
use midair_sdk_api::{buffer, callback_thread, context, registration};
use midair_sdk_hot::clock;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// What callbacks got: (buffer, records, dropped).
static SEEN: Mutex<Vec<(u64, usize, u64)>> = Mutex::new(Vec::new());
/// While this is set, a callback meets the test here twice: when it has started, and before it ends.
static SLOW: AtomicBool = AtomicBool::new(false);
static MEETING: Barrier = Barrier::new(2);
/// The context; a discarding, a lossless and a tiny buffer; a second context without any services.
static HANDLES: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
static FINALIZED: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" fn callback(
    _context: u64,
    buffer: u64,
    headers: *mut *mut RecordHeader,
    count: usize,
    _data: *mut c_void,
    dropped: u64,
) {
    // A flush from inside the callback would wait for itself.
    assert_eq!(buffer::flush(buffer), Err(Status::BUFFER_BUSY));
    if SLOW.load(Ordering::SeqCst) {
        MEETING.wait();
        MEETING.wait();
    }
    for index in 0..count {
        // SAFETY: the SDK passes `count` pointers to headers.
        let header = unsafe { **headers.add(index) };
        // SAFETY: every record starts with its size.
        let size = unsafe { header.payload.cast::<u64>().read() };
        assert!(header.category == 1 && size >= 64);
    }
    SEEN.lock().unwrap().push((buffer, count, dropped));
}

unsafe extern "C-unwind" fn initialize(_end: Option<ClientFinalize>, _data: *mut c_void) -> c_int {
    let make = |size, policy| buffer::create(1, size, size, policy, callback, std::ptr::null_mut());
    let context = context::create().unwrap();
    let discard = make(640, c::ROCPROFILER_BUFFER_POLICY_DISCARD).unwrap();
    let lossless = make(640, c::ROCPROFILER_BUFFER_POLICY_LOSSLESS).unwrap();
    let tiny = make(8, c::ROCPROFILER_BUFFER_POLICY_DISCARD).unwrap();
    assert_eq!(
        make(0, c::ROCPROFILER_BUFFER_POLICY_DISCARD),
        Err(Status::INVALID_ARGUMENT)
    );
    for buffer in [discard, lossless] {
        buffer::assign_thread(buffer, callback_thread::create().unwrap()).unwrap();
    }
    // Create as many threads as are allowed, and not one more: the program needs a few of its own.
    let refused = loop {
        match callback_thread::create() {
            Ok(thread) => assert!(thread <= 256),
            Err(Ended::With(status)) => break status,
            Err(Ended::Thrown(thrown)) => panic!("{thrown}"),
        }
    };
    assert_eq!(refused, Status::OUT_OF_RESOURCES);
    assert_eq!(buffer::assign_thread(discard, 256), Ok(()));
    assert_eq!(
        buffer::assign_thread(tiny, 257),
        Err(Status::THREAD_NOT_FOUND)
    );
    for (kind, buffer) in [(1, discard), (2, lossless), (3, tiny)] {
        context::configure_buffer_tracing(context, kind, &[], buffer).unwrap();
    }
    let empty = context::create().unwrap();
    // One without services runs, too, as with AMD's SDK.
    assert_eq!(context::start(empty), Ok(()));
    for (place, handle) in HANDLES
        .iter()
        .zip([context, discard, lossless, tiny, empty])
    {
        place.store(handle, Ordering::SeqCst);
    }
    // No attacher attaches this tool, so what it starts here runs until the end.
    context::start(context).unwrap();
    assert_eq!(registration::is_initialized(), -1);
    // SAFETY: the function has the right type.
    let again = unsafe { registration::force(configure) }.unwrap();
    assert_eq!(again, Err(Status::CONFIGURATION_LOCKED));
    0
}

unsafe extern "C-unwind" fn finalize(_data: *mut c_void) {
    FINALIZED.store(true, Ordering::SeqCst);
}

unsafe extern "C-unwind" fn configure(
    _version: u32,
    _text: *const c_char,
    _priority: u32,
    _id: *mut ClientId,
) -> *mut ConfigureResult {
    assert!(!registration::is_current_client_attachment());
    assert_eq!(
        context::create(),
        Err(Status::CONFIGURATION_LOCKED),
        "only in initialize"
    );
    Box::into_raw(Box::new(ConfigureResult {
        size: size_of::<ConfigureResult>(),
        initialize: Some(initialize),
        finalize: Some(finalize),
        tool_data: std::ptr::null_mut(),
    }))
}

/// Returns `count` HSA calls of a kind.
fn calls(kind: u8, count: usize) -> Vec<u8> {
    let now = clock::now();
    let one = event::Api {
        header: Header {
            kind,
            ..Default::default()
        },
        start: now,
        end: now,
        ..Default::default()
    };
    encode(&one, &[]).repeat(count)
}

fn seen() -> Vec<(u64, usize, u64)> {
    std::mem::take(&mut SEEN.lock().unwrap())
}

/// Flushes on another thread; the answer arrives when the flush has ended.
fn flush_elsewhere(buffer: u64) -> Receiver<Result<(), Status>> {
    let (answer, answered) = channel();
    std::thread::spawn(move || answer.send(buffer::flush(buffer)));
    answered
}

/// Ends the callback that is held, and waits for the flush that waits for it.
fn finish_flush(flush: &Receiver<Result<(), Status>>) {
    let early = flush.recv_timeout(Duration::from_millis(50));
    assert_eq!(
        early,
        Err(RecvTimeoutError::Timeout),
        "it did not wait for the callback"
    );
    SLOW.store(false, Ordering::SeqCst);
    MEETING.wait();
    assert_eq!(flush.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
}

#[test]
fn a_slow_callback_costs_records_or_memory_as_the_tool_chose() {
    // SAFETY: the function has the right type.
    unsafe {
        registration::force(configure).unwrap().unwrap();
        registration::force(configure).unwrap().unwrap();
    }
    let [context, discard, lossless, tiny, empty] = HANDLES
        .each_ref()
        .map(|handle| handle.load(Ordering::SeqCst));
    assert!(context::is_active(context).unwrap() && context::is_active(empty).unwrap());

    // After eight records of 64 bytes there is less room than the largest record needs: the
    // callback is called, and held.
    SLOW.store(true, Ordering::SeqCst);
    buffer::deliver(&calls(kind::HSA_CORE_API, 8)).unwrap();
    MEETING.wait();
    assert_eq!(buffer::destroy(discard), Err(Status::BUFFER_BUSY));
    // Meanwhile ten records fit; the others are dropped and counted.
    buffer::deliver(&calls(kind::HSA_CORE_API, 25)).unwrap();
    finish_flush(&flush_elsewhere(discard));
    assert_eq!(seen(), [(discard, 8, 0), (discard, 10, 15)]);
    assert_eq!(buffer::flush(discard), Ok(()));
    assert!(seen().is_empty(), "an empty buffer has nothing to say");

    // The same for the lossless buffer.
    SLOW.store(true, Ordering::SeqCst);
    buffer::deliver(&calls(kind::HSA_AMD_EXT_API, 8)).unwrap();
    MEETING.wait();
    buffer::deliver(&calls(kind::HSA_AMD_EXT_API, 25)).unwrap();
    finish_flush(&flush_elsewhere(lossless));
    assert_eq!(seen(), [(lossless, 8, 0), (lossless, 25, 0)]);

    // A buffer smaller than a record still gets each record.
    buffer::deliver(&calls(kind::HSA_IMAGE_EXT_API, 3)).unwrap();
    assert_eq!(seen(), [(tiny, 1, 0); 3]);
    buffer::destroy(tiny).unwrap();
    assert_eq!(buffer::destroy(tiny), Err(Status::BUFFER_NOT_FOUND));
    assert_eq!(buffer::flush(tiny), Err(Status::BUFFER_NOT_FOUND));
    assert!(
        !context::wanted().wants(kind::HSA_IMAGE_EXT_API, 0),
        "nobody is left who wants it"
    );

    // A tool that is part of the application cannot be attached or detached by others: it
    // continues.
    assert_eq!(registration::attach(), Err(Status::NOT_AVAILABLE));
    buffer::deliver(&calls(kind::HSA_CORE_API, 2)).unwrap();
    assert_eq!(registration::detach(), Err(Status::NOT_AVAILABLE));
    assert!(context::is_active(context).unwrap());
    assert!(seen().is_empty());

    registration::finalize();
    assert_eq!(seen(), [(discard, 2, 0)]);
    assert!(FINALIZED.load(Ordering::SeqCst) && !context::is_active(context).unwrap());
    assert_eq!(context::start(context), Err(Status::FINALIZED));
    assert_eq!(buffer::flush(discard), Err(Status::FINALIZED));
    // SAFETY: the function has the right type.
    let again = unsafe { registration::force(configure) }.unwrap();
    assert_eq!(again, Err(Status::FINALIZED));
}
