//! The tool's library under our SDK: it is found, bound and configured, and each attach records what its
//! settings ask for.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_domain::kind;
use midair_sdk_api::status::Status;
use midair_sdk_api::{changes, context, notes, registration, setting};
use midair_sdk_control::capi;
use midair_settings::Settings;
use std::ffi::CString;

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
    // As AMD numbers them.
    let number = |kind: &u8| midair_domain::domain(*kind).unwrap().number.unwrap();
    let mut numbers: Vec<u8> = wanted.kinds.keys().map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn each_attach_wants_what_its_settings_say() {
    // In the role of a session's worker that takes notes.
    changes::become_worker();
    notes::open(true);
    assert_eq!(registration::attach(), Err(Status::NOT_AVAILABLE));

    let path = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("librocprofiler_sdk_tool.so");
    let path = CString::new(path.to_str().unwrap()).unwrap();
    registration::load_list(&path, capi::table()).unwrap();
    registration::load_list(&path, capi::table()).unwrap();
    assert_eq!(registration::is_initialized(), 1);
    assert!(context::wanted().is_empty());
    assert_eq!(context::create(), Err(Status::CONFIGURATION_LOCKED));

    // Old names work, and one setting may stand for several. Each context also records which runtimes there
    // are (17).
    assert_eq!(attach_with(&[("ROCPROF_HIP_API_TRACE", "1")]), [17, 21, 22]);
    assert!(context::wanted().wants(kind::HIP_RUNTIME_API_EXT, 516));
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
    assert!(notes::take().is_empty());
    registration::detach().unwrap();

    assert_eq!(attach_with(&[("ROCPROF_OMPT_TRACE", "1")]), [0_u8; 0]);
    let told = notes::take();
    assert_eq!(told.len(), 2, "{told:?}");
    registration::detach().unwrap();

    assert!(changes::requested() >= 6);
    registration::finalize();
    assert_eq!(
        (registration::is_finalized(), registration::attach()),
        (1, Err(Status::NOT_AVAILABLE))
    );
}
