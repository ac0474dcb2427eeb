//! The helper process for a program that counts by itself and must not see a child process.
//!
//! The application cannot see the helper, because the helper is a grandchild: its parent is a child
//! of ours that ends at once. That child has no exit signal, so that no signal handler of the
//! application runs for it, and no `wait` of the application returns it. (The helper itself gets an
//! exit signal again when it executes its program. The process that adopts it, a container's first
//! process or a subreaper, sees it end.) The helper inherits only three descriptors, and ends when
//! we close our ends of them. The library itself, C++ with threads and locks of its own, never
//! enters this process.

use crate::helper::Error;
use crate::libraries;
use crate::maker::Maker;
use midair_counters::template::Template;
use midair_counters::wire::{Answer, Listener, Question};
use std::ffi::{CString, OsStr, OsString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The name of the helper's file.
const HELPER: &str = "midair-aqlprofile";
/// The directory of our tools, which is next to our SDK library.
const TOOLS: &str = "rocprofiler-sdk";
/// The variable in which an attacher tells a process with other tools where the helper is: paths
/// separated by colons.
pub const PACKET_HELPER: &str = "ROCP_MIDAIR_PACKET_HELPER_PATH";
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(20);
/// The largest answer in bytes.
const MOST: usize = 1 << 28;
/// The size in bytes of the stack on which a child runs until it executes its program.
const STACK: usize = 1 << 16;
/// Beginnings of the variables of midair and of other profilers, which the helper must not obey.
const NOT_ITS: [&[u8]; 6] = [
    b"LD_PRELOAD=",
    b"LD_AUDIT=",
    b"ROCP",
    b"MIDAIR_",
    b"HSA_TOOLS_",
    b"CUDA_INJECTION",
];

/// The helper. It is started with the first question, and again after a question that it did not
/// answer.
#[derive(Debug, Default)]
pub struct Unseen {
    running: Option<Process>,
    named: Vec<PathBuf>,
}

#[derive(Debug)]
struct Process {
    to: OwnedFd,
    from: OwnedFd,
    read: Vec<u8>,
}

impl Unseen {
    /// Creates one without a running helper. The program is the file next to the library that
    /// contains this code, or else the first existing one of those that [`Unseen::name`] gives.
    pub const fn new() -> Unseen {
        Unseen {
            running: None,
            named: Vec::new(),
        }
    }

    /// Sets where else the helper may be. The attacher passes this when it had our library loaded
    /// from a descriptor, so that nothing is alongside it.
    pub fn name(&mut self, programs: Vec<PathBuf>) {
        self.named = programs;
    }

    /// Ends the helper.
    pub fn end(&mut self) {
        self.running = None;
    }

    fn start(&self) -> Result<Process, String> {
        if midair_secure::has_more_rights() {
            return Err("a process with more privileges than its user starts no helper".to_owned());
        }
        let status = |of: &str| std::fs::read_to_string(format!("/proc/{of}/status"));
        let own = status("self").unwrap_or_default();
        if has_own_filter(&own, &status("1").unwrap_or_default()) {
            return Err(
                "a process that filters its system calls starts no helper for AMD's packet library"
                    .to_owned(),
            );
        }
        let beside = [Path::new(HELPER).to_owned(), Path::new(TOOLS).join(HELPER)];
        let directory = directory();
        let beside = beside
            .iter()
            .filter_map(|file| Some(directory.as_ref()?.join(file)));
        let program = beside
            .chain(self.named.clone())
            .find(|path| path.is_absolute() && path.is_file())
            .ok_or("the helper for AMD's packet library is not installed here")?;
        spawn(&program, &libraries(midair_secure::variable))
    }
}

impl Maker for Unseen {
    fn template(&mut self, question: &Question) -> Result<Template, Error> {
        let mut helper = match self.running.take() {
            Some(helper) => helper,
            None => self.start().map_err(Error::None)?,
        };
        // A helper that failed is not used again: it might still send the answer to this question.
        let answer = helper.ask(question).map_err(Error::None)?;
        self.running = Some(helper);
        match answer {
            Answer::Made(template) => Ok(template),
            Answer::Missing(why) => Err(Error::Missing(why)),
            Answer::Outside(why) => Err(Error::Outside(why)),
            Answer::Refused { code, what } => Err(Error::Refused { what, code }),
        }
    }
}

/// Returns the directory of the library that contains this code.
fn directory() -> Option<PathBuf> {
    // SAFETY: all zero bytes are a valid Dl_info, and the address is inside this library. The name
    // lives as long as the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(directory as *const c_void, &mut info);
        (found != 0 && !info.dli_fname.is_null())
            .then(|| std::ffi::CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
    };
    let name = PathBuf::from(OsString::from_vec(name?));
    Some(name.parent()?.to_owned())
}

/// Whether a process, by its status file, has a seccomp filter that the first process does not
/// have. The process may be killed for a system call that the filter forbids. Filters that all
/// processes of a container have are no problem: this program was started under them.
fn has_own_filter(own: &str, first: &str) -> bool {
    let field = |status: &str, name: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse::<u32>().ok())
    };
    if field(own, "Seccomp").is_none_or(|mode| mode == 0) {
        return false;
    }
    let count = |status: &str| field(status, "Seccomp_filters");
    match (count(own), count(first)) {
        (Some(own), Some(first)) => own > first,
        _ => true,
    }
}

impl Process {
    fn ask(&mut self, question: &Question) -> Result<Answer, String> {
        let until = Instant::now() + LIMIT;
        self.say(question.to_string().as_bytes(), until)?;
        let mut listener = Listener::default();
        let mut total = 0;
        loop {
            while let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line);
                let taken = listener.take(line.trim_end_matches('\n'));
                match taken {
                    Ok(Some(answer)) => return Ok(answer),
                    Ok(None) => {}
                    Err(odd) => {
                        return Err(format!(
                            "AMD's packet library's helper sent an unknown answer: {odd}"
                        ));
                    }
                }
            }
            total += self.more(until)?;
            if total > MOST {
                return Err(
                    "the helper for AMD's packet library sent too long an answer".to_owned(),
                );
            }
        }
    }

    /// Writes all bytes. The pipe does not block, so the deadline also holds for a helper that does
    /// not read.
    fn say(&self, mut rest: &[u8], until: Instant) -> Result<(), String> {
        while !rest.is_empty() {
            if !is_ready(&self.to, libc::POLLOUT, until)? {
                continue;
            }
            let written = without_sigpipe(|| {
                let bytes = rest.as_ptr().cast();
                // SAFETY: the descriptor and the bytes are ours. If the pipe's reader is gone, the
                // call returns an error, since SIGPIPE is blocked meanwhile.
                counted(unsafe { libc::write(self.to.as_raw_fd(), bytes, rest.len()) })
            });
            match written {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if may_go_on(&error) => {}
                Err(_) => return Err("the helper for AMD's packet library has ended".to_owned()),
            }
        }
        Ok(())
    }

    fn more(&mut self, until: Instant) -> Result<usize, String> {
        if !is_ready(&self.from, libc::POLLIN, until)? {
            return Ok(0);
        }
        let mut bytes = vec![0_u8; 1 << 16];
        // SAFETY: the descriptor and the memory are ours.
        let read = counted(unsafe {
            libc::read(
                self.from.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
            )
        });
        match read {
            Ok(0) => Err("AMD's packet library ended its process".to_owned()),
            Ok(count) => {
                self.read
                    .extend_from_slice(bytes.get(..count).unwrap_or_default());
                Ok(count)
            }
            Err(error) if may_go_on(&error) => Ok(0),
            Err(_) => Err("cannot read from the helper for AMD's packet library".to_owned()),
        }
    }
}

/// Waits until a pipe can be read or written. Returns false after a signal handler ran.
fn is_ready(pipe: &OwnedFd, events: libc::c_short, until: Instant) -> Result<bool, String> {
    let left = until.saturating_duration_since(Instant::now());
    let mut poll = libc::pollfd {
        fd: pipe.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: the pointer is to one valid entry.
    match unsafe { libc::poll(&mut poll, 1, left.as_millis() as c_int) } {
        0 => Err("AMD's packet library did not answer".to_owned()),
        ready => Ok(ready > 0),
    }
}

/// Turns the result of a system call into a Result, while errno still has its error.
fn counted(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether a call failed only for the moment.
fn may_go_on(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

/// Runs `act` with SIGPIPE blocked in this thread, and consumes a SIGPIPE that it caused.
fn without_sigpipe<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are on this stack, and the mask is this thread's own. `sigtimedwait` without
    // waiting consumes a pending signal, and only if it was not pending before.
    unsafe {
        let mut pipe: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::sigpending(&mut pending);
        let was_pending = libc::sigismember(&pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        let result = act();
        if !was_pending {
            let now = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd), String> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err("cannot create a pipe: no free descriptors".to_owned());
    }
    // Descriptors 0 to 2 are replaced in the child, so the pipe must not use them.
    let moved = ends.map(|end| {
        // SAFETY: pipe2 has just made the descriptor, and nothing else owns it.
        let end = unsafe { OwnedFd::from_raw_fd(end) };
        // SAFETY: fcntl only duplicates an open descriptor.
        let other = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
        // SAFETY: fcntl has just made the descriptor, and nothing else owns it.
        (other >= 0).then(|| unsafe { OwnedFd::from_raw_fd(other) })
    });
    match moved {
        [Some(read), Some(write)] => Ok((read, write)),
        _ => Err("cannot create a pipe: no free descriptors".to_owned()),
    }
}

/// What both children need. It is all prepared here, since they allocate nothing.
struct Start {
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

/// Runs in the first child, which shares this process's memory and ends when the second child has
/// executed its program. It makes system calls only.
extern "C" fn first(data: *mut c_void) -> c_int {
    // SAFETY: `data` is the parent's structure, which stays valid because the parent waits. Only
    // the second child uses the stack in it.
    unsafe {
        let start = &*data.cast::<Start>();
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(second, start.stack, flags, data);
        libc::_exit(c_int::from(pid < 0))
    }
}

/// Runs in the second child, which shares the same memory until it executes the helper.
extern "C" fn second(data: *mut c_void) -> c_int {
    // SAFETY: as above. Its descriptors are the child's own.
    unsafe {
        let start = &*data.cast::<Start>();
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        if libc::dup2(start.stdin, 0) < 0
            || libc::dup2(start.stdout, 1) < 0
            || libc::dup2(nothing, 2) < 0
        {
            libc::_exit(127);
        }
        // Linux has this call since 5.9.
        if libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) != 0 {
            for descriptor in 3..start.descriptors {
                libc::close(descriptor);
            }
        }
        // The helper must not inherit the application's signal handlers or its signal mask.
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
        libc::execve(start.program, start.arguments, start.environment);
        libc::_exit(127)
    }
}

/// Returns a number above the highest open descriptor: descriptors beyond it need not be closed.
fn descriptors() -> c_int {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Other threads may open a few more in the meantime.
    numbers.max().map_or(1 << 16, |last: c_int| last + 1024)
}

fn text(text: &OsStr) -> Option<CString> {
    CString::new(text.as_bytes()).ok()
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    let pointers = texts.iter().map(|text| text.as_ptr());
    pointers.chain([std::ptr::null()]).collect()
}

fn environment() -> Vec<CString> {
    let is_its = |entry: &Vec<u8>| !NOT_ITS.iter().any(|begin| entry.starts_with(begin));
    std::env::vars_os()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .filter(is_its)
        .filter_map(|entry| CString::new(entry).ok())
        .collect()
}

fn spawn(program: &Path, libraries: &[OsString]) -> Result<Process, String> {
    let (stdin, to) = pipe()?;
    let (from, stdout) = pipe()?;
    let arguments: Vec<CString> = std::iter::once(program.as_os_str())
        .chain(libraries.iter().map(OsString::as_os_str))
        .filter_map(text)
        .collect();
    let environment = environment();
    let (argument_pointers, environment_pointers) = (pointers(&arguments), pointers(&environment));
    let program_text = argument_pointers.first().copied();
    let mut stacks = [vec![0_u128; STACK / 16], vec![0_u128; STACK / 16]];
    let [one, other] = stacks
        .each_mut()
        .map(|stack| stack.as_mut_ptr_range().end.cast::<c_void>());
    let start = Start {
        stack: other,
        stdin: stdin.as_raw_fd(),
        stdout: stdout.as_raw_fd(),
        descriptors: descriptors(),
        program: program_text.unwrap_or(std::ptr::null()),
        arguments: argument_pointers.as_ptr(),
        environment: environment_pointers.as_ptr(),
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
        let mut status = 1;
        if pid > 0 {
            while libc::waitpid(pid, &mut status, libc::__WCLONE) < 0
                && *libc::__errno_location() == libc::EINTR
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        pid > 0 && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    };
    drop(stacks);
    // SAFETY: the descriptor is ours.
    let flags = unsafe { libc::fcntl(to.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    if !started || flags != 0 {
        return Err("cannot start the helper for AMD's packet library".to_owned());
    }
    Ok(Process {
        to,
        from,
        read: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes more than a pipe holds to a helper that does not read.
    #[test]
    fn a_child_that_does_not_read_is_met_by_the_deadline() {
        let program = Path::new("/bin/sh");
        let helper = spawn(program, &["-c".into(), "exec sleep 2 <&0".into()]).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let said = helper.say(&vec![b'x'; 1 << 20], until).unwrap_err();
        assert!(said.contains("did not answer"), "{said}");
    }

    /// Returns the answer of a shell script that runs as the helper.
    fn told(script: &str) -> Result<Answer, String> {
        let libraries = ["-c".into(), script.into()];
        let mut helper = spawn(Path::new("/bin/sh"), &libraries)?;
        helper.ask(&Question::default())
    }

    #[test]
    fn a_child_is_asked_and_the_application_never_sees_it() {
        let answer = told("read line; read line; echo missing here");
        assert_eq!(answer, Ok(Answer::Missing("here".to_owned())));
        let refused = told("read line; read line; echo refused 1000 count");
        assert!(matches!(refused, Ok(Answer::Refused { code: 0x1000, .. })));
        // SAFETY: a null status pointer is allowed.
        let any = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
        assert_eq!(any, -1, "the application has no child");
    }

    #[test]
    fn a_helper_has_no_signal_blocked_or_ignored() {
        // SAFETY: this only changes what the test's own thread and process do with a signal that
        // no process sends.
        unsafe {
            let mut one: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut one);
            libc::sigaddset(&mut one, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &one, std::ptr::null_mut());
            libc::signal(libc::SIGWINCH, libc::SIG_IGN);
        }
        let script = "read line; read line; echo missing $(while read name value; do case $name in SigBlk:|SigIgn:) echo $value; esac; done < /proc/$$/status)";
        let zero = "0000000000000000";
        assert_eq!(told(script), Ok(Answer::Missing(format!("{zero} {zero}"))));
    }

    #[test]
    fn a_filter_that_the_first_process_has_too_is_no_reason() {
        let status = |mode: u32, filters: u32| {
            format!("Name:\tx\nSeccomp:\t{mode}\nSeccomp_filters:\t{filters}\n")
        };
        assert!(!has_own_filter(&status(0, 0), ""));
        assert!(has_own_filter(&status(2, 1), ""));
        assert!(has_own_filter(&status(2, 1), &status(0, 0)));
        assert!(!has_own_filter(&status(2, 1), &status(2, 1)));
        assert!(has_own_filter(&status(2, 2), &status(2, 1)));
        // Before Linux 5.9 the status does not say how many filters there are.
        assert!(has_own_filter("Seccomp:\t2\n", "Seccomp:\t2\n"));
    }

    #[test]
    fn a_child_that_ends_or_says_nonsense_is_told() {
        assert!(told("exit 3").unwrap_err().contains("ended"));
        assert!(told("read line; read line; echo nonsense").is_err());
        assert!(
            spawn(Path::new("/nowhere"), &[])
                .is_ok_and(|mut helper| { helper.ask(&Question::default()).is_err() })
        );
    }

    #[test]
    fn a_helper_has_no_descriptor_of_the_application_and_none_of_its_profilers() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: it only makes a descriptor of this test inheritable.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        let script = "set -- /proc/self/fd/*; for f; do case ${f##*/} in 0|1|2) ;; *) readlink $f; esac; done | grep -c /dev/null; true";
        let script = format!(
            "read line; read line; n=$({script}); echo missing $n${{MIDAIR_NEVER_BORROW-}}"
        );
        let answer = told(&script);
        assert_eq!(answer, Ok(Answer::Missing("0".to_owned())));
    }
}
