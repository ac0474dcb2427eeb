//! What several tests of this crate need.

use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a part in a forked child, and returns what it returns, or 101 where it panics.
pub(crate) fn in_a_child(part: impl FnOnce() -> libc::c_int) -> libc::c_int {
    // SAFETY: the child calls what a forked child of a program with threads may call, and `_exit`.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(catch_unwind(AssertUnwindSafe(part)).unwrap_or(101));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status), "{status:x}");
        libc::WEXITSTATUS(status)
    }
}

/// Gives this thread a system call filter: `action` is done (`SECCOMP_RET_...`) where `call` is
/// made, with `argument` (its position and the lower half of its value) if there is one.
pub(crate) fn filter(call: libc::c_long, argument: Option<(u32, u32)>, action: u32) {
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let step = |code: u32, no: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: no as u8,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let mut steps = vec![step(load, 0, NUMBER)];
    steps.push(step(
        equal,
        if argument.is_some() { 3 } else { 1 },
        call as u32,
    ));
    if let Some((position, value)) = argument {
        steps.push(step(load, 0, FIRST_ARGUMENT + 8 * position));
        steps.push(step(equal, 1, value));
    }
    steps.push(step(libc::BPF_RET, 0, action));
    steps.push(step(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program is valid and is copied. It applies to this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

/// Sets how many descriptors this process may have. Only a child of a test may do that.
pub(crate) fn limit_descriptors(most: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both pointers are to a live struct.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = most;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

/// Sends a byte, with a descriptor if there is one.
pub(crate) fn send_byte(to: &impl AsRawFd, fd: Option<RawFd>) {
    let mut byte = *b"x";
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut control = [0_u64; 3];
    // SAFETY: zero is a value of each field, and the control buffer has room for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd);
        }
        assert_eq!(libc::sendmsg(to.as_raw_fd(), &raw const message, 0), 1);
    }
}
