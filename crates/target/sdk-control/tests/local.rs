//! Sessions without an attacher: which processes may have one. Tests on real runtimes check what
//! they record (tests/e2e).

#![allow(
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    reason = "a test: plain system calls"
)]

use midair_sdk_api::status::Status;
use midair_sdk_control::local;
use midair_settings::Settings;

/// This is a single test, since a process has one session.
#[test]
fn who_may_attach() {
    assert!(!local::is_on());
    assert_eq!(local::detach(), Err(Status::NOT_AVAILABLE));
    // No tool is named: the thread starts and ends, and the process is free again.
    for _ in 0..2 {
        assert_eq!(local::attach(Settings::new()), Err(Status::NOT_AVAILABLE));
        assert!(!local::is_on());
    }
    assert_eq!(local::detach(), Err(Status::NOT_AVAILABLE));
    // Without tools, there is nothing to launch.
    local::launch();
    assert!(!local::is_on());

    // Another copy of this library has a session. Both see this as a page at a midair address
    // ("midair").
    let page = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(0x6d69_6461_6000),
            4096,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    assert_eq!(
        local::attach(Settings::new()),
        Err(Status::CONFIGURATION_LOCKED)
    );
    unsafe { libc::munmap(page, 4096) };
    assert_eq!(local::attach(Settings::new()), Err(Status::NOT_AVAILABLE));

    // A forked child has no session and gets none; none of our code hangs in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = local::attach(Settings::new()) == Err(Status::NOT_AVAILABLE)
            && local::detach() == Err(Status::NOT_AVAILABLE)
            && !local::is_on();
        local::leave(false);
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
