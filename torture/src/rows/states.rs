//! Rows 4, 6, 7, 18 and 19: processes in a state that other attach methods do not expect.

use crate::cell::Cell;
use crate::spec::{Spec, Want};
use midair_tests::Result;
use midair_tests::kernel::linux_from;

/// A command that becomes another user, who need not have a name.
const USER: [&str; 4] = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"];
/// The refusals that are right for a target under a filter: we have seen the filter, or it has
/// answered a midair call.
const FILTERED: &[&str] = &[
    "Seccomp",
    "SystemCall",
    "ThreadRefused",
    "Boot",
    "Filtered",
    "FilterUnread",
];

fn send(pid: i32, signal: i32) -> Result<()> {
    // SAFETY: kill takes numbers only. The process is a midair child that is not reaped yet.
    match unsafe { libc::kill(pid, signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

/// Returns the cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = stopped();
    cells.extend(filters());
    cells.extend(users());
    cells.extend(signals());
    for leader in ["a parked thread", "threads in malloc and free"] {
        let busy = leader != "a parked thread";
        cells.push(
            Cell::on(
                19,
                format!("the first thread has ended; {leader}"),
                move |_| {
                    let words: &[&str] = if busy {
                        &["malloc*3", "parked"]
                    } else {
                        &["parked"]
                    };
                    Ok(Spec::ours("zombie", words))
                },
            )
            // Older kernels give out no descriptor of a process whose first thread has ended.
            .want(match linux_from(6, 9) {
                true => Want::In,
                false => Want::Refused(&["LeaderEnded"]),
            }),
        );
    }
    cells
}

/// A function that does something to a process.
type Deed = fn(i32) -> Result<()>;

fn stopped() -> Vec<Cell> {
    const SIGNALS: [(&str, Deed); 3] = [
        ("SIGSTOP", |pid| send(pid, libc::SIGSTOP)),
        ("SIGTSTP", |pid| send(pid, libc::SIGTSTP)),
        ("SIGTTIN", |pid| send(pid, libc::SIGTTIN)),
    ];
    let cells = SIGNALS.map(|(name, stop)| {
        Cell::on(4, format!("stopped by {name}"), move |_| {
            Ok(Spec::ours("malloc", &["parked", "nanosleep"]).stopped(stop))
        })
        .want(Want::InOr(&["Stopped"]))
    });
    cells.into()
}

fn filters() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (kind, words, want) in [
        (
            "harmless",
            "no_new_privs, and a filter of a call that nobody makes",
            Want::In,
        ),
        ("kill", "a filter that kills at mmap", Want::InOr(FILTERED)),
        (
            "errno",
            "a filter that refuses sockets",
            Want::InOr(FILTERED),
        ),
        (
            "clone",
            "a filter that refuses new threads",
            Want::InOr(FILTERED),
        ),
        (
            "trap",
            "a filter that sends SIGSYS for sockets",
            Want::InOr(FILTERED),
        ),
    ] {
        let option = format!("+seccomp:{kind}");
        cells.push(
            Cell::on(6, words, move |_| {
                // Once it runs, its own work makes none of the calls that the filter is about.
                Ok(Spec::ours(
                    "spin",
                    &["registers", "parked", "doze", &option],
                ))
            })
            .want(want)
            .ours_only(),
        );
    }
    cells.push(
        Cell::on(
            6,
            "a filter that asks another process about sockets, which never answers",
            // Only its one thread has this filter, so it must have no other threads.
            |_| Ok(Spec::ours("stdin", &["+seccomp:notify"])),
        )
        .want(Want::Refused(FILTERED))
        .ours_only(),
    );
    cells.push(
        Cell::on(
            6,
            "its only thread has its calls dispatched to itself",
            // Other processors' kernels have no such dispatch.
            |_| match cfg!(target_arch = "x86_64") && linux_from(5, 11) {
                true => Ok(Spec::ours("stdin", &["+dispatch"])),
                false => Err("this kernel dispatches no calls".into()),
            },
        )
        .want(Want::InOr(&["Dispatches"]))
        .ours_only(),
    );
    cells.push(
        Cell::on(6, "the first thread in strict mode", |_| {
            Ok(Spec::ours("stdin", &["parked", "+seccomp:strict"]).killed())
        })
        .want(Want::Refused(&["Seccomp"]))
        .ours_only(),
    );
    cells
}

fn users() -> Vec<Cell> {
    const NOT: Want = Want::Refused(&["NotPermitted"]);
    let plain =
        |words: &'static [&'static str]| move |_: &crate::kit::Kit| Ok(Spec::ours("malloc", words));
    let users = |words: &'static [&'static str]| {
        move |_: &crate::kit::Kit| Ok(Spec::ours("malloc", words).under(&USER))
    };
    vec![
        Cell::on(
            7,
            "not dumpable; attached by root",
            plain(&["parked", "+nodump"]),
        ),
        Cell::on(7, "another user's; attached by root", users(&["parked"])),
        Cell::on(
            7,
            "another user's, not dumpable; attached by root",
            users(&["parked", "+nodump"]),
        ),
        Cell::under(
            7,
            "root's; attached by another user",
            &USER,
            plain(&["parked"]),
        )
        .want(NOT),
        Cell::under(
            7,
            "another user's; attached by the same",
            &USER,
            users(&["parked"]),
        ),
        Cell::under(
            7,
            "another user's, not dumpable; attached by the same",
            &USER,
            users(&["parked", "+nodump"]),
        )
        .want(NOT),
        Cell::under(
            7,
            "root's with all capabilities; attached by root without CAP_SYS_PTRACE",
            &[
                "setpriv",
                "--bounding-set=-sys_ptrace",
                "--inh-caps=-sys_ptrace",
            ],
            plain(&["parked"]),
        )
        .want(NOT),
        Cell::on(
            7,
            "under Yama, AppArmor or SELinux",
            |_| match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
                Ok(_) => Err("the rules of Yama are not driven here".to_owned()),
                Err(_) => Err("this kernel has none of them".to_owned()),
            },
        )
        .ours_only(),
    ]
}

fn signals() -> Vec<Cell> {
    let cell = |name: &str, words: &'static [&'static str]| {
        Cell::on(18, name, move |_| Ok(Spec::ours("malloc", words).storm()))
    };
    vec![
        cell(
            "SIGPROF every millisecond of work",
            &["malloc", "spin", "parked", "+prof"],
        ),
        cell("SIGALRM every millisecond", &["malloc", "parked", "+alarm"]),
        Cell::on(
            18,
            "SIGALRM every millisecond, its handler in malloc and free",
            |_| Ok(Spec::ours("spin", &["malloc", "parked", "+alarm_malloc"]).storm()),
        ),
        cell("SIGCHLD from a fork storm", &["fork", "parked", "+chld"]),
        cell(
            "thousands of real-time signals a second",
            &["malloc", "parked", "+flood"],
        ),
        cell("a handler for SIGTRAP", &["malloc", "parked", "+trap"]),
        cell("SIGTRAP ignored", &["malloc", "parked", "+trap_ignored"]),
        cell(
            "SIGTRAP blocked, with a handler",
            &["malloc", "parked", "+trap_blocked"],
        ),
        cell(
            "SIGTRAP pending and blocked, with a handler",
            &["malloc", "parked", "+trap_pending"],
        ),
    ]
}
