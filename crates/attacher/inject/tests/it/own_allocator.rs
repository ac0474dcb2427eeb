//! Programs that bring their own allocator. A thread inside it is not borrowed, whether its
//! functions have names or not, and code of its file is not taken for safe.

use crate::common::pid_of;
use std::process::Command;
use std::time::Duration;

use crate::common::{Snapshot, Target, compiled_with, until};
use midair_inject::{EnterError, Library, Options, enter, inspect};
use midair_procinfo::syscall::Activity;

fn start(kind: &str, flags: &[&str]) -> Target {
    let mut command = Command::new(compiled_with("allocator", flags));
    command.arg(kind);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target
}

/// Returns the refusal, and checks that the process is as before.
fn refused(target: Target) -> String {
    let pid = pid_of(&target);
    let quick = Options {
        find: Duration::from_millis(400),
        looks: 12,
        ..Options::default()
    };
    let before = Snapshot::take(pid).unwrap();
    let error = enter(&inspect(pid).unwrap(), &Library::Nothing, &quick).unwrap_err();
    assert!(matches!(error, EnterError::NoneParked { .. }), "{error}");
    let diff = before.diff(&Snapshot::take(pid).unwrap());
    assert!(diff.is_empty(), "{diff}");
    target.signal(15).unwrap();
    crate::common::end(target);
    error.to_string()
}

fn asleep(kind: &str, flags: &[&str]) -> Target {
    let target = start(kind, flags);
    let pid = pid_of(&target);
    until("its sleep inside malloc", || {
        let doing = midair_procinfo::task::activity(pid)?;
        let naps = [libc::SYS_nanosleep, libc::SYS_clock_nanosleep];
        Ok(matches!(doing, Activity::Syscall(call)
            if i64::try_from(call.number).is_ok_and(|number| naps.contains(&number))))
    })
    .unwrap();
    target
}

#[test]
fn a_sleep_in_a_helper_that_malloc_jumped_to() {
    let said = refused(asleep("naps", &["-O2"]));
    assert!(
        said.contains("inside the memory allocator (malloc)"),
        "{said}"
    );
}

#[test]
fn the_same_without_names() {
    // On a busy machine the thread can be on its way to the next nap at each look. Then that is why
    // it was not used.
    let said = (0..10)
        .map(|_| refused(asleep("naps", &["-O2", "-s"])))
        .find(|said| !said.ends_with("is running"))
        .unwrap();
    assert!(
        said.contains("perhaps inside the program's own allocator")
            || said.contains("inside the memory allocator (malloc)"),
        "{said}"
    );
}

#[test]
fn code_beside_an_allocator_is_not_taken_for_safe() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    let said = refused(start("spins", &["-O2"]));
    assert!(
        said.contains("in a program that has an allocator of its own"),
        "{said}"
    );
    let said = refused(start("spins", &["-O2", "-s"]));
    assert!(said.contains("allocator"), "{said}");
}
