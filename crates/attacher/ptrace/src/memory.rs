use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::added::with_added;
use crate::helper_process::{in_helper_process_always, must_be_here};
use crate::{Error, RemoteAddr, Result, Tid, fault};

/// Knows which memory of a target answers. A page of a file is read from the file's file system,
/// and that may be one that a user's process serves (FUSE) and that never answers. The read would
/// then never return, and could not be interrupted.
pub trait Answers: Send + Sync + std::fmt::Debug {
    /// How many of the `len` bytes at `at` may be read or written without waiting for anybody's
    /// file system. 0 when the first byte may not.
    fn answering(&self, at: u64, len: usize) -> usize;

    /// Notes that the attacher has just mapped anonymous memory there, which answers.
    fn mapped(&self, at: u64, len: usize);
}

const READING: &str = "reading /proc/TID/mem";
const WRITING: &str = "writing /proc/TID/mem";

/// Whether a system call filter may have made this error. Where it is the kernel's own, the kernel
/// does not open the thread's file either.
fn is_as_by_a_filter(error: &Error) -> bool {
    matches!(error.errno(), Some(libc::EPERM | libc::ENOSYS))
}

/// The memory of a target, accessed through one of its live threads, without stopping any.
#[derive(Debug, Clone)]
pub struct Memory {
    tid: Tid,
    answers: Option<Arc<dyn Answers>>,
}

impl Memory {
    /// All of the memory that thread `tid` lives in. For a process that has nothing to gain from
    /// holding us up.
    pub fn of(tid: impl Into<Tid>) -> Self {
        Memory {
            tid: tid.into(),
            answers: None,
        }
    }

    /// The part of the memory of thread `tid` that answers.
    pub fn answering(tid: impl Into<Tid>, answers: Arc<dyn Answers>) -> Self {
        Memory {
            tid: tid.into(),
            answers: Some(answers),
        }
    }

    /// Notes that the caller has just had anonymous memory mapped there, through a thread of the
    /// process. A list of mappings that was read earlier does not contain it, so the caller
    /// reports it.
    pub fn mapped(&self, at: RemoteAddr, len: usize) {
        if let Some(answers) = &self.answers {
            answers.mapped(at.get(), len);
        }
    }

    /// How many of these bytes may be accessed.
    fn touchable(&self, operation: &'static str, at: RemoteAddr, len: usize) -> Result<usize> {
        let Some(answers) = &self.answers else {
            return Ok(len);
        };
        match answers.answering(at.get(), len) {
            0 => Err(Error::System {
                operation,
                tid: self.tid,
                source: io::Error::from_raw_os_error(libc::EFAULT),
            }),
            some => Ok(some.min(len)),
        }
    }

    /// Reads exactly `into.len()` bytes, respecting page protections except where
    /// [`Memory::write`] does not.
    ///
    /// # Errors
    /// [`Error::Short`] when a page in the middle is not readable, [`Error::System`] with EFAULT
    /// when the first is not.
    pub fn read(&self, at: RemoteAddr, into: &mut [u8]) -> Result<()> {
        let wanted = into.len();
        let done = self.read_some(at, into)?;
        self.whole("process_vm_readv", at, done, wanted)
    }

    /// Reads up to `into.len()` bytes and tells how many were readable.
    ///
    /// # Errors
    /// As [`Memory::read`], when nothing is readable.
    pub fn read_some(&self, at: RemoteAddr, into: &mut [u8]) -> Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let len = self.touchable("process_vm_readv", at, into.len())?;
        let here = must_be_here(self.tid);
        if here
            && let Some(read) = self.by_file(READING, OpenOptions::new().read(true), |file| {
                file.read_at(into.get_mut(..len).unwrap_or_default(), at.get())
            })
        {
            return read;
        }
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: at.get() as usize as *mut libc::c_void,
            iov_len: len,
        };
        let read = self.through_any("process_vm_readv", here, |tid| {
            // SAFETY: `local` lies within the exclusive slice; `remote` is only a number to the
            // kernel, which checks it.
            unsafe { libc::process_vm_readv(tid.raw(), &local, 1, &remote, 1, 0) }
        });
        match read {
            // A system call filter that we are under may forbid the call and no more than that. The
            // kernel gives the file to whom it would give the call.
            Err(error) if is_as_by_a_filter(&error) => {
                let own = into.get_mut(..len).unwrap_or_default();
                self.by_file(READING, OpenOptions::new().read(true), |file| {
                    file.read_at(own, at.get())
                })
                .unwrap_or(Err(error))
            }
            read => read,
        }
    }

    /// Reads or writes `/proc/TID/mem`, which is opened by this process. So the access itself can be
    /// made by one that may not trace the target. The kernel also gives out pages there that the
    /// process itself may not read, and writes to its private pages that it may not write. None
    /// where it does not open that file.
    #[expect(clippy::disallowed_methods, reason = "the kernel's file of a thread")]
    fn by_file(
        &self,
        operation: &'static str,
        how: &OpenOptions,
        mut access: impl FnMut(&File) -> io::Result<usize>,
    ) -> Option<Result<usize>> {
        crate::watch::alive();
        let mut opened = std::iter::once(self.tid)
            .chain(self.others())
            .filter_map(|tid| {
                let path = format!("/proc/{tid}/mem");
                Some((tid, with_added(|| how.open(path)).ok()?))
            })
            // The file of a thread that has ended is empty.
            .map(|(tid, file)| (tid, in_helper_process_always(|| access(&file))))
            .filter(|(_, done)| !matches!(done, Ok(0)));
        let (tid, done) = opened.next()?;
        Some(done.map_err(|source| Error::System {
            operation,
            tid,
            source: match source.raw_os_error() {
                // This is how that file says that nothing is mapped there.
                Some(libc::EIO) => io::Error::from_raw_os_error(libc::EFAULT),
                _ => source,
            },
        }))
    }

    /// Reads `len` bytes.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_vec(&self, at: RemoteAddr, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a native-endian 8-byte word.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_u64(&self, at: RemoteAddr) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Reads a native-endian 4-byte word.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_u32(&self, at: RemoteAddr) -> Result<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    /// Writes all of `bytes` to memory that the target may write. Page protections are respected,
    /// except where a filter that we are under forbids the call, or only this process may make it
    /// (a descendant under Yama): then the write goes through `/proc/TID/mem`.
    ///
    /// # Errors
    /// As [`Memory::read`]; after [`Error::Short`] the first `done` bytes are written.
    pub fn write(&self, at: RemoteAddr, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let len = self.touchable("process_vm_writev", at, bytes.len())?;
        // The kernel only reads through this pointer for a write; iovec has no const form.
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: len,
        };
        let remote = libc::iovec {
            iov_base: at.get() as usize as *mut libc::c_void,
            iov_len: len,
        };
        let call = |tid: Tid| {
            // SAFETY: `local` lies within the shared slice and is only read; `remote` is only a
            // number to the kernel, which checks it.
            unsafe { libc::process_vm_writev(tid.raw(), &local, 1, &remote, 1, 0) }
        };
        let here = must_be_here(self.tid);
        let by_file = || {
            let own = bytes.get(..len).unwrap_or_default();
            self.by_file(WRITING, OpenOptions::new().write(true), |file| {
                file.write_at(own, at.get())
            })
        };
        let written = here
            .then(by_file)
            .flatten()
            .unwrap_or_else(|| self.through_any("process_vm_writev", here, call));
        let done = match written {
            // As in `read_some`.
            Err(error) if is_as_by_a_filter(&error) => by_file().unwrap_or(Err(error))?,
            written => written?,
        };
        fault::step("process_vm_writev");
        self.whole("process_vm_writev", at, done, bytes.len())
    }

    /// Writes also to private pages that are not writable, such as our own code page (it is never
    /// writable and executable at once). Use it only while the calling thread holds a thread of the
    /// target by ptrace. The way is `/proc/TID/mem`; where that may not be opened (its mode is the
    /// owner's alone, and ptrace asks for no permission of files), or the kernel's policy does not
    /// let it override (`proc_mem.force_override`), it is the held thread.
    ///
    /// # Errors
    /// [`Error::System`] when the kernel refuses both.
    #[expect(clippy::disallowed_methods, reason = "the kernel's file of a thread")]
    pub fn write_through(&self, at: RemoteAddr, bytes: &[u8]) -> Result<()> {
        let failed = |source: io::Error| Error::System {
            operation: WRITING,
            tid: self.tid,
            source,
        };
        let through = |tid: Tid| {
            let path = format!("/proc/{tid}/mem");
            let file = with_added(|| OpenOptions::new().write(true).open(path))?;
            in_helper_process_always(|| file.write_all_at(bytes, at.get()))
        };
        if let Err(error) = through(self.tid) {
            // The thread may have ended while others live on.
            let mut others = self.others();
            let done = others.any(|tid| through(tid).is_ok()) || self.poke(at.get(), bytes);
            if !done {
                return Err(failed(error));
            }
        }
        fault::step(WRITING);
        Ok(())
    }

    /// Writes through the thread that the calling thread holds, in words. Whether that was all done.
    fn poke(&self, at: u64, bytes: &[u8]) -> bool {
        const WORD: u64 = size_of::<u64>() as u64;
        // The kernel answers ESRCH for threads that this one does not hold.
        let mut all = std::iter::once(self.tid).chain(self.others());
        let Some(held) = all.find(|&tid| peek_word(tid, at).is_ok()) else {
            return false;
        };
        let mut word_at = at - at % WORD;
        let end = at.saturating_add(bytes.len() as u64);
        while word_at < end {
            let Ok(word) = peek_word(held, word_at) else {
                return false;
            };
            let mut word = word.to_ne_bytes();
            for (byte, place) in word.iter_mut().zip(word_at..) {
                let index = place
                    .checked_sub(at)
                    .and_then(|index| usize::try_from(index).ok());
                if let Some(new) = index.and_then(|index| bytes.get(index)) {
                    *byte = *new;
                }
            }
            if poke_word(held, word_at, u64::from_ne_bytes(word)).is_err() {
                return false;
            }
            word_at += WORD;
        }
        true
    }

    /// Makes `call` through thread `tid`, or through another thread of its process once that one
    /// has ended. A leader may end at any time, and its process then goes on. `here` tells that only
    /// this process may make it.
    fn through_any(
        &self,
        operation: &'static str,
        here: bool,
        call: impl Fn(Tid) -> isize,
    ) -> Result<usize> {
        crate::watch::alive();
        let answer = |tid: Tid| {
            let ask = || {
                with_added(|| usize::try_from(call(tid)).map_err(|_| Error::last(operation, tid)))
            };
            // A page may have to come from a user's file system. Another process waits for it.
            if here {
                ask()
            } else {
                in_helper_process_always(ask)
            }
        };
        match answer(self.tid) {
            Err(error) if error.is_gone() => {
                let another = self.others().find_map(|tid| match answer(tid) {
                    Err(error) if error.is_gone() => None,
                    other => Some(other),
                });
                another.unwrap_or(Err(error))
            }
            other => other,
        }
    }

    /// The other threads of the process, which `/proc` lists as long as it still knows `tid`.
    #[expect(clippy::disallowed_methods, reason = "the kernel's file of a thread")]
    fn others(&self) -> impl Iterator<Item = Tid> {
        let tid = self.tid;
        std::fs::read_dir(format!("/proc/{tid}/task"))
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(move |&other| other != tid)
    }

    fn whole(
        &self,
        operation: &'static str,
        at: RemoteAddr,
        done: usize,
        wanted: usize,
    ) -> Result<()> {
        if done == wanted {
            return Ok(());
        }
        Err(Error::Short {
            operation,
            tid: self.tid,
            address: at.get(),
            done,
            wanted,
        })
    }
}

/// Reads a word of a thread's memory that the calling thread holds, whatever its protection.
fn peek_word(tid: Tid, at: u64) -> Result<u64> {
    let mut word = 0_u64;
    // SAFETY: the kernel's call (not the C library's) stores the word where the last argument says,
    // which is a live word. The address is the tracee's.
    unsafe {
        let to = &raw mut word as usize;
        raw_request(
            "PTRACE_PEEKDATA",
            libc::PTRACE_PEEKDATA,
            tid,
            at as usize,
            to,
        )?;
    }
    Ok(word)
}

/// Writes such a word.
fn poke_word(tid: Tid, at: u64, word: u64) -> Result<()> {
    // SAFETY: both arguments are numbers to this process: an address of the tracee's, and the word.
    unsafe {
        raw_request(
            "PTRACE_POKEDATA",
            libc::PTRACE_POKEDATA,
            tid,
            at as usize,
            word as usize,
        )
    }
}

/// Makes a ptrace request by the kernel's own call.
///
/// # Safety
/// As for [`crate::stop::request`].
unsafe fn raw_request(
    operation: &'static str,
    code: libc::c_uint,
    tid: Tid,
    addr: usize,
    data: usize,
) -> Result<()> {
    // SAFETY: the caller's.
    match unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::c_long::from(code),
            tid.raw(),
            addr,
            data,
        )
    } {
        -1 => Err(Error::last(operation, tid)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helper_process::tests::{DONE, IS_RESTRICTED};
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    fn me() -> Memory {
        Memory::of(crate::Pid::own())
    }

    #[test]
    fn reads_and_writes_our_own_memory() {
        let source = *b"what is here";
        let at = RemoteAddr::new(source.as_ptr() as u64);
        assert_eq!(me().read_vec(at, source.len()).unwrap(), source);
        let sink = vec![0_u8; 12];
        me().write(RemoteAddr::new(sink.as_ptr() as u64), b"what is here")
            .unwrap();
        assert_eq!(std::hint::black_box(&sink), b"what is here");
    }

    /// Whoever may trace a process may not open its file without a permission of files'.
    #[test]
    fn a_held_thread_writes_where_the_file_may_not_be_opened() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = crate::Pid::of_child(&child);
        let done = crate::trace(pid.leader(), || {
            let seized = crate::Seized::seize(pid, false).unwrap();
            seized.interrupt().unwrap();
            let deadline = crate::Deadline::after(std::time::Duration::from_secs(60));
            let held = seized.wait_for_event(deadline).unwrap();
            let memory = Memory::of(pid);
            // Code, which is private and not writable. The bytes start and end within words.
            let at = held.registers().unwrap().pc() / 4096 * 4096 + 3;
            let before = memory.read_vec(RemoteAddr::new(at - 3), 24).unwrap();
            assert!(memory.write(RemoteAddr::new(at), b"poked words").is_err());
            assert!(memory.poke(at, b"poked words"));
            let after = memory.read_vec(RemoteAddr::new(at - 3), 24).unwrap();
            (before, after)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let (before, after) = done.unwrap();
        assert_eq!((&after[..3], &after[14..]), (&before[..3], &before[14..]));
        assert_eq!(&after[3..14], b"poked words");
        // No tracer holds this one.
        assert!(!me().poke(before.as_ptr() as u64, b"x"));
    }

    /// Runs this on a thread whose filter lets these calls fail with EPERM.
    fn without<T: Send + 'static>(calls: &[i64], work: fn() -> T) -> T {
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        filtered(calls, refused, 0, work)
    }

    /// Runs this on a thread whose filter does so to these calls. Who listens to it answers nothing.
    fn filtered<T: Send + 'static>(
        calls: &[i64],
        action: u32,
        flags: libc::c_ulong,
        work: fn() -> T,
    ) -> T {
        let word = |code: u32, jf: u8, k: u32| libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf,
            k,
        };
        let mut filter = vec![word(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
        for call in calls {
            filter.push(word(libc::BPF_JMP | libc::BPF_JEQ, 1, *call as u32));
            filter.push(word(libc::BPF_RET, 0, action));
        }
        filter.push(word(libc::BPF_RET, 0, libc::SECCOMP_RET_ALLOW));
        let thread = std::thread::spawn(move || {
            let program = libc::sock_fprog {
                len: filter.len() as u16,
                filter: filter.as_mut_ptr(),
            };
            // SAFETY: both calls concern this thread alone; the program lives for the call.
            let listener = unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                let mode = libc::SECCOMP_SET_MODE_FILTER;
                libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program)
            };
            assert!(listener >= 0, "{}", std::io::Error::last_os_error());
            let result = work();
            if flags & libc::SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
                // SAFETY: the call above returned this descriptor, and no other code knows it.
                unsafe { libc::close(listener as i32) };
            }
            result
        });
        thread.join().unwrap()
    }

    #[test]
    fn memory_is_read_from_its_file_where_a_filter_forbids_the_call() {
        static SOURCE: [u8; 12] = *b"what is here";
        let seen = without(&[libc::SYS_process_vm_readv], || {
            let at = RemoteAddr::new(SOURCE.as_ptr() as u64);
            let unmapped = me().read_vec(RemoteAddr::new(16), 8).unwrap_err();
            // Only what answers is read, that is, half of it.
            let half = Memory::answering(crate::Pid::own(), Arc::new(Half));
            let mut bytes = [0; 12];
            let some = half.read_some(at, &mut bytes).unwrap();
            let gone = Memory::of(Tid::MAX).read_u32(at).unwrap_err();
            (
                me().read_vec(at, SOURCE.len()).unwrap(),
                unmapped.errno(),
                bytes[..some].to_vec(),
                gone.errno(),
            )
        });
        assert_eq!(
            seen,
            (
                SOURCE.to_vec(),
                Some(libc::EFAULT),
                SOURCE[..6].to_vec(),
                // There is no such file, so this is what the call said.
                Some(libc::EPERM)
            )
        );
    }

    /// Yama lets no process that runs in a helper process trace a descendant of this one. What is read and written
    /// there once kept this process a zombie, with a page that a user served.
    #[test]
    fn memory_of_a_descendant_is_touched_by_a_helper_through_a_file_that_is_opened_here() {
        static PLACE: [AtomicU8; 12] = [const { AtomicU8::new(b'.') }; 12];
        let done = || DONE.replace(0);
        IS_RESTRICTED.set(true);
        let at = RemoteAddr::new(PLACE.as_ptr() as u64);
        me().write(at, b"what is here").unwrap();
        assert_eq!(done(), 1);
        assert_eq!(me().read_vec(at, PLACE.len()).unwrap(), b"what is here");
        assert_eq!(done(), 1);
        me().write_through(at, b"what was").unwrap();
        assert_eq!(done(), 1);
        let half = Memory::answering(crate::Pid::own(), Arc::new(Half));
        let mut bytes = [0; 12];
        assert_eq!(half.read_some(at, &mut bytes).unwrap(), 6);
        assert_eq!(&bytes[..6], b"what w");
        let unmapped = me().read_u32(RemoteAddr::new(16)).unwrap_err();
        assert_eq!(unmapped.errno(), Some(libc::EFAULT));
        assert_eq!(done(), 2);
        // Tracing itself is done here, where it is allowed.
        let traced = crate::in_helper_process(crate::own_tid(), std::process::id);
        assert_eq!((traced, done()), (std::process::id(), 0));
        IS_RESTRICTED.set(false);
    }

    #[test]
    fn memory_is_written_to_its_file_where_a_filter_forbids_the_call() {
        static SINK: [AtomicU8; 12] = [const { AtomicU8::new(0) }; 12];
        let seen = without(&[libc::SYS_process_vm_writev], || {
            let at = RemoteAddr::new(SINK.as_ptr() as u64);
            let unmapped = me().write(RemoteAddr::new(16), b"x").unwrap_err();
            me().write(at, b"what is here").unwrap();
            // Only what answers is written, that is, half of it.
            let half = Memory::answering(crate::Pid::own(), Arc::new(Half));
            let short = half.write(at, b"something else").unwrap_err();
            let gone = Memory::of(Tid::MAX).write(at, b"x").unwrap_err();
            let short = matches!(short, Error::Short { done: 7, .. });
            (unmapped.errno(), short, gone.errno())
        });
        assert_eq!(seen, (Some(libc::EFAULT), true, Some(libc::EPERM)));
        let bytes: Vec<u8> = SINK.iter().map(|byte| byte.load(Relaxed)).collect();
        assert_eq!(bytes, b"somethi here");
    }

    #[derive(Debug)]
    struct Half;

    impl Answers for Half {
        fn answering(&self, _at: u64, len: usize) -> usize {
            len / 2
        }
        fn mapped(&self, _at: u64, _len: usize) {}
    }

    #[test]
    fn a_filter_that_forbids_tracing_is_told_from_none() {
        let asked = || crate::sys::ptrace_refused().and_then(|error| error.raw_os_error());
        assert_eq!(asked(), None);
        assert_eq!(without(&[libc::SYS_getpid], asked), None);
        assert_eq!(without(&[libc::SYS_ptrace], asked), Some(libc::EPERM));
    }

    /// A filter may hand the call to a supervisor, which never answers here.
    #[test]
    fn a_filter_that_holds_whoever_traces_is_told_in_time() {
        let began = std::time::Instant::now();
        let said = filtered(
            &[libc::SYS_ptrace],
            libc::SECCOMP_RET_USER_NOTIF,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            || crate::sys::ptrace_refused().map(|error| error.to_string()),
        );
        assert_eq!(said.as_deref(), Some("whoever calls it is held"));
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }

    #[test]
    fn an_unmapped_address_is_an_error_with_errno() {
        let error = me().read_vec(RemoteAddr::new(16), 8).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EFAULT));
        assert!(me().write(RemoteAddr::new(16), b"x").is_err());
    }

    #[test]
    fn no_such_thread_is_gone() {
        assert!(
            Memory::of(Tid::MAX)
                .read_u32(RemoteAddr::new(16))
                .unwrap_err()
                .is_gone()
        );
    }
}
