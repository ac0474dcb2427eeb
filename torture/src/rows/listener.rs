//! Programs with our register library, whose listener lets us in where no other process can trace
//! at the moment. The way in is its socket, and nothing is stopped. An attacher that may not trace
//! is not let in.

use super::races::{GDB, STRACE};
use crate::cell::Cell;
use crate::kit::{Kit, installed};
use crate::spec::{Spec, Want};
use midair_tests::stage::stage;

const NO_PTRACE: &[&str] = &[
    "setpriv",
    "--bounding-set=-sys_ptrace",
    "--inh-caps=-sys_ptrace",
];

/// The refusals that are right for a target under a filter.
const FILTERED: &[&str] = &["Filtered", "ListenerUnusable", "Boot"];

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let on = |row, name: &str, leader: &'static str, words: &'static [&'static str]| {
        Cell::on(row, format!("{name}; our listener"), move |_| {
            listening(leader, words)
        })
        .ours_only()
    };
    let traced = |tracer: &'static [&'static str]| {
        Cell::on(
            14,
            format!("under {}; our listener", tracer[0]),
            move |_| {
                installed(tracer[0]).ok_or(format!("{} is not installed", tracer[0]))?;
                Ok(listening("malloc", &["parked"])?.forked_by(tracer).killed())
            },
        )
        // Under a tracer its threads stop at each signal and call. So our worker thread of the
        // cycle before may still be on its way out.
        .want(Want::InOr(&["Busy"]))
        .ours_only()
    };
    vec![
        on(
            1,
            "8 threads in malloc and free, glibc; none parked",
            "malloc",
            &["malloc*7"],
        ),
        // These filters apply to all threads, also to the listener.
        on(
            6,
            "no_new_privs, and a filter of a call that nobody makes",
            "spin",
            &["registers", "doze", "+seccomp:harmless"],
        ),
        on(
            6,
            "a filter that refuses sockets",
            "spin",
            &["registers", "doze", "+seccomp:errno"],
        )
        .want(Want::InOr(FILTERED)),
        on(
            6,
            "a filter that kills at mmap",
            "spin",
            &["registers", "doze", "+seccomp:kill"],
        )
        .want(Want::InOr(FILTERED)),
        // No attacher may trace such a process, and its listener asks for the same right.
        Cell::under(
            7,
            "not dumpable; attached by root without CAP_SYS_PTRACE; our listener",
            NO_PTRACE,
            |_: &Kit| Ok(listening("malloc", &["parked", "+nodump"])?.under(NO_PTRACE)),
        )
        .want(Want::Refused(&["NotPermitted"])),
        traced(GDB),
        traced(STRACE),
    ]
}

/// Returns a midair program that registers a runtime and so gets a listener. It starts its work
/// when the listener listens, also where a tracer slows its start.
fn listening(leader: &str, words: &[&str]) -> Result<Spec, String> {
    let ours = stage().map_err(|error| error.to_string())?.join("lib");
    Ok(Spec::ours(leader, words)
        .word("+amd:socket")
        .env("LD_LIBRARY_PATH", ours.display().to_string())
        .env("ROCP_TOOL_ATTACH", "1"))
}
