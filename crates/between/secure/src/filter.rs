//! The system calls that a helper process can make: it uses memory and talks over its descriptors, and
//! where it has yet to load a program or libraries, it reads files. All other calls fail as if the kernel
//! did not have them, and each filter is inherited by what is executed.
//!
//! Source: Documentation/userspace-api/seccomp_filter.rst, linux/seccomp.h, linux/audit.h.

use libc::{c_long, sock_filter, sock_fprog};
use std::io;
use std::os::fd::RawFd;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data`: the call's number, the architecture, and the low half of the first
/// argument. An argument has eight bytes, and both architectures are little-endian.
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;

/// Calls about files by their names, where files may be read.
const FILES: &[c_long] = &[
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
];

/// Calls that are allowed with any arguments.
const ALLOWED: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_ppoll,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_arch_prctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The commands of `fcntl` that are allowed. Others send signals to any process of the user.
const COMMANDS: [i32; 5] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
];

/// Flags of `openat` that are refused: a file is opened for reading alone.
const WRITING: i32 = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND;

fn statement(code: u32, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

fn load(offset: u32) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset)
}

/// The low half of an argument.
fn argument(number: u32) -> sock_filter {
    load(ARGUMENTS + 8 * number)
}

fn answer(how: u32) -> sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, how)
}

/// Goes on with the next instruction if the loaded word is `k`, and else skips as many.
fn unless(k: u32, skip: usize) -> sock_filter {
    sock_filter {
        jf: skip as u8,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k)
    }
}

fn refused(errno: i32) -> sock_filter {
    answer(libc::SECCOMP_RET_ERRNO | errno as u32)
}

/// What a process may still execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Any,
    Descriptor(RawFd),
}

/// Returns the filter. Where no program may be executed, no file may be opened.
fn instructions(program: Option<Program>) -> Vec<sock_filter> {
    let allow = || answer(libc::SECCOMP_RET_ALLOW);
    let mut all = vec![
        load(MACHINE),
        sock_filter {
            jt: 1,
            ..unless(ARCHITECTURE, 0)
        },
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER),
    ];
    let mut rule = |number: c_long, body: Vec<sock_filter>| {
        all.push(unless(number as u32, body.len()));
        all.extend(body);
    };
    for number in ALLOWED {
        rule(*number, vec![allow()]);
    }
    if program.is_some() {
        for number in FILES {
            rule(*number, vec![allow()]);
        }
        rule(
            libc::SYS_openat,
            vec![
                argument(2),
                statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, WRITING as u32),
                unless(libc::O_RDONLY as u32, 1),
                allow(),
                refused(libc::EACCES),
            ],
        );
    }
    let mut commands = vec![argument(1)];
    for command in COMMANDS {
        commands.extend([unless(command as u32, 1), allow()]);
    }
    commands.push(refused(libc::EPERM));
    rule(libc::SYS_fcntl, commands);
    rule(
        libc::SYS_prctl,
        vec![
            argument(0),
            unless(libc::PR_SET_NAME as u32, 1),
            allow(),
            refused(libc::EPERM),
        ],
    );
    // The limits of this process alone.
    rule(
        libc::SYS_prlimit64,
        vec![argument(0), unless(0, 1), allow(), refused(libc::EPERM)],
    );
    match program {
        Some(Program::Descriptor(program)) => rule(
            libc::SYS_execveat,
            vec![
                argument(0),
                unless(program as u32, 3),
                argument(4),
                unless(libc::AT_EMPTY_PATH as u32, 1),
                allow(),
                refused(libc::EPERM),
            ],
        ),
        Some(Program::Any) => rule(libc::SYS_execve, vec![allow()]),
        None => {}
    }
    all.push(refused(libc::ENOSYS));
    all
}

/// A filter that is ready.
pub struct Filter(Vec<sock_filter>);

impl Filter {
    /// For a process that executes the program of this descriptor, and no other. Code that knows the
    /// number may put another file there; this filter, and the rights of the process, also hold for what
    /// it executes.
    pub fn for_descriptor(program: RawFd) -> Filter {
        Filter(instructions(Some(Program::Descriptor(program))))
    }

    /// For a process that executes programs by their names, which read files.
    pub fn for_program() -> Filter {
        Filter(instructions(Some(Program::Any)))
    }

    /// For a process that has loaded everything that it needs: it can open no file.
    pub fn for_loaded() -> Filter {
        Filter(instructions(None))
    }

    /// Puts the filter on the calling thread, which must have set `no_new_privs`. Allocates nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn install(&self) -> io::Result<()> {
        let filter = sock_fprog {
            len: self.0.len() as u16,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: the structure and the instructions, which the kernel only reads, outlive the call, and
        // the length is theirs.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const filter,
            )
        };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
