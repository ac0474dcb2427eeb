//! Tells from the functions on a stack whether a thread may be borrowed.
//!
//! The borrowed thread calls `pthread_create`, which allocates memory and takes the lock of the C
//! library's list of threads. A thread that holds, or waits for, a lock of the allocator or of the
//! loader must not do so. Neither must a thread in the middle of fork or exit, or of setting up
//! what these call. Locks of stdio do not matter: no function that is called takes them.

/// Why a function on the stack rules a thread out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hazard {
    /// A memory allocator.
    Allocator,
    /// A sanitizer, which has an allocator and locks of its own.
    Sanitizer,
    /// The dynamic loader.
    Loader,
    /// fork and what it calls.
    Fork,
    /// exit, and handlers at exit.
    Exit,
    /// Another thread is being made.
    ThreadCreation,
}

impl Hazard {
    /// Returns the words for a message.
    pub fn words(self) -> &'static str {
        match self {
            Hazard::Allocator => "inside the memory allocator",
            Hazard::Sanitizer => "inside a function of a sanitizer",
            Hazard::Loader => "inside the dynamic loader",
            Hazard::Fork => "inside fork",
            Hazard::Exit => "inside exit",
            Hazard::ThreadCreation => "making a thread",
        }
    }
}

const ALLOCATOR: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "cfree",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "pvalloc",
    "malloc_trim",
    "malloc_info",
    "malloc_stats",
    "mallinfo",
    "mallinfo2",
    "mallopt",
    "malloc_usable_size",
    "free_sized",
    "free_aligned_sized",
    "sysmalloc",
    "systrim",
    "heap_trim",
    "arena_get2",
    "arena_get_retry",
    "new_arena",
    "ptmalloc_init",
    "mallocx",
    "rallocx",
    "xallocx",
    "sallocx",
    "dallocx",
    "sdallocx",
    "mallctl",
    "malloc_stats_print",
];
const ALLOCATOR_PREFIXES: &[&str] = &[
    "__libc_malloc",
    "__libc_calloc",
    "__libc_realloc",
    "__libc_free",
    "__libc_memalign",
    "__malloc_",
    "_int_malloc",
    "_int_free",
    "_int_realloc",
    "_int_memalign",
    "malloc_consolidate",
    "tcache_",
    "je_",
    "_rjem_",
    "tc_",
    "mi_",
    "_mi_",
    "__scudo_",
    "_Znw",
    "_Zna",
    "_Zdl",
    "_Zda",
    "rpmalloc",
    "rpfree",
    "_ZN8tcmalloc",
    "_ZN8snmalloc",
    "_ZN5scudo",
];
const ALLOCATOR_FILES: &[&str] = &[
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhoard",
    "libscudo",
    "libmemkind",
    "libtbbmalloc",
];
const SANITIZER_PREFIXES: &[&str] = &[
    "__interceptor_",
    "___interceptor_",
    "__asan_",
    "__tsan_",
    "__lsan_",
    "__msan_",
    "__hwasan_",
    "__sanitizer_",
    "_ZN11__sanitizer",
    "_ZN6__asan",
    "_ZN6__lsan",
    "_ZN6__tsan",
];
const SANITIZER_FILES: &[&str] = &["libasan", "libtsan", "liblsan", "libhwasan", "libclang_rt."];
const LOADER: &[&str] = &[
    "dlopen",
    "dlmopen",
    "dlclose",
    "dlsym",
    "dlvsym",
    "dladdr",
    "dladdr1",
    "dlinfo",
    "dlerror",
    "dl_iterate_phdr",
    "_dl_find_object",
    "__tls_get_addr",
];
const LOADER_PREFIXES: &[&str] = &[
    "_dl_",
    "__libc_dlopen",
    "__libc_dlsym",
    "__libc_dlclose",
    "__dl_iterate",
    "__dlopen",
];
const FORK: &[&str] = &[
    "fork",
    "__fork",
    "__libc_fork",
    "_Fork",
    "vfork",
    "__vfork",
    "__run_fork_handlers",
    "__run_prefork_handlers",
    "pthread_atfork",
    "__register_atfork",
    "forkpty",
];
const EXIT: &[&str] = &[
    "exit",
    "quick_exit",
    "_exit",
    "abort",
    "__cxa_finalize",
    "__run_exit_handlers",
    "__cxa_at_quick_exit",
    "__cxa_atexit",
    "__cxa_thread_atexit_impl",
    "atexit",
    "on_exit",
    "at_quick_exit",
    "thrd_exit",
    "__nptl_deallocate_tsd",
    "__nptl_deallocate_stack",
    "__nptl_free_tcb",
    "__libc_atexit",
    "__call_tls_dtors",
    "pthread_exit",
    "__pthread_exit",
];
const THREAD: &[&str] = &["pthread_create", "__pthread_create_2_1", "thrd_create"];

/// Functions of the C library that work on the bytes that they are given, and on nothing else: they
/// take no lock, keep nothing and call nothing.
pub const PURE: &[&str] = &[
    "memcpy",
    "memmove",
    "mempcpy",
    "memset",
    "memcmp",
    "bcmp",
    "bcopy",
    "bzero",
    "memchr",
    "memrchr",
    "rawmemchr",
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcpy",
    "strncpy",
    "stpcpy",
    "stpncpy",
    "strcat",
    "strncat",
    "strchr",
    "strchrnul",
    "strrchr",
    "__memcpy_chk",
    "__memmove_chk",
    "__mempcpy_chk",
    "__memset_chk",
];

/// Judges a function by its name.
pub fn function_hazard(name: &str) -> Option<Hazard> {
    // Symbol versions are not part of the names here, but the compiler's suffixes are.
    let name = name.split('.').next().unwrap_or(name);
    let is = |list: &[&str], prefixes: &[&str]| {
        list.contains(&name) || prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    if is(ALLOCATOR, ALLOCATOR_PREFIXES) {
        Some(Hazard::Allocator)
    } else if is(&[], SANITIZER_PREFIXES) {
        Some(Hazard::Sanitizer)
    } else if is(LOADER, LOADER_PREFIXES) {
        Some(Hazard::Loader)
    } else if is(FORK, &[]) {
        Some(Hazard::Fork)
    } else if is(EXIT, &[]) {
        Some(Hazard::Exit)
    } else if is(THREAD, &[]) {
        Some(Hazard::ThreadCreation)
    } else {
        None
    }
}

/// Judges a whole library by its file name.
pub fn file_hazard(file_name: &[u8]) -> Option<Hazard> {
    let is = |prefixes: &[&str]| {
        let mut prefixes = prefixes.iter();
        prefixes.any(|prefix| file_name.starts_with(prefix.as_bytes()))
    };
    if is(ALLOCATOR_FILES) {
        return Some(Hazard::Allocator);
    }
    if is(SANITIZER_FILES) {
        return Some(Hazard::Sanitizer);
    }
    // ld-linux-x86-64.so.2, ld-2.31.so, ld.so.1
    if file_name.starts_with(b"ld-") || file_name.starts_with(b"ld.so") {
        return Some(Hazard::Loader);
    }
    None
}

/// What a thread waits for, according to the function of the C library that it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// A condition, a semaphore, a barrier or the end of a thread: something that the program
    /// itself waits for.
    Condition,
    /// A lock of the program. It is harmless unless it is an allocator's.
    Lock,
    /// Time, descriptors or children.
    Call,
}

const CONDITIONS: &[&str] = &[
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "sem_wait",
    "sem_timedwait",
    "sem_clockwait",
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "pthread_barrier_wait",
    "cnd_wait",
    "cnd_timedwait",
    "thrd_join",
];
const LOCKS: &[&str] = &[
    "pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_mutex_clocklock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_rwlock_timedrdlock",
    "pthread_rwlock_timedwrlock",
    "pthread_rwlock_clockrdlock",
    "pthread_rwlock_clockwrlock",
    "mtx_lock",
    "mtx_timedlock",
];
const CALLS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "thrd_sleep",
    "read",
    "recv",
    "recvfrom",
    "recvmsg",
    "accept",
    "accept4",
    "wait4",
    "waitpid",
    "waitid",
    "wait",
    "ioctl",
    "pause",
    "sigsuspend",
];

/// Returns what a function waits for. None if it is not one in which a parked thread may be.
pub fn wait_in(name: &str) -> Option<Wait> {
    let name = name.split('.').next().unwrap_or(name);
    let bare = name
        .strip_prefix("___")
        .or(name.strip_prefix("__"))
        .unwrap_or(name);
    let bare = bare.strip_prefix("libc_").unwrap_or(bare);
    let bare = bare.strip_prefix("new_").unwrap_or(bare);
    let bare = bare.strip_suffix("64").unwrap_or(bare);
    if CONDITIONS.contains(&bare) {
        Some(Wait::Condition)
    } else if LOCKS.contains(&bare) {
        Some(Wait::Lock)
    } else if CALLS.contains(&bare) {
        Some(Wait::Call)
    } else {
        None
    }
}

/// Returns true for the C library's own helpers around a futex or a cancellable call. They tell
/// nothing about the wait, but their callers do.
pub fn is_helper(name: &str) -> bool {
    const HELPERS: &[&str] = &[
        "__futex_",
        "futex_",
        "__lll_",
        "lll_",
        "__pthread_cond_wait_common",
        "__pthread_cond_timedwait_common",
        "__new_sem_wait_slow",
        "do_futex_wait",
        "__pthread_clockjoin_ex",
        "__pthread_mutex_lock_full",
        "__internal_syscall_cancel",
        "__syscall_cancel",
        "__pthread_mutex_cond_lock",
    ];
    HELPERS.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grounds() {
        for (name, ground) in [
            ("malloc", Hazard::Allocator),
            ("_Znwm", Hazard::Allocator),
            ("_int_malloc.constprop.0", Hazard::Allocator),
            ("je_arena_choose", Hazard::Allocator),
            ("__interceptor_pthread_join", Hazard::Sanitizer),
            ("_dl_open", Hazard::Loader),
            ("dl_iterate_phdr", Hazard::Loader),
            ("fork", Hazard::Fork),
            ("exit", Hazard::Exit),
            ("__cxa_atexit", Hazard::Exit),
            ("pthread_atfork", Hazard::Fork),
            ("pthread_create", Hazard::ThreadCreation),
        ] {
            assert_eq!(function_hazard(name), Some(ground), "{name}");
        }
        for name in [
            "main",
            "freed",
            "poll",
            "hsaKmtWaitOnEvent",
            "existing",
            "tcp_read",
            "midair",
        ] {
            assert_eq!(function_hazard(name), None, "{name}");
        }
        assert_eq!(file_hazard(b"ld-linux-x86-64.so.2"), Some(Hazard::Loader));
        assert_eq!(file_hazard(b"libjemalloc.so.2"), Some(Hazard::Allocator));
        assert_eq!(file_hazard(b"libhsa-runtime64.so.1"), None);
    }

    #[test]
    fn waits() {
        assert_eq!(wait_in("pthread_cond_wait"), Some(Wait::Condition));
        assert_eq!(wait_in("__pthread_cond_clockwait64"), Some(Wait::Condition));
        assert_eq!(wait_in("__new_sem_wait"), Some(Wait::Condition));
        assert_eq!(wait_in("pthread_mutex_lock"), Some(Wait::Lock));
        assert_eq!(wait_in("__libc_read"), Some(Wait::Call));
        for name in ["fflush", "malloc", "syscall", "__lll_lock_wait_private", ""] {
            assert_eq!(wait_in(name), None, "{name}");
        }
        assert!(is_helper("__lll_lock_wait_private") && !is_helper("pthread_cond_wait"));
    }
}
