
#[doc(hidden)]
#[allow(warnings, clippy::all)]
pub mod mutant_switch {
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    const NONE: u32 = u32::MAX;
    const UNREAD: u32 = u32::MAX - 1;
    const LOG: u32 = u32::MAX - 2;
    static CHOSEN: AtomicU32 = AtomicU32::new(UNREAD);
    static REACHED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

    /// Which of a place's mutants is on: 0 is its first one.
    #[inline(always)]
    pub fn at(first: u32) -> u32 {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen < LOG || chosen == NONE {
            return chosen.wrapping_sub(first);
        }
        slow(first)
    }

    #[inline(always)]
    pub fn on(number: u32) -> bool {
        at(number) == 0
    }

    #[cold]
    fn slow(first: u32) -> u32 {
        if CHOSEN.load(Ordering::Relaxed) == UNREAD {
            read();
        }
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if chosen == LOG {
            let reached = REACHED.load(Ordering::Relaxed);
            // SAFETY: the file has a byte for each mutant.
            unsafe { reached.add(first as usize).write_volatile(1) };
            return NONE;
        }
        chosen.wrapping_sub(first)
    }

    unsafe extern "C" {
        fn open(path: *const std::ffi::c_char, flags: i32, ...) -> i32;
        fn lseek(fd: i32, offset: i64, whence: i32) -> i64;
        fn mmap(at: *mut u8, length: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> *mut u8;
        fn close(fd: i32) -> i32;
        fn getsid(pid: i32) -> i32;
        #[link_name = "read"]
        fn read_some(fd: i32, to: *mut u8, length: usize) -> isize;
    }

    /// What the runner wrote for this session. Tests may clear the environment of the programs that
    /// they start, but these stay in the session.
    fn read() {
        // SAFETY: the buffers are of the given lengths, and the path ends with a zero.
        unsafe {
            let mut said = [0u8; 256];
            let path = format!("/tmp/midair-mutants/{}\0", getsid(0));
            let fd = open(path.as_ptr().cast(), 0);
            let mut length = 0;
            if fd >= 0 {
                length = read_some(fd, said.as_mut_ptr(), said.len() - 1).max(0) as usize;
                close(fd);
            }
            let text = std::str::from_utf8(&said[..length]).unwrap_or("");
            let mut chosen = NONE;
            if let Ok(number) = text.parse() {
                chosen = number;
            } else if length > 0 && length < 255 {
                let fd = open(said.as_ptr().cast(), 2);
                let length = lseek(fd, 0, 2);
                let at = mmap(std::ptr::null_mut(), length as usize, 3, 1, fd, 0);
                close(fd);
                if at as isize != -1 {
                    REACHED.store(at, Ordering::Relaxed);
                    chosen = LOG;
                }
            }
            CHOSEN.store(chosen, Ordering::Relaxed);
        }
    }

}
