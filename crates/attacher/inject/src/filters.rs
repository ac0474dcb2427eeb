//! Checks system call filters (seccomp). Before anything is done, the filters of the borrowed
//! thread are evaluated for every system call that entering needs. The worker thread inherits these
//! filters. A call that a filter would not let through is named in the refusal.
//!
//! The calls of the engine's own code, the loader and our libraries on the worker thread were
//! recorded once by a filter that reports every call (`USER_NOTIF`). A test checks the list: its
//! target is killed at any other call (`tests/it/seccomp.rs`).
//!
//! Decisions: ENG-023, ENG-024 (`docs/deviations/engine.md`).

use midair_procinfo::bpf::{Action, Call, Instruction, decide};
use midair_procinfo::status::Status;
use midair_procinfo::{Pid, task};

use crate::arch;
use crate::error::Refusal;
use crate::needs::{may, must};

pub use crate::needs::{Need, Without};

const NONE: [u64; 6] = [0; 6];
const LEN: u64 = 4096;
// PROT_*, MAP_*
const READ_WRITE: u64 = 3;
const READ_EXECUTE: u64 = 5;
const PRIVATE: u64 = 2;
const SHARED: u64 = 1;
const ANONYMOUS: u64 = 0x4022;

/// The calls that have the same name on every processor. [`clone`](CLONE) is needed besides, where
/// there is no `clone3`.
const COMMON: &[Need] = &[
    must(
        "mmap",
        libc::SYS_mmap,
        [0, LEN, READ_EXECUTE, ANONYMOUS, u64::MAX, 0],
    ),
    must(
        "mmap",
        libc::SYS_mmap,
        [0, LEN, READ_WRITE, ANONYMOUS, u64::MAX, 0],
    ),
    // A library's code, and the spool.
    must(
        "mmap",
        libc::SYS_mmap,
        [0, LEN, READ_EXECUTE, PRIVATE, 3, 0],
    ),
    must("mmap", libc::SYS_mmap, [0, LEN, READ_WRITE, SHARED, 3, 0]),
    must(
        "mprotect",
        libc::SYS_mprotect,
        [LEN, LEN, READ_WRITE, 0, 0, 0],
    ),
    must("mprotect", libc::SYS_mprotect, [LEN, LEN, 1, 0, 0, 0]),
    must("mprotect", libc::SYS_mprotect, [LEN, LEN, 0, 0, 0, 0]),
    must("munmap", libc::SYS_munmap, [LEN, LEN, 0, 0, 0, 0]),
    must("rt_sigreturn", libc::SYS_rt_sigreturn, NONE),
    must(
        "rt_sigprocmask",
        libc::SYS_rt_sigprocmask,
        [2, LEN, 0, 8, 0, 0],
    ),
    must("futex", libc::SYS_futex, [LEN, 128, 0, 0, 0, 0]),
    must("futex", libc::SYS_futex, [LEN, 129, 1, 0, 0, 0]),
    must(
        "socketpair",
        libc::SYS_socketpair,
        [1, 0x8_0005, 0, LEN, 0, 0],
    ),
    must("recvmsg", libc::SYS_recvmsg, [3, LEN, 0x4000_0000, 0, 0, 0]),
    must("sendto", libc::SYS_sendto, [3, LEN, 1, 0x4000, 0, 0]),
    must("sendto", libc::SYS_sendto, [3, LEN, 0, 0x4040, 0, 0]),
    must("fcntl", libc::SYS_fcntl, [3, 1030, 3, 0, 0, 0]),
    must("read", libc::SYS_read, [3, LEN, 1, 0, 0, 0]),
    must("write", libc::SYS_write, [3, LEN, 1, 0, 0, 0]),
    must("close", libc::SYS_close, [3, 0, 0, 0, 0, 0]),
    must(
        "openat",
        libc::SYS_openat,
        [0xffff_ff9c, LEN, 0x8_0000, 0, 0, 0],
    ),
    must(
        "newfstatat",
        libc::SYS_newfstatat,
        [3, LEN, LEN, 0x1000, 0, 0],
    ),
    must("exit", libc::SYS_exit, NONE),
    must("gettid", libc::SYS_gettid, NONE),
    may("getpid", libc::SYS_getpid, NONE),
    may("prctl", libc::SYS_prctl, [15, LEN, 0, 0, 0, 0]),
    may(
        "sched_setscheduler",
        libc::SYS_sched_setscheduler,
        [0, 0, LEN, 0, 0, 0],
    ),
    may(
        "sched_setaffinity",
        libc::SYS_sched_setaffinity,
        [0, 8, LEN, 0, 0, 0],
    ),
    may(
        "sched_getaffinity",
        libc::SYS_sched_getaffinity,
        [0, 8, LEN, 0, 0, 0],
    ),
    may("sched_yield", libc::SYS_sched_yield, NONE),
    may(
        "set_robust_list",
        libc::SYS_set_robust_list,
        [LEN, 24, 0, 0, 0, 0],
    ),
    // The C library ends the process if a new thread cannot register for restartable sequences
    // although the first thread could.
    must("rseq", libc::SYS_rseq, [LEN, 32, 0, 0, 0, 0]),
    may("madvise", libc::SYS_madvise, [LEN, LEN, 4, 0, 0, 0]),
    may("brk", libc::SYS_brk, NONE),
    may("prlimit64", libc::SYS_prlimit64, [0, 3, 0, LEN, 0, 0]),
    may(
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        [1, LEN, 1, LEN, 1, 0],
    ),
    may("getrandom", libc::SYS_getrandom, [LEN, 16, 0, 0, 0, 0]),
    may("membarrier", libc::SYS_membarrier, [8, 0, 0, 0, 0, 0]),
    may(
        "statx",
        libc::SYS_statx,
        [0xffff_ff9c, LEN, 0, 0xfff, LEN, 0],
    ),
    may(
        "readlinkat",
        libc::SYS_readlinkat,
        [0xffff_ff9c, LEN, LEN, 64, 0, 0],
    ),
    may("pread64", libc::SYS_pread64, [3, LEN, 64, 0, 0, 0]),
    may("lseek", libc::SYS_lseek, [3, 0, 0, 0, 0, 0]),
    may("fstat", libc::SYS_fstat, [3, LEN, 0, 0, 0, 0]),
    may("ioctl", libc::SYS_ioctl, [3, 0, 0, 0, 0, 0]),
    may("nanosleep", libc::SYS_nanosleep, [LEN, 0, 0, 0, 0, 0]),
    may(
        "clock_nanosleep",
        libc::SYS_clock_nanosleep,
        [1, 0, LEN, 0, 0, 0],
    ),
    may(
        "clock_gettime",
        libc::SYS_clock_gettime,
        [1, LEN, 0, 0, 0, 0],
    ),
    may("sigaltstack", libc::SYS_sigaltstack, [0, LEN, 0, 0, 0, 0]),
];

/// Makes a thread, and is tried first. If it returns ENOSYS, the C library uses [`CLONE`].
const CLONE3: Need = must("clone3", libc::SYS_clone3, [LEN, 88, 0, 0, 0, 0]);
/// Makes a thread, with the C library's flags.
const CLONE: Need = must("clone", libc::SYS_clone, [0x3d_0f00, LEN, LEN, 0, 0, 0]);

/// Returns every call that entering may make, to be shown or tested.
pub fn needed() -> impl Iterator<Item = Need> {
    COMMON
        .iter()
        .chain(arch::NEEDED)
        .chain([&CLONE3, &CLONE])
        .copied()
}

/// Returns the first call that the filters do not let through, and what they would do. `pc` is the
/// address from which the calls are made.
pub(crate) fn objection(filters: &[Vec<Instruction>], pc: u64) -> Option<(&'static str, Action)> {
    let answer = |need: &Need| {
        let call = Call {
            number: need.number as u32,
            arch: arch::AUDIT,
            pc,
            args: need.args,
        };
        decide(filters, &call)
    };
    let bad = COMMON.iter().chain(arch::NEEDED).find_map(|need| {
        let action = answer(need);
        let good = match need.without {
            Without::Nothing => action.lets_pass(),
            // No tracer is there, so a call that the filter passes to a tracer just fails.
            Without::GoesOn => {
                action.lets_pass() || matches!(action, Action::Errno(_) | Action::Trace)
            }
        };
        (!good).then_some((need.name, action))
    });
    if bad.is_some() {
        return bad;
    }
    match answer(&CLONE3) {
        Action::Errno(ENOSYS) | Action::Trace => {
            let action = answer(&CLONE);
            (!action.lets_pass()).then_some((CLONE.name, action))
        }
        action => (!action.lets_pass()).then_some((CLONE3.name, action)),
    }
}

const ENOSYS: u16 = 38;

/// Returns true if this process is under as many filters as that thread. They are then taken for
/// the filters of a container that both are in.
pub(crate) fn as_ours(status: &Status) -> bool {
    task::status(Pid::own()).is_ok_and(|ours| are_alike(&ours, status))
}

fn are_alike(ours: &Status, theirs: &Status) -> bool {
    ours.seccomp == 2 && ours.seccomp_filters != 0 && ours.seccomp_filters == theirs.seccomp_filters
}

/// Returns the refusal for an objection.
pub(crate) fn refusal(pid: Pid, (call, action): (&'static str, Action)) -> Refusal {
    Refusal::Filtered { pid, call, action }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;

    /// Makes a filter that gives each of these calls its result, and all others `rest`.
    fn filter(results: &[(i64, u32)], rest: u32) -> Vec<Vec<Instruction>> {
        let one = |code, jump_true, jump_false, k| Instruction {
            code,
            jump_true,
            jump_false,
            k,
        };
        let mut program = vec![one(0x20, 0, 0, 0)];
        for (number, result) in results {
            program.push(one(0x15, 0, 1, *number as u32));
            program.push(one(0x06, 0, 0, *result));
        }
        program.push(one(0x06, 0, 0, rest));
        vec![program]
    }

    #[test]
    fn no_filter_and_one_that_lets_all_through() {
        assert_eq!(objection(&[], 0), None);
        assert_eq!(objection(&filter(&[], ALLOW), 0), None);
        assert_eq!(objection(&filter(&[], 0x7ffc_0000), 0), None);
    }

    #[test]
    fn exactly_what_is_needed_is_enough() {
        let all: Vec<(i64, u32)> = needed().map(|need| (need.number, ALLOW)).collect();
        assert_eq!(objection(&filter(&all, 0x8000_0000), 0), None);
        for left_out in needed() {
            // The C library does not need clone where it has clone3.
            if left_out.number == CLONE.number {
                continue;
            }
            let rest: Vec<(i64, u32)> = all
                .iter()
                .copied()
                .filter(|(number, _)| *number != left_out.number)
                .collect();
            let found = objection(&filter(&rest, 0x8000_0000), 0);
            assert_eq!(found, Some((left_out.name, Action::KillProcess)));
            // Optional calls may fail, but the filter may do nothing worse to them.
            let fails = objection(&filter(&rest, 0x0005_0001), 0);
            assert_eq!(fails.is_none(), left_out.without == Without::GoesOn);
            let asks = objection(&filter(&rest, 0x7fc0_0000), 0);
            assert_eq!(asks, Some((left_out.name, Action::Notify)));
        }
    }

    #[test]
    fn an_old_profile_without_clone3() {
        let refused = 0x0005_0000 | u32::from(ENOSYS);
        let clone3 = (libc::SYS_clone3, refused);
        assert_eq!(objection(&filter(&[clone3], ALLOW), 0), None);
        let clone = (libc::SYS_clone, 0);
        let found = objection(&filter(&[clone3, clone], ALLOW), 0);
        assert_eq!(found, Some(("clone", Action::KillThread)));
        let found = objection(&filter(&[(libc::SYS_clone3, 0x0005_0001)], ALLOW), 0);
        assert_eq!(found, Some(("clone3", Action::Errno(1))));
    }

    #[test]
    fn filters_are_ours_by_their_number_only() {
        let under = |mode: u32, filters: u32| {
            let text = format!("Seccomp:\t{mode}\nSeccomp_filters:\t{filters}\n");
            midair_procinfo::status::parse(text.as_bytes())
        };
        assert!(are_alike(&under(2, 3), &under(2, 3)));
        for (ours, theirs) in [
            ((2, 3), (2, 4)),
            ((2, 3), (2, 2)),
            ((0, 0), (2, 1)),
            ((2, 0), (2, 0)),
        ] {
            let (ours, theirs) = (under(ours.0, ours.1), under(theirs.0, theirs.1));
            assert!(!are_alike(&ours, &theirs), "{ours:?} {theirs:?}");
        }
    }
}
