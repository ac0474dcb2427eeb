//! The tool's library under our SDK: it is found, bound and configured, and each attach wants what its settings say.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_sdk::collector::{self, Collector};
use midair_sdk::status::Status;
use midair_sdk::{context, registration, setting};
use midair_settings::Settings;
use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

static APPLIED: AtomicU32 = AtomicU32::new(0);
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn attach_with(pairs: &[(&str, &str)]) -> Vec<u8> {
    setting::publish(pairs.iter().copied().collect::<Settings>());
    registration::attach().unwrap();
    let wanted = context::wanted();
    assert!(!wanted.delivers(), "everything goes to the spool");
    assert!(
        wanted
            .kinds
            .values()
            .all(|demand| demand.spool && !demand.deliver)
    );
    wanted.kinds.keys().copied().collect()
}

#[test]
fn each_attach_wants_what_its_settings_say() {
    let set = collector::set(Collector {
        apply: || {
            APPLIED.fetch_add(1, Ordering::Relaxed);
        },
        adopt: |_, _, _, _| true,
        note: |text| NOTES.lock().unwrap().push(text.to_owned()),
    });
    assert!(set);
    assert_eq!(registration::attach(), Err(Status::NOT_AVAILABLE));

    let path = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("librocprofiler_sdk_tool.so");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    registration::load_list(&path).unwrap();
    registration::load_list(&path).unwrap();
    assert_eq!(registration::is_initialized(), 1);
    assert!(context::wanted().is_empty());
    assert_eq!(context::create(), Err(Status::CONFIGURATION_LOCKED));

    // Old names work; one setting may speak for several. Which runtimes there are (17) goes with each.
    assert_eq!(attach_with(&[("ROCPROF_HIP_API_TRACE", "1")]), [17, 21, 22]);
    assert!(context::wanted().wants(21, 516));
    registration::detach().unwrap();
    assert!(context::wanted().is_empty());
    assert_eq!(registration::detach(), Err(Status::NOT_AVAILABLE));

    assert_eq!(
        attach_with(&[
            ("ROCPROF_HSA_API_TRACE", "1"),
            ("ROCPROF_HSA_CORE_API_TRACE", "0")
        ]),
        [2, 3, 4, 17]
    );
    registration::detach().unwrap();
    assert_eq!(
        attach_with(&[
            ("ROCPROF_KERNEL_TRACE", "1"),
            ("ROCPROF_MEMORY_COPY_TRACE", "1")
        ]),
        [10, 11, 17]
    );
    assert!(NOTES.lock().unwrap().is_empty());
    registration::detach().unwrap();

    assert_eq!(attach_with(&[("ROCPROF_RCCL_API_TRACE", "1")]), [0_u8; 0]);
    assert_eq!(
        NOTES.lock().unwrap().len(),
        2,
        "{:?}",
        NOTES.lock().unwrap()
    );
    registration::detach().unwrap();

    assert!(APPLIED.load(Ordering::Relaxed) >= 6);
    registration::finalize();
    assert_eq!(
        (registration::is_finalized(), registration::attach()),
        (1, Err(Status::NOT_AVAILABLE))
    );
}
