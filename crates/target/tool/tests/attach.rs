//! The tool under a fake SDK: which contexts it creates, starts and stops for which settings. This
//! is a single test, since a tool is bound once per process.

#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    reason = "a test: one unsafe block with one reason"
)]

use midair_abi::private::pauses::{BURSTS, COUNTED, HONOURED, PERIODS, SELECTED};
use midair_abi::private::{ChoosesKernel, SDK_TABLE_VERSION, SdkTable};
use midair_abi::registration::{ClientId, ConfigureAttachResult, ConfigureResult};
use midair_tool::capi::{midair_tool_bind, rocprofiler_configure, rocprofiler_configure_attach};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Mutex;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Fake {
    contexts: BTreeMap<u64, Vec<c_int>>,
    spool: BTreeSet<u64>,
    running: BTreeSet<u64>,
    settings: BTreeMap<CString, CString>,
    notes: Vec<String>,
    pauses: Vec<u32>,
    periods: Vec<u32>,
    choice: Option<(ChoosesKernel, Vec<u64>)>,
    refuse_start: Option<c_int>,
}
static FAKE: Mutex<Option<Fake>> = Mutex::new(None);

fn with<R>(body: impl FnOnce(&mut Fake) -> R) -> R {
    body(FAKE.lock().unwrap().get_or_insert_default())
}

unsafe extern "C" fn create(context: *mut u64) -> c_int {
    let handle = with(|fake| {
        let handle = fake.contexts.len() as u64 + 1;
        fake.contexts.insert(handle, Vec::new());
        handle
    });
    // SAFETY: the pointer is to the tool's variable.
    unsafe { *context = handle };
    0
}
unsafe extern "C" fn start(context: u64) -> c_int {
    with(|fake| {
        if fake
            .refuse_start
            .is_some_and(|kind| fake.contexts[&context].contains(&kind))
        {
            return 9;
        }
        fake.running.insert(context);
        0
    })
}
unsafe extern "C" fn stop(context: u64) -> c_int {
    with(|fake| if fake.running.remove(&context) { 0 } else { 11 })
}
unsafe extern "C" fn is_active(context: u64, active: *mut c_int) -> c_int {
    // SAFETY: the pointer is to the tool's variable.
    unsafe { *active = c_int::from(with(|fake| fake.running.contains(&context))) };
    0
}
unsafe extern "C" fn configure(
    context: u64,
    kind: c_int,
    operations: *const c_int,
    count: usize,
    buffer: u64,
) -> c_int {
    assert!(operations.is_null() && count == 0 && buffer == 0);
    with(|fake| fake.contexts.get_mut(&context).unwrap().push(kind));
    0
}
unsafe extern "C" fn use_spool(context: u64) -> c_int {
    with(|fake| fake.spool.insert(context));
    0
}
unsafe extern "C" fn setting(name: *const c_char) -> *const c_char {
    // SAFETY: the tool passes C strings.
    let name = unsafe { CStr::from_ptr(name) };
    with(|fake| {
        fake.settings
            .get(name)
            .map_or(std::ptr::null(), |value| value.as_ptr())
    })
}
unsafe extern "C" fn note(text: *const c_char) {
    // SAFETY: the tool passes C strings.
    let text = unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned();
    with(|fake| fake.notes.push(text));
}

unsafe extern "C" fn engine() -> c_int {
    0
}
unsafe extern "C" fn no_spool(_base: *mut u8, _len: usize) -> c_int {
    unreachable!("an attacher reads the spool")
}

unsafe extern "C" fn no_counters(_plan: *const u8, _len: usize, _interval: u64) -> c_int {
    unreachable!("the process was not started with the tool")
}

unsafe extern "C" fn choose_kernels(
    takes: Option<ChoosesKernel>,
    ranges: *const u64,
    words: usize,
) {
    // SAFETY: the tool passes this many words.
    let ranges = (words > 0).then(|| unsafe { std::slice::from_raw_parts(ranges, words) });
    let ranges = ranges.unwrap_or_default().to_vec();
    with(|fake| fake.choice = takes.map(|takes| (takes, ranges)));
}

unsafe extern "C" fn set_pauses(bits: u32) {
    with(|fake| {
        // The pauses are set before anything is recorded.
        assert!(bits == 0 || fake.running.is_empty());
        fake.pauses.push(bits);
    });
}

unsafe extern "C" fn set_period(open: u32) {
    with(|fake| fake.periods.push(open));
}

static TABLE: SdkTable = SdkTable {
    size: size_of::<SdkTable>(),
    version: SDK_TABLE_VERSION,
    sdk_version: 10201,
    create_context: create,
    start_context: start,
    stop_context: stop,
    context_is_active: is_active,
    configure_buffer_tracing_service: configure,
    use_spool,
    get_setting: setting,
    note,
    session_kind: engine,
    give_spool: no_spool,
    set_pauses,
    count_every: no_counters,
    choose_kernels,
    set_period,
};
static OTHER_BUILD: SdkTable = SdkTable {
    version: SDK_TABLE_VERSION + 1,
    ..TABLE
};

/// Sets the settings of the next attach.
fn settings(pairs: &[(&str, &str)]) {
    with(|fake| {
        fake.notes.clear();
        let owned = |text: &str| CString::new(text).unwrap();
        fake.settings = pairs
            .iter()
            .map(|(name, value)| (owned(name), owned(value)))
            .collect();
    });
}

/// Returns the domains that are being collected.
fn running() -> Vec<c_int> {
    with(|fake| {
        fake.running
            .iter()
            .map(|context| fake.contexts[context][0])
            .collect()
    })
}

#[test]
fn each_attach_collects_what_its_settings_ask_for() {
    let mut id = ClientId {
        size: size_of::<ClientId>(),
        name: std::ptr::null(),
        handle: 1,
    };
    // SAFETY (whole test): the tool's functions are called with tables and data that live forever.
    unsafe {
        // If it is unbound, or offered a table of another build, it declines and touches nothing.
        assert_eq!(midair_tool_bind(std::ptr::null()), -1);
        assert_eq!(midair_tool_bind(&OTHER_BUILD), -1);
        assert!(rocprofiler_configure(10201, c"1.2.1".as_ptr(), 0, &raw mut id).is_null());
        assert!(rocprofiler_configure_attach(10201, c"1.2.1".as_ptr(), 0, &raw mut id).is_null());

        assert_eq!(midair_tool_bind(&TABLE), 0);
        let result: ConfigureResult =
            *rocprofiler_configure(10201, c"1.2.1".as_ptr(), 0, &raw mut id);
        let attach: ConfigureAttachResult =
            *rocprofiler_configure_attach(10201, c"1.2.1".as_ptr(), 0, &raw mut id);
        assert_eq!(CStr::from_ptr(id.name), c"midair");

        assert_eq!(result.initialize.unwrap()(None, result.tool_data), 0);
        with(|fake| {
            assert_eq!(
                fake.contexts
                    .values()
                    .map(|kinds| kinds[0])
                    .collect::<Vec<_>>(),
                [
                    1, 2, 3, 4, 8, 9, 10, 11, 12, 16, 21, 22, 32, 14, 23, 19, 33, 38, 29, 30, 31,
                    28, 27
                ]
            );
            assert_eq!(fake.spool.len(), 23);
            // Each context also records which runtimes are loaded.
            assert!(fake.contexts.values().all(|kinds| kinds[1..] == [17]));
        });
        let on = |attach: &ConfigureAttachResult| {
            attach.tool_attach.unwrap()(None, std::ptr::null_mut(), 0, attach.tool_data)
        };
        let off = |attach: &ConfigureAttachResult| attach.tool_detach.unwrap()(attach.tool_data);

        settings(&[
            ("ROCPROF_HIP_RUNTIME_API_TRACE", "1"),
            ("ROCPROF_KERNEL_TRACE", "yes"),
            ("ROCPROF_MEMORY_COPY_TRACE", "off"),
        ]);
        assert_eq!(on(&attach), 0);
        assert_eq!(running(), [11, 21]);
        assert!(with(|fake| fake.notes.is_empty()));

        // A launch of a graph is reported with its kernels.
        settings(&[("ROCPROF_HIP_GRAPH_TRACE", "1")]);
        assert_eq!(on(&attach), 0);
        assert_eq!(running(), [11, 33]);

        // So is an event with its barrier.
        settings(&[("ROCPROF_HIP_EVENT_TRACE", "1")]);
        assert_eq!(on(&attach), 0);
        assert_eq!(running(), [11, 38]);

        // Another attach without a detach in between stops what is no longer asked for.
        settings(&[
            ("ROCPROF_HSA_CORE_API_TRACE", "True"),
            ("ROCPROF_KERNEL_TRACE", "0"),
        ]);
        assert_eq!(on(&attach), 0);
        assert_eq!(running(), [1]);
        off(&attach);
        assert!(running().is_empty());

        // Nothing asked for, an empty value, or something that is not built: the tool attaches and
        // reports this.
        settings(&[("ROCPROF_KERNEL_TRACE", ""), ("ROCPROF_OMPT_TRACE", "1")]);
        assert_eq!(on(&attach), 0);
        assert!(running().is_empty());
        let notes = with(|fake| fake.notes.join("\n"));
        for words in [
            "ROCPROF_KERNEL_TRACE is empty",
            "ROCPROF_OMPT_TRACE has no effect: OpenMP events require a started program",
            "no setting enables",
        ] {
            assert!(notes.contains(words), "{words}: {notes}");
        }

        // If the SDK refuses to start one, none is left running.
        settings(&[
            ("ROCPROF_HIP_RUNTIME_API_TRACE", "1"),
            ("ROCPROF_KERNEL_TRACE", "1"),
        ]);
        with(|fake| fake.refuse_start = Some(11));
        assert_eq!(on(&attach), 9);
        assert!(running().is_empty());
        with(|fake| fake.refuse_start = None);

        // Pauses are honoured with markers, and where only regions are asked for.
        for (setting, bits) in [
            ("ROCPROF_MARKER_API_TRACE", HONOURED),
            ("ROCPROF_SELECTED_REGIONS", HONOURED | SELECTED),
            ("ROCPROF_SELECTED_REGIONS_REF_COUNT", HONOURED | COUNTED),
            ("ROCPROF_HSA_CORE_API_TRACE", 0),
        ] {
            settings(&[("ROCPROF_KERNEL_TRACE", "1"), (setting, "1")]);
            with(|fake| fake.pauses.clear());
            assert_eq!(on(&attach), 0);
            off(&attach);
            assert_eq!(with(|fake| fake.pauses.clone()), [bits, 0], "{setting}");
            assert!(with(|fake| fake.notes.is_empty()), "{setting}");
        }

        // In bursts, if that is asked for and nothing is counted.
        for (percent, bits) in [("2", BURSTS), ("100", 0), ("x", 0)] {
            settings(&[
                ("ROCPROF_KERNEL_TRACE", "1"),
                ("MIDAIR_MAX_OVERHEAD", percent),
            ]);
            with(|fake| fake.pauses.clear());
            assert_eq!(on(&attach), 0);
            off(&attach);
            assert_eq!(with(|fake| fake.pauses.clone()), [bits, 0], "{percent}");
        }
        with(|fake| fake.notes.clear());

        // Collection periods start with the recording, and end with it at the latest.
        for (periods, calls) in [("0:1:2", vec![1, 0, 1, 0]), ("3600000000000:1:1", vec![])] {
            settings(&[
                ("ROCPROF_KERNEL_TRACE", "1"),
                ("ROCPROF_COLLECTION_PERIOD", periods),
            ]);
            with(|fake| (fake.pauses.clear(), fake.periods.clear()));
            assert_eq!(on(&attach), 0);
            let limit = Instant::now() + Duration::from_secs(60);
            while with(|fake| fake.periods.len()) < calls.len() {
                assert!(Instant::now() < limit, "{periods}");
                std::thread::sleep(Duration::from_millis(1));
            }
            off(&attach);
            assert_eq!(with(|fake| fake.pauses.clone()), [PERIODS, 0]);
            assert_eq!(with(|fake| fake.periods.clone()), calls, "{periods}");
            assert!(with(|fake| fake.notes.is_empty()));
        }

        settings(&[("ROCPROF_KERNEL_TRACE", "1")]);
        assert_eq!(on(&attach), 0);
        result.finalize.unwrap()(result.tool_data);
        assert!(running().is_empty());
    }
}
