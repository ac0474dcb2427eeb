//! The code that runs in the target before any midair library is there. First comes the stub,
//! which runs on the borrowed thread, and then the start of the worker thread. The code is
//! position-independent and uses no stack of the application. It takes everything else from the
//! boot block, whose address is in `x19` throughout. Both places that are branched to indirectly
//! start with a landing pad (`bti c`, which processors without branch target identification
//! ignore).

// `unsafe` is only needed to take the bytes between two labels of the assembly below.
#![allow(unsafe_code)]

use std::arch::global_asm;
use std::mem::offset_of;

use midair_record::boot::{BootBlock, mailbox, step};

use crate::arch::scratch::{ERROR_BYTES, at};

global_asm!(
    ".pushsection .rodata.midair_blob, \"a\", @progbits",
    ".balign 16",
    ".globl midair_blob_begin",
    ".hidden midair_blob_begin",
    "midair_blob_begin:",
    // ---- The stub: make one detached thread, store the result, and wait to be stopped again. All
    // midair's memory is readable and executable at first. Everything but this page is now made
    // writable instead. Nothing was written before, not even to the stack.
    "hint #34", // bti c
    "mov x8, #226", // mprotect(data, PROT_READ | PROT_WRITE)
    "ldr x0, [x19, #{data_base}]",
    "ldr x1, [x19, #{data_len}]",
    "mov x2, #3",
    "svc #0",
    "tbnz x0, #63, 5f",
    "add x20, x19, #{attributes}",
    "mov x0, x20",
    "ldr x9, [x19, #{fn_attr_init}]",
    "blr x9",
    "cbnz w0, 2f",
    "mov x0, x20",
    "mov w1, #1", // PTHREAD_CREATE_DETACHED
    "ldr x9, [x19, #{fn_attr_setdetachstate}]",
    "blr x9",
    "cbnz w0, 2f",
    "mov x0, x20",
    "ldr x1, [x19, #{stack_base}]",
    "ldr x2, [x19, #{stack_len}]",
    "ldr x9, [x19, #{fn_attr_setstack}]",
    "blr x9",
    "cbnz w0, 2f",
    "add x0, x19, #{thread}",
    "mov x1, x20",
    "adr x2, 10f",
    "mov x3, x19",
    "ldr x9, [x19, #{fn_pthread_create}]",
    "blr x9",
    "cbnz w0, 2f",
    "mov w9, #1",
    "b 3f",
    "2:",
    "str w0, [x19, #{error}]",
    "mov w9, #{STEP_THREAD}",
    "str w9, [x19, #{error_step}]",
    "mov w9, #2",
    "3:",
    "add x10, x19, #{stub_result}",
    "stlr w9, [x10]",
    "mrs x21, cntvct_el0",
    "4:",
    "yield",
    "mrs x9, cntvct_el0",
    "sub x9, x9, x21",
    "ldr x10, [x19, #{stub_patience_ticks}]",
    "cmp x9, x10",
    "b.lo 4b",
    // No tracer stopped the thread in time, so it restores itself. (It also comes here if the data
    // cannot be made writable. It can then leave no error.)
    "5:",
    "ldr x9, [x19, #{sigframe}]",
    "mov sp, x9",
    "mov x8, #139", // rt_sigreturn
    "svc #0",
    "brk #1",
    // ---- The worker thread.
    ".balign 16",
    "10:",
    "hint #34", // bti c
    "stp x29, x30, [sp, #-64]!",
    "mov x29, sp",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "mov x19, x0",
    // A new thread inherits the floating point control of its maker, and the program's thread may
    // have enabled traps or chosen another rounding mode.
    "msr fpcr, xzr",
    "mov x8, #135", // rt_sigprocmask(SIG_SETMASK, all)
    "mov x0, #2",
    "add x1, x19, #{all_signals}",
    "mov x2, #0",
    "mov x3, #8",
    "svc #0",
    "mov x8, #178", // gettid
    "svc #0",
    "str w0, [x19, #{tid}]",
    "mov x8, #167", // prctl(PR_SET_NAME)
    "mov x0, #15",
    "add x1, x19, #{name}",
    "svc #0",
    "mov x8, #119", // sched_setscheduler(0, SCHED_OTHER)
    "mov x0, #0",
    "mov x1, #0",
    "add x2, x19, #{sched}",
    "svc #0",
    "ldr w1, [x19, #{affinity_len}]",
    "cbz w1, 11f",
    "mov x8, #122", // sched_setaffinity(0)
    "mov x0, #0",
    "add x2, x19, #{affinity}",
    "svc #0",
    "11:",
    // x22 is the address of the mailbox from here on.
    "add x22, x19, #{mailbox}",
    "mov w9, #{STARTED}",
    "stlr w9, [x22]",
    "mov x8, #199", // socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
    "mov x0, #1",
    "mov w1, #5",
    "movk w1, #8, lsl #16",
    "mov x2, #0",
    "add x3, x19, #{pair}",
    "svc #0",
    "mov w20, #{STEP_SOCKET}",
    "tbnz w0, #31, 30f",
    "ldr w9, [x19, #{pair}]",
    "str w9, [x19, #{fd_near}]",
    "str w9, [x19, #{poll}]",
    "ldr w9, [x19, #{pair} + 4]",
    "str w9, [x19, #{fd_far}]",
    "mov w0, w9",
    "bl 80f",
    "str x1, [x19, #{inodes} + 8]",
    "ldr w0, [x19, #{fd_near}]",
    "bl 80f",
    "str x1, [x19, #{inodes}]",
    "mov w9, #{OPEN}",
    "stlr w9, [x22]",
    "bl 84f",
    "13:",
    "mov x8, #73", // ppoll
    "add x0, x19, #{poll}",
    "mov x1, #1",
    "add x2, sp, #48",
    "mov x3, #0",
    "mov x4, #0",
    "svc #0",
    "cmn w0, #4",
    "b.eq 13b",
    "mov w20, #{STEP_SILENCE}",
    "cmp w0, #0",
    "b.le 30f",
    "14:",
    "mov x8, #212", // recvmsg(MSG_CMSG_CLOEXEC)
    "ldr w0, [x19, #{fd_near}]",
    "add x1, x19, #{message}",
    "mov w2, #0x40000000",
    "svc #0",
    "cmn w0, #4",
    "b.eq 14b",
    "mov w20, #{STEP_RECEIVE}",
    "tbnz w0, #31, 30f",
    "mov w20, #{STEP_SILENCE}",
    "cbz w0, 30f",
    "ldr w0, [x19, #{fd_far}]",
    "mov w9, #-1",
    "str w9, [x19, #{fd_far}]",
    "ldr x11, [x19, #{inodes} + 8]",
    "bl 81f",
    "mov w9, #{TALKING}",
    "stlr w9, [x22]",
    // The guard page is protected only now, when no process reads this process's memory any more
    // while one of its threads is held. The call takes the lock of the mappings, and if a thread
    // lost its processor meanwhile, it would keep the attacher waiting.
    "mov x8, #226", // mprotect(guard, PROT_NONE)
    "ldr x0, [x19, #{guard_base}]",
    "ldr x1, [x19, #{guard_len}]",
    "mov x2, #0",
    "svc #0",
    // The process has the library already, so its entry is called.
    "ldr x9, [x19, #{fn_entry}]",
    "cbnz x9, 19f",
    // No descriptor came with the message: the attacher has no loadable segments, which is no error.
    "ldr x9, [x19, #{message} + 40]",
    "cmp x9, #20",
    "b.lo 40f",
    "ldr w20, [x19, #{control} + 16]",
    "mov x8, #25", // fcntl(F_DUPFD_CLOEXEC)
    "mov w0, w20",
    "mov x1, #1030",
    "ldr w2, [x19, #{library_fd}]",
    "svc #0",
    "mov w21, w0",
    "mov x8, #57", // close
    "mov w0, w20",
    "svc #0",
    "mov w0, w21",
    "mov w20, #{STEP_RECEIVE}",
    "tbnz w0, #31, 30f",
    "str w0, [x19, #{library_fd}]",
    "bl 80f",
    "str x1, [x19, #{inodes} + 16]",
    // Append the number in decimal to "/proc/thread-self/fd/": first count the digits, then write
    // them from the last to the first.
    "add x9, x19, #{path} + 21",
    "mov w10, #10",
    "mov w11, w0",
    "15:",
    "add x9, x9, #1",
    "udiv w11, w11, w10",
    "cbnz w11, 15b",
    "strb wzr, [x9]",
    "mov w11, w0",
    "16:",
    "udiv w12, w11, w10",
    "msub w13, w12, w10, w11",
    "add w13, w13, #48",
    "strb w13, [x9, #-1]!",
    "mov w11, w12",
    "cbnz w11, 16b",
    "add x0, x19, #{path}",
    "mov w1, #2", // RTLD_NOW | RTLD_LOCAL
    "ldr x9, [x19, #{fn_dlopen}]",
    "blr x9",
    "mov x20, x0",
    "mov w23, #{STEP_LOAD}",
    "cbnz x0, 17f",
    // dlopen refused. Find out whether the path can be opened at all, with the same call as the
    // loader's, so that no seccomp filter objects to it more than to the loader's.
    "mov x8, #56", // openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC)
    "mov x0, #-100",
    "add x1, x19, #{path}",
    "mov w2, #0x80000",
    "mov w3, #0",
    "svc #0",
    "mov w23, #{STEP_PATH}",
    "tbnz w0, #31, 17f",
    "mov w23, #{STEP_LOAD}",
    "mov x8, #57", // close
    "svc #0",
    "17:",
    "mov w0, w21",
    "ldr x11, [x19, #{inodes} + 16]",
    "bl 81f",
    "cbz x20, 20f",
    "mov x0, x20",
    "add x1, x19, #{entry}",
    "ldr x9, [x19, #{fn_dlsym}]",
    "blr x9",
    "mov x9, x0",
    "mov w0, #0",
    "mov w20, #{STEP_ENTRY}",
    "cbz x9, 30f",
    "19:",
    "mov x0, x19",
    "blr x9",
    "b 40f",
    // ---- dlopen refused: copy its message, which is freed with this thread.
    "20:",
    "ldr x9, [x19, #{fn_dlerror}]",
    "blr x9",
    "add x10, x19, #{error_copy}",
    "str x10, [x19, #{error_text}]",
    "mov w11, #{ERROR_MOST}",
    "cbz x0, 22f",
    "21:",
    "ldrb w12, [x0], #1",
    "cbz w12, 22f",
    "strb w12, [x10], #1",
    "subs w11, w11, #1",
    "b.ne 21b",
    "22:",
    "strb wzr, [x10]",
    "mov w20, w23",
    "mov w0, #0",
    // ---- Failed: w0 is the negative errno or 0, w20 is the step.
    "30:",
    "neg w0, w0",
    "str w0, [x19, #{error}]",
    "str w20, [x19, #{error_step}]",
    "mov w9, #{FAILED}",
    "stlr w9, [x22]",
    // ---- The end: close the descriptors that are open.
    "40:",
    "mov w9, #-1",
    "ldr w0, [x19, #{fd_far}]",
    "cmn w0, #1",
    "b.eq 41f",
    "str w9, [x19, #{fd_far}]",
    "ldr x11, [x19, #{inodes} + 8]",
    "bl 81f",
    "41:",
    "ldr w0, [x19, #{fd_near}]",
    "cmn w0, #1",
    "b.eq 42f",
    // An empty message tells the attacher that nothing more comes, as closing the socket would. The
    // thread then waits until the attacher has hung up, since the attacher still wants to see that
    // the process is the same. It waits no longer than for anything else.
    "bl 80f",
    "ldr x11, [x19, #{inodes}]",
    "cmp x1, x11",
    "b.ne 44f",
    "str w0, [x19, #{poll}]",
    "str wzr, [x19, #{poll} + 4]",
    "mov x8, #206", // sendto(MSG_DONTWAIT | MSG_NOSIGNAL)
    "add x1, x19, #{name}",
    "mov x2, #0",
    "mov w3, #0x4040",
    "mov x4, #0",
    "mov x5, #0",
    "svc #0",
    "bl 84f",
    "43:",
    "mov x8, #73", // ppoll
    "add x0, x19, #{poll}",
    "mov x1, #1",
    "add x2, sp, #48",
    "mov x3, #0",
    "mov x4, #0",
    "svc #0",
    "cmn w0, #4",
    "b.eq 43b",
    "44:",
    "mov w9, #-1",
    "ldr w0, [x19, #{fd_near}]",
    "str w9, [x19, #{fd_near}]",
    "ldr x11, [x19, #{inodes}]",
    "bl 81f",
    "42:",
    "mov w9, #{ENDED}",
    "stlr w9, [x22]",
    "ldp x21, x22, [sp, #32]",
    "ldp x19, x20, [sp, #16]",
    "ldp x29, x30, [sp], #64",
    "mov x0, #0",
    "ret",
    // ---- Returns the inode of descriptor w0 in x1, or 0 if there is none: newfstatat(w0, "",
    // AT_EMPTY_PATH). Keeps w0. A system call changes no register but x0.
    "80:",
    "mov w10, w0",
    "sub sp, sp, #128", // struct stat
    "mov x8, #79",
    "add x1, x19, #{sched}",
    "mov x2, sp",
    "mov x3, #0x1000",
    "svc #0",
    "ldr x1, [sp, #8]", // st_ino
    "add sp, sp, #128",
    "cmp w0, #0",
    "csel x1, x1, xzr, eq",
    "mov w0, w10",
    "ret",
    // ---- Closes descriptor w0 if its inode is x11. If it is not, the number is now the program's.
    "81:",
    "mov x12, x30",
    "bl 80b",
    "mov x30, x12",
    "cmp x1, x11",
    "b.ne 83f",
    "mov x8, #57", // close
    "svc #0",
    "83:",
    "ret",
    // ---- Puts the time limit of a wait into [sp + 48], in seconds and nanoseconds. The kernel writes
    // the remaining time back, so a repeated call does not restart.
    "84:",
    "ldr w9, [x19, #{patience_ms}]",
    "mov w10, #1000",
    "udiv w11, w9, w10",
    "msub w12, w11, w10, w9",
    "mov w13, #16960", // 1 000 000
    "movk w13, #15, lsl #16",
    "umull x12, w12, w13",
    "stp x11, x12, [sp, #48]",
    "ret",
    ".globl midair_blob_end",
    ".hidden midair_blob_end",
    "midair_blob_end:",
    ".popsection",
    attributes = const at!(attributes),
    thread = const at!(thread),
    all_signals = const at!(all_signals),
    name = const at!(name),
    sched = const at!(sched),
    guard_base = const at!(guard_base),
    guard_len = const at!(guard_len),
    pair = const at!(pair),
    poll = const at!(poll),
    message = const at!(message),
    control = const at!(control),
    inodes = const at!(inodes),
    path = const at!(path),
    entry = const at!(entry),
    error_copy = const at!(error),
    mailbox = const offset_of!(BootBlock, mailbox),
    fd_near = const offset_of!(BootBlock, fd_near),
    fd_far = const offset_of!(BootBlock, fd_far),
    tid = const offset_of!(BootBlock, tid),
    error_step = const offset_of!(BootBlock, error_step),
    error = const offset_of!(BootBlock, error),
    library_fd = const offset_of!(BootBlock, library_fd),
    stub_result = const offset_of!(BootBlock, stub_result),
    data_base = const offset_of!(BootBlock, data_base),
    data_len = const offset_of!(BootBlock, data_len),
    affinity_len = const offset_of!(BootBlock, affinity_len),
    affinity = const offset_of!(BootBlock, affinity),
    fn_pthread_create = const offset_of!(BootBlock, fn_pthread_create),
    fn_attr_init = const offset_of!(BootBlock, fn_attr_init),
    fn_attr_setdetachstate = const offset_of!(BootBlock, fn_attr_setdetachstate),
    fn_attr_setstack = const offset_of!(BootBlock, fn_attr_setstack),
    fn_dlopen = const offset_of!(BootBlock, fn_dlopen),
    fn_dlsym = const offset_of!(BootBlock, fn_dlsym),
    fn_dlerror = const offset_of!(BootBlock, fn_dlerror),
    fn_entry = const offset_of!(BootBlock, fn_entry),
    stack_base = const offset_of!(BootBlock, stack_base),
    stack_len = const offset_of!(BootBlock, stack_len),
    sigframe = const offset_of!(BootBlock, sigframe),
    stub_patience_ticks = const offset_of!(BootBlock, stub_patience_ticks),
    error_text = const offset_of!(BootBlock, error_text),
    patience_ms = const offset_of!(BootBlock, patience_ms),
    STARTED = const mailbox::STARTED,
    OPEN = const mailbox::OPEN,
    TALKING = const mailbox::TALKING,
    FAILED = const mailbox::FAILED,
    ENDED = const mailbox::ENDED,
    STEP_SOCKET = const step::SOCKET,
    STEP_SILENCE = const step::SILENCE,
    STEP_RECEIVE = const step::RECEIVE,
    STEP_LOAD = const step::LOAD,
    STEP_PATH = const step::PATH,
    STEP_ENTRY = const step::ENTRY,
    STEP_THREAD = const step::THREAD,
    ERROR_MOST = const ERROR_BYTES - 1,
);

unsafe extern "C" {
    static midair_blob_begin: u8;
    static midair_blob_end: u8;
}

/// Returns the bytes of the code, which starts with the stub.
pub(crate) fn code() -> &'static [u8] {
    let (begin, end) = (&raw const midair_blob_begin, &raw const midair_blob_end);
    let len = end as usize - begin as usize;
    // SAFETY: the assembly above puts both labels into one read-only section of this program,
    // `begin` first. So the range is one allocation that is never written, and all bytes of it are
    // initialised.
    unsafe { std::slice::from_raw_parts(begin, len) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::mem::offset_of;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
    use std::os::unix::fs::MetadataExt;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use midair_ptrace::arch::FPSIMD_BYTES;
    use midair_ptrace::{
        Registers, RemoteAddr, SignalMask, send_bytes, send_with_descriptor, ticks_per_millisecond,
    };

    use super::super::sigframe::{GENERAL, frame_bytes, lay_out};
    use super::*;
    use crate::mappings::{CODE_LEN, Mappings, WHOLE_LEN};

    static CALLED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn entry(_block: *mut BootBlock) {
        CALLED.fetch_add(1, Ordering::SeqCst);
    }

    #[test]
    fn the_code_fits_its_page_and_begins_with_a_landing_pad() {
        let bytes = code();
        assert!(bytes.len() > 256 && bytes.len() <= 4096, "{}", bytes.len());
        assert_eq!(bytes[..4], 0xd503_245f_u32.to_le_bytes());
        assert_eq!(bytes[bytes.len() - 4..], 0xd65f_03c0_u32.to_le_bytes());
    }

    /// Runs all of the code in this process. The stub makes the thread and comes back through the
    /// frame; then the thread talks to us. `talk` is given a copy of the far end, and the numbers
    /// of both ends. Returns the boot block's `error_step`, `fd_near` and `error`, and whether the
    /// thread stays until we hang up.
    fn run(with_entry: bool, talk: impl FnOnce(&OwnedFd, [RawFd; 2])) -> (u32, u32, i32, bool) {
        // SAFETY: everything below touches only one fresh midair mapping, which is laid out as in
        // a target, and a frame that holds the values of this function's own registers.
        unsafe {
            let whole = usize::try_from(WHOLE_LEN).unwrap();
            let (rw, private) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            let base = libc::mmap(std::ptr::null_mut(), whole, rw, private, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            let mappings = Mappings::at(RemoteAddr::new(base as u64));
            let guard = (mappings.stub_stack().get(), crate::arch::PAGE);
            let zeros = Registers {
                user: std::mem::zeroed(),
                call: -1,
            };
            let mut stack = vec![0_u128; 512];
            let top = stack.as_mut_ptr().add(512) as u64;
            let mut here = zeros;
            here.user.sp = top;
            let extended = vec![0; FPSIMD_BYTES];
            let layout = lay_out(&here, &extended);
            let frame = frame_bytes(&layout, &zeros, None, SignalMask(0), &extended, layout.end);
            let context = layout.context.get() as *mut u8;
            std::ptr::copy_nonoverlapping(frame.as_ptr(), context, frame.len());
            let block = base.cast::<u8>().add(CODE_LEN as usize);
            std::ptr::copy_nonoverlapping(code().as_ptr(), base.cast(), code().len());
            let bytes = std::slice::from_raw_parts_mut(block, size_of::<BootBlock>());
            crate::arch::fill_scratch(bytes, mappings.data.get(), guard);
            let boot = block.cast::<BootBlock>();
            (*boot).fd_near = AtomicI32::new(-1);
            (*boot).fd_far = AtomicI32::new(-1);
            (*boot).library_fd = AtomicI32::new(200);
            (*boot).data_base = mappings.data.get();
            (*boot).data_len = mappings.data_len;
            (*boot).stack_base = guard.0 + guard.1;
            (*boot).stack_len = mappings.data.get() + mappings.data_len - (*boot).stack_base;
            (*boot).fn_pthread_create = libc::pthread_create as *const () as u64;
            (*boot).fn_attr_init = libc::pthread_attr_init as *const () as u64;
            (*boot).fn_attr_setdetachstate = libc::pthread_attr_setdetachstate as *const () as u64;
            (*boot).fn_attr_setstack = libc::pthread_attr_setstack as *const () as u64;
            (*boot).fn_dlopen = libc::dlopen as *const () as u64;
            (*boot).fn_dlsym = libc::dlsym as *const () as u64;
            (*boot).fn_dlerror = libc::dlerror as *const () as u64;
            (*boot).fn_entry = if with_entry {
                entry as *const () as u64
            } else {
                0
            };
            (*boot).sigframe = layout.context.get();
            (*boot).stub_patience_ticks = ticks_per_millisecond();
            (*boot).patience_ms = 20_000;
            assert_eq!(
                libc::mprotect(base, whole, libc::PROT_READ | libc::PROT_EXEC),
                0
            );
            std::arch::asm!(
                "adr x9, 2f",
                "str x9, [x20, #32 * 8]",
                "mov x9, sp",
                "str x9, [x20, #31 * 8]",
                "str x19, [x20, #19 * 8]",
                "str x29, [x20, #29 * 8]",
                "mov x19, x21",
                "mov sp, x22",
                "br x23",
                "2:",
                inout("x20") context.add(GENERAL) => _,
                inout("x21") block => _,
                inout("x22") mappings.stub_stack().get() => _,
                inout("x23") base => _,
                out("x24") _, out("x25") _, out("x26") _, out("x27") _, out("x28") _,
                clobber_abi("C"),
            );
            assert_eq!((*boot).stub_result.load(Ordering::SeqCst), 1);
            let mailbox_is = |wanted: &[u32]| {
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(20) {
                    let now = (*boot).mailbox.load(Ordering::SeqCst);
                    if wanted.contains(&now) {
                        return now;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                panic!(
                    "the mailbox says {}",
                    (*boot).mailbox.load(Ordering::SeqCst)
                )
            };
            mailbox_is(&[mailbox::OPEN]);
            assert_ne!((*boot).tid.load(Ordering::SeqCst), 0);
            let far = OwnedFd::from_raw_fd(libc::dup((*boot).fd_far.load(Ordering::SeqCst)));
            let numbers = [&(*boot).fd_near, &(*boot).fd_far];
            talk(&far, numbers.map(|number| number.load(Ordering::SeqCst)));
            // An empty message, or the end of the other side, which may have left ours unread.
            let mut byte = 0_u8;
            assert!(libc::recv(far.as_raw_fd(), (&raw mut byte).cast(), 1, 0) <= 0);
            let mut other_end = libc::pollfd {
                fd: far.as_raw_fd(),
                events: 0,
                revents: 0,
            };
            assert!(libc::poll(&raw mut other_end, 1, 0) >= 0);
            let stays = other_end.revents & libc::POLLHUP == 0;
            drop(far);
            mailbox_is(&[mailbox::ENDED]);
            drop(stack);
            (
                (*boot).error_step.load(Ordering::SeqCst),
                (*boot).fd_near.load(Ordering::SeqCst).cast_unsigned(),
                (*boot).error.load(Ordering::SeqCst),
                stays,
            )
        }
    }

    #[test]
    fn it_runs_to_its_end() {
        let nothing = run(false, |far, _| send_bytes(far.as_fd(), b"none").unwrap());
        assert_eq!(nothing, (0, u32::MAX, 0, true));
        // Three cases follow: a descriptor that is no library, a library without our entry, and an
        // entry that is there already.
        let not_one = File::open("/dev/null").unwrap();
        let bad = run(false, |far, _| {
            send_with_descriptor(far.as_fd(), b"library", not_one.as_fd()).unwrap();
        });
        assert_eq!((bad.0, bad.3), (step::LOAD, true));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find(|line| line.contains("libc.so")).unwrap();
        let libc = File::open(&libc[libc.find('/').unwrap()..]).unwrap();
        let other = run(false, |far, _| {
            send_with_descriptor(far.as_fd(), b"library", libc.as_fd()).unwrap();
        });
        assert_eq!(other.0, step::ENTRY);
        assert_eq!(CALLED.load(Ordering::SeqCst), 0);
        let ours = run(true, |far, _| send_bytes(far.as_fd(), b"none").unwrap());
        assert_eq!((ours.0, CALLED.load(Ordering::SeqCst)), (0, 1));
        assert_eq!(offset_of!(BootBlock, mailbox), 12);
        numbers_that_the_program_took_stay_open();
    }

    /// Called by the only test that runs the code, so that nothing else opens a descriptor
    /// meanwhile.
    fn numbers_that_the_program_took_stay_open() {
        let other = File::open("/dev/null").unwrap();
        let inode = other.metadata().unwrap().ino();
        // If the number of the near end was taken by the program, the thread cannot receive. If
        // the far end's was, the thread only leaves it open.
        for (taken, step) in [(0, step::RECEIVE), (1, 0)] {
            let mut number = -1;
            let done = run(false, |far, numbers| {
                number = numbers[taken];
                // SAFETY: both descriptors are open, and nothing in this process needs the one that
                // is replaced.
                assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
                send_bytes(far.as_fd(), b"none").unwrap();
            });
            assert_eq!(done.0, step);
            // SAFETY: if the number is open, it is the copy made above, which nothing else owns. If
            // it is not open, looking at it fails.
            let kept = File::from(unsafe { OwnedFd::from_raw_fd(number) });
            assert_eq!(kept.metadata().unwrap().ino(), inode, "end {taken}");
        }
    }
}
