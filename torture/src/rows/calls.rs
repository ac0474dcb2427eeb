//! Rows 3 and 5: threads in blocking system calls, each of which sees whether somebody ended its call.

use crate::cell::{Cell, Make, Run};
use crate::spec::{Spec, Want};

/// Calls that the kernel takes up again when their thread was stopped.
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
/// Calls that end with EINTR when their thread was stopped, whoever did it and however.
const NOTICING: [&str; 6] = [
    "epoll",
    "epoll2",
    "recv_timeo",
    "sigtimedwait",
    "semtimedop",
    "io_uring",
];

/// The cells.
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
        .want(Want::InOr(&["NoneParked"])),
    );
    cells
}
