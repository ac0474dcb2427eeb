//! Programs in which no thread parks. Either a running thread is borrowed at a safe point, or none
//! is and the error says where each one was.

use crate::common::pid_of;
use std::process::Command;
use std::time::Duration;

use crate::common::{Snapshot, Target, attacher, compiled_with, run, until};
use midair_inject::{EnterError, EntryPath, Library, Options, enter, inspect};
use midair_tests::snapshot::What;

fn options() -> Options {
    Options {
        find: Duration::from_secs(30),
        // On a machine that others use, too, examining a thread takes long.
        looked: Duration::from_secs(20),
        looks: 4000,
        ..Options::default()
    }
}

fn start(kind: &str, threads: u32, flags: &[&str]) -> Target {
    started(&[kind, &threads.to_string()], flags)
}

fn started(words: &[&str], flags: &[&str]) -> Target {
    let mut command = Command::new(compiled_with("busy", flags));
    command.args(words);
    let mut target = Target::spawn(command).unwrap();
    target.expect("ready").unwrap();
    target
}

fn end(target: Target) {
    target.signal(15).unwrap();
    crate::common::end(target);
}

/// Enters `cycles` times at a safe point, or by a thread that happened to park. Afterwards the
/// process is as before.
fn enters(kind: &str, threads: u32, flags: &[&str], cycles: u32) {
    let target = start(kind, threads, flags);
    let pid = pid_of(&target);
    // When a process makes its first thread, the C library installs a handler for a signal of its
    // own and keeps it.
    let first = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
    first.withdraw(&options()).unwrap();
    let before = Snapshot::take(pid).unwrap();
    let mut by_safe_point = 0;
    for cycle in 0..cycles {
        let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
        if cycle == 0 {
            eprintln!(
                "{kind} {threads} {flags:?}: {} ({}) {:?}",
                entered.via.name, entered.via.doing, entered.times
            );
        }
        by_safe_point += u32::from(entered.via.path == EntryPath::SafePoint);
        assert_eq!(Snapshot::take(pid).unwrap().tracer, 0);
        entered.withdraw(&options()).unwrap();
    }
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    end(target);
    assert!(by_safe_point > 0, "none of {cycles} was by a safe point");
}

#[test]
fn threads_that_compute() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    enters("compute", 1, &[], 10);
    enters("compute", 8, &[], 5);
}

#[test]
fn a_stripped_program_that_computes() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    enters("compute", 2, &["-s"], 5);
}

#[test]
fn threads_that_allocate_without_end() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    enters("malloc", 1, &[], 10);
    enters("malloc", 8, &["-s"], 5);
}

#[test]
fn threads_that_only_make_system_calls() {
    if !midair_tests::kernel::borrows_running_threads().unwrap() {
        return;
    }
    enters("calls", 2, &[], 5);
}

#[test]
fn a_function_that_the_c_library_calls_back() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    enters("sort", 1, &[], 5);
}

/// Nearly all of the time the program is inside the C library, whose code has no names there.
#[test]
fn functions_of_the_c_library_that_copy_and_fill() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    for flags in [&[][..], &["-s"], &["-fno-plt"], &["-Wl,-z,lazy"]] {
        enters("copy", 1, flags, 3);
        let target = start("fill", 1, flags);
        let pid = pid_of(&target);
        let mut by = Vec::new();
        for _ in 0..10 {
            let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
            by.push(entered.via.doing.clone());
            entered.withdraw(&options()).unwrap();
        }
        end(target);
        let met = |doing: &String| doing.starts_with("in memset, called by ");
        assert!(by.iter().any(met), "{flags:?}: {by:?}");
    }
}

/// Where no running thread is borrowed, it takes luck: a thread must be in the same nap when it is
/// judged and when it is stopped.
#[test]
fn threads_that_nap_for_microseconds() {
    if !midair_tests::kernel::borrows_running_threads().unwrap() {
        return;
    }
    let target = start("naps", 2, &[]);
    let pid = pid_of(&target);
    for _ in 0..5 {
        let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
        entered.withdraw(&options()).unwrap();
    }
    end(target);
}

/// To examine all of them takes longer than any of them sleeps.
#[test]
fn one_of_many_threads_that_doze_is_met_within_one_sleep() {
    // An emulated processor is so many times slower. Otherwise that they wake up takes all of its time.
    let doze = 10 * midair_tests::kernel::times_slower();
    let target = started(&["dozes", "650", &doze.to_string()], &[]);
    let pid = pid_of(&target);
    let only_parked = Options {
        looks: 0,
        ..Options::default()
    };
    for _ in 0..3 {
        let entered = enter(&inspect(pid).unwrap(), &Library::Nothing, &only_parked).unwrap();
        eprintln!("{} {:?}", entered.via.doing, entered.times);
        assert!(matches!(entered.via.path, EntryPath::Parked(_)));
        entered.withdraw(&options()).unwrap();
    }
    end(target);
}

#[test]
fn the_attacher_may_die_after_every_operation() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    let target = start("compute", 1, &[]);
    let pid = pid_of(&target);
    let first = enter(&inspect(pid).unwrap(), &Library::Nothing, &options()).unwrap();
    first.withdraw(&options()).unwrap();
    let before = Snapshot::take(pid).unwrap();
    let mut deaths = 0;
    for operations in 1..200 {
        let number = operations.to_string();
        // The target computes for as long as the borrowed thread waits for a dead attacher.
        let words = [
            "--boot-ms",
            "150",
            "--find-ms",
            "30000",
            "--die-after",
            &number,
        ];
        let exit = run(attacher(pid, &words), crate::common::PATIENCE).unwrap();
        if exit.signal() != Some(9) {
            exit.success().unwrap();
            break;
        }
        deaths += 1;
        until("the borrowed thread's return", || {
            let now = Snapshot::take(pid)?;
            Ok(now.tracer == 0
                && now.named("midair-worker").next().is_none()
                && before
                    .diff(&now)
                    .without(|change| change.what == What::Map)
                    .is_empty())
        })
        .unwrap();
    }
    assert!(deaths >= 20, "only {deaths} operations were counted");
    end(target);
}

#[test]
fn none_where_all_is_inside_the_c_library_says_so() {
    if !midair_tests::kernel::has_safe_points().unwrap() {
        return;
    }
    let target = start("format", 1, &[]);
    let pid = pid_of(&target);
    let few = Options {
        find: Duration::from_millis(500),
        looks: 5,
        ..Options::default()
    };
    let mut before = Snapshot::take(pid).unwrap();
    match enter(&inspect(pid).unwrap(), &Library::Nothing, &few) {
        // The thread was met in the few instructions between two calls.
        Ok(entered) => {
            entered.withdraw(&options()).unwrap();
            // This is the signal that the C library takes when it makes its first thread.
            before.caught |= 1 << 32;
        }
        Err(error) => {
            let said = error.to_string();
            assert!(matches!(error, EnterError::NoneParked { .. }), "{said}");
            assert!(
                said.contains("is running; inspected")
                    && said.contains("times inside the C library"),
                "{said}"
            );
        }
    }
    let diff = before.diff(&Snapshot::take(pid).unwrap()).without_heap();
    assert!(diff.is_empty(), "{diff}");
    end(target);
}
