//! The two children that share this process's memory until the second one executes its program.
//! They make system calls only, and call no function that a library may have replaced: the library
//! that our command lines preload replaces `_exit` and `execve`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

/// The size in bytes of the stack on which a child runs.
const STACK: usize = 1 << 16;

/// What both children need. It is all prepared here, since they allocate nothing.
struct Prepared {
    /// The end of the second child's stack.
    stack: *mut c_void,
    stdin: c_int,
    stdout: c_int,
    /// One past the highest descriptor that may be open.
    descriptors: c_int,
    program: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
}

/// Ends the calling child.
///
/// # Safety
/// The caller is one of the two children: in any other process this ends the application.
unsafe fn end(status: c_int) -> c_int {
    // SAFETY: it is a process of its own, whose end leaves the memory that it shares as it is.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    status
}

/// Runs in the first child, which shares this process's memory and ends when the second child has
/// executed its program.
extern "C" fn first(data: *mut c_void) -> c_int {
    // SAFETY: `data` is the parent's structure, which stays valid because the parent waits. Only
    // the second child uses the stack in it.
    unsafe {
        let start = &*data.cast::<Prepared>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(second, start.stack, flags, data);
        end(c_int::from(pid < 0))
    }
}

/// Runs in the second child, which shares the same memory until it executes the program.
extern "C" fn second(data: *mut c_void) -> c_int {
    // SAFETY: as above. Its descriptors are the child's own.
    unsafe {
        let start = &*data.cast::<Prepared>();
        libc::syscall(libc::SYS_setsid);
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        if libc::dup2(start.stdin, 0) < 0
            || libc::dup2(start.stdout, 1) < 0
            || libc::dup2(nothing, 2) < 0
        {
            return end(127);
        }
        // Linux has this call since 5.9.
        if libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0 {
            for descriptor in 3..start.descriptors {
                libc::close(descriptor);
            }
        }
        // The program must not inherit the application's signal handlers or its signal mask.
        // Handlers are reset before the mask, so that none of the application's runs here.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        // The kernel's structure, all zero, selects the default action. The C library's function
        // would refuse the signals that it reserves for itself.
        let default = [0_u64; 4];
        let nowhere = std::ptr::null_mut::<c_void>();
        for signal in 1..=64_i32 {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                nowhere,
                8_usize,
            );
        }
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::syscall(
            libc::SYS_execve,
            start.program,
            start.arguments,
            start.environment,
        );
        end(127)
    }
}

/// Returns a number above the highest open descriptor: descriptors beyond it need not be closed.
fn descriptors() -> c_int {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Other threads may open a few more in the meantime.
    numbers.max().map_or(1 << 16, |last: c_int| last + 1024)
}

/// Starts the program. Both lists end with a null pointer. Returns
/// whether both children were made.
pub(crate) fn start(
    program: &CStr,
    arguments: &[*const c_char],
    environment: &[*const c_char],
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> bool {
    let mut stacks = [vec![0_u128; STACK / 16], vec![0_u128; STACK / 16]];
    let [one, other] = stacks
        .each_mut()
        .map(|stack| stack.as_mut_ptr_range().end.cast::<c_void>());
    let start = Prepared {
        stack: other,
        stdin: input.as_raw_fd(),
        stdout: output.as_raw_fd(),
        descriptors: descriptors(),
        program: program.as_ptr(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
    };
    // SAFETY: the signal sets are on this stack, and the mask is this thread's own. It blocks all
    // signals, because a handler of the application must not run in the children, which share this
    // process's memory. This thread continues only when the first child has ended, and the first
    // child ends only when the second one has executed its program. So stacks, structure and texts
    // outlive their use. `__WCLONE` selects children without an exit signal; the pid selects ours
    // among them.
    let started = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let data = (&raw const start).cast_mut().cast::<c_void>();
        let pid = libc::clone(first, one, libc::CLONE_VM | libc::CLONE_VFORK, data);
        // A thread of the application that waits for children of any kind may be first. Then whether
        // the second child was made shows in the end of its input and output.
        let mut status = 0;
        if pid > 0 {
            while libc::waitpid(pid, &mut status, libc::__WCLONE) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        pid > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    };
    drop(stacks);
    started
}

#[cfg(test)]
mod tests {
    use crate::{Start, start};
    use std::ffi::OsString;
    use std::io::Read;
    use std::os::fd::{AsFd, AsRawFd};
    use std::path::Path;

    /// Runs a shell script as such a process. Returns what it prints.
    fn said(script: &str) -> String {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let (mut from, to) = std::io::pipe().unwrap();
        start(&Start {
            program: Path::new("/bin/sh"),
            name: "/bin/sh".as_ref(),
            arguments: &["-c".into(), script.into()],
            variables: &["ROCPROF_ONE=1".into()],
            input: nothing.as_fd(),
            output: to.as_fd(),
        })
        .unwrap();
        drop(to);
        let mut said = String::new();
        from.read_to_string(&mut said).unwrap();
        said.trim().to_owned()
    }

    #[test]
    fn the_application_never_sees_it() {
        // SAFETY: the handler is a function of this test. A null status pointer is allowed.
        unsafe {
            extern "C" fn seen(_signal: i32) {
                SEEN.store(true, std::sync::atomic::Ordering::SeqCst);
            }
            static SEEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
            let handler = seen as extern "C" fn(i32);
            libc::signal(libc::SIGCHLD, handler as libc::sighandler_t);
            let parent = said(
                "echo $PPID; echo $ROCPROF_ONE; set -- $(cat /proc/$$/stat); [ $6 = $$ ] && echo alone",
            );
            let own = std::process::id().to_string();
            let lines: Vec<&str> = parent.lines().collect();
            assert!(lines[0] != own && lines[1..] == ["1", "alone"], "{parent}");
            let any = libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG);
            assert_eq!(any, -1, "the application has no child");
            let any = libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL);
            assert_eq!(any, -1, "of any kind");
            assert!(!SEEN.load(std::sync::atomic::Ordering::SeqCst));
        }
    }

    #[test]
    fn it_has_no_signal_blocked_or_ignored() {
        // SAFETY: this only changes what the test's own thread and process do with a signal that
        // no process sends.
        unsafe {
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut one);
            libc::sigaddset(&mut one, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &one, std::ptr::null_mut());
            libc::signal(libc::SIGWINCH, libc::SIG_IGN);
        }
        let script = "while read name value; do case $name in SigBlk:|SigIgn:) echo $value; esac; done < /proc/$$/status";
        let zero = "0000000000000000";
        assert_eq!(said(script), format!("{zero}\n{zero}"));
    }

    #[test]
    fn it_has_no_descriptor_of_the_application_and_no_variable_of_its_profilers() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: it only makes a descriptor of this test inheritable.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        let script = "set -- /proc/self/fd/*; for f; do case ${f##*/} in 0|1|2) ;; *) readlink $f; esac; done | grep -c /dev/null; echo ${MIDAIR_NEVER_BORROW-}";
        assert_eq!(said(script), "0");
    }

    /// An application that has closed its standard output has another file there.
    #[test]
    fn its_output_may_have_any_number_here() {
        let (mut from, to) = std::io::pipe().unwrap();
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let own = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        // SAFETY: the calls take numbers only. The test reads no standard input meanwhile.
        unsafe { libc::dup2(to.as_raw_fd(), 0) };
        drop(to);
        start(&Start {
            program: Path::new("/bin/sh"),
            name: "/bin/sh".as_ref(),
            arguments: &["-c".into(), "read line; echo there".into()],
            variables: &[],
            input: nothing.as_fd(),
            output: std::io::stdin().as_fd(),
        })
        .unwrap();
        // SAFETY: as above.
        unsafe { libc::dup2(own.as_raw_fd(), 0) };
        let mut said = String::new();
        from.read_to_string(&mut said).unwrap();
        assert_eq!(said, "there\n");
    }

    #[test]
    fn a_program_that_is_not_there_shows_in_the_end_of_its_output() {
        let nothing = std::fs::File::open("/dev/null").unwrap();
        let (mut from, to) = std::io::pipe().unwrap();
        let arguments: [OsString; 0] = [];
        start(&Start {
            program: Path::new("/nowhere"),
            name: "/nowhere".as_ref(),
            arguments: &arguments,
            variables: &arguments,
            input: nothing.as_fd(),
            output: to.as_fd(),
        })
        .unwrap();
        drop(to);
        assert_eq!(from.read(&mut [0]).unwrap(), 0);
    }
}
