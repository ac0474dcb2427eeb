//! Rows 3 and 5: threads in blocking system calls. Each notices if its call ends early.

use crate::cell::{Cell, Make, Run};
use crate::spec::{Spec, Want};
use midair_tests::Result;
use midair_tests::target::until;

/// Calls that the kernel restarts when their thread was stopped.
const RESTARTED: [&str; 22] = [
    "nanosleep",
    "clock_nanosleep",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "futex_timed",
    "futex",
    "cond",
    "sem",
    "read",
    "write",
    "timerfd",
    "inotify",
    "recv",
    "accept",
    "wait4",
    "waitid",
    "flock",
    "setlkw",
    "pause",
    "sigsuspend",
];
/// Calls that end with EINTR when their thread was stopped, whoever stopped it and in whatever way.
const NOTICING: [&str; 6] = [
    "epoll",
    "epoll2",
    "recv_timeo",
    "sigtimedwait",
    "semtimedop",
    "io_uring",
];

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    cells.push(Cell::on(
        3,
        "one thread in each of 29 blocking calls",
        |_| {
            let words = [&RESTARTED[..], &NOTICING, &["msgrcv", "feed", "+ipc"]].concat();
            Ok(Spec::ours("stdin", &words))
        },
    ));
    let alone = RESTARTED
        .iter()
        .map(|&call| -> Make { Box::new(move |_| Ok(Spec::ours(call, &[call, "feed"]))) });
    cells.push(Cell {
        run: Run::Targets(alone.collect()),
        ..Cell::on(
            3,
            "two threads in one of these calls, each of 22 in turn",
            |_| Err(String::new()),
        )
        .ours_only()
    });
    cells.push(
        Cell::on(
            3,
            "none but calls that end when their thread is stopped",
            |_| Ok(Spec::ours("epoll", &[&NOTICING[..], &["+ipc"]].concat()).noticing()),
        )
        .want(Want::InOr(&["NoneParked"])),
    );
    cells.push(Cell::on(
        3,
        "io_uring with a submitting thread of the kernel's (SQPOLL), and a thread that waits on it; one parked",
        |_| match io_uring() {
            true => Ok(Spec::ours("stdin", &["sqpoll", "parked"]).then(has_its_submitter)),
            false => Err("this kernel lets nobody have io_uring".to_owned()),
        },
    ));
    cells.push(Cell::on(
        3,
        "a thread in an uninterruptible wait (FUSE, 1 s at a time); one parked",
        |kit| {
            if !std::path::Path::new("/dev/fuse").exists() {
                return Err("there is no /dev/fuse".to_owned());
            }
            let disk = format!("+disk:{}", kit.fresh("disk").display());
            Ok(Spec::ours("stdin", &["disk", "parked", &disk]).then(waits_for_the_disk))
        },
    ));
    cells.push(Cell::on(
        5,
        "vfork on 2 threads, its child lives 100 ms; one parked",
        |_| Ok(Spec::ours("vfork", &["vfork", "parked"])),
    ));
    cells.push(
        Cell::on(
            5,
            "vfork on the only thread, its child lives 100 ms",
            |_| Ok(Spec::ours("vfork", &[])),
        )
        .want(Want::InOr(&["NoneParked"]))
        .slow(),
    );
    cells
}

/// Returns whether this kernel lets a process have an io_uring.
fn io_uring() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    disabled.is_ok_and(|text| text.trim() == "0")
}

/// Waits for a thread whose line in /proc contains this text.
fn has_thread(pid: i32, line: &str) -> Result<()> {
    until(line, || {
        for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
            if std::fs::read_to_string(task?.path().join("stat"))?.contains(line) {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Waits until the kernel's thread has its own name. At first it has the name of the thread that
/// made the ring.
fn has_its_submitter(pid: i32) -> Result<()> {
    has_thread(pid, "(iou-sqp-")
}

/// Waits until a thread is in state D.
fn waits_for_the_disk(pid: i32) -> Result<()> {
    has_thread(pid, "(disk) D ")
}
