//! The code that runs in the target before any midair library is there. First comes the stub,
//! which runs on the borrowed thread, and then the start of the worker thread. The code is
//! position-independent and uses no stack of the application. It takes everything else from the
//! boot block, whose address is in `rbx` throughout.
//!
//! Decisions: ENG-002, ENG-007 (`docs/deviations/engine.md`).

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
    "mov eax, 10", // mprotect(data, PROT_READ | PROT_WRITE)
    "mov rdi, [rbx + {data_base}]",
    "mov rsi, [rbx + {data_len}]",
    "mov edx, 3",
    "syscall",
    "test eax, eax",
    "js 5f",
    // A new thread inherits the floating point control of its maker. A program that traps on
    // division by zero, or flushes small numbers to zero, must not do so to our code. The borrowed
    // thread gets its own control words back with the rest of its state.
    "fninit",
    "mov dword ptr [rsp - 8], 0x1f80",
    "ldmxcsr [rsp - 8]",
    "lea r12, [rbx + {attributes}]",
    "mov rdi, r12",
    "call [rbx + {fn_attr_init}]",
    "test eax, eax",
    "jnz 2f",
    "mov rdi, r12",
    "mov esi, 1", // PTHREAD_CREATE_DETACHED
    "call [rbx + {fn_attr_setdetachstate}]",
    "test eax, eax",
    "jnz 2f",
    "mov rdi, r12",
    "mov rsi, [rbx + {stack_base}]",
    "mov rdx, [rbx + {stack_len}]",
    "call [rbx + {fn_attr_setstack}]",
    "test eax, eax",
    "jnz 2f",
    "lea rdi, [rbx + {thread}]",
    "mov rsi, r12",
    "lea rdx, [rip + 10f]",
    "mov rcx, rbx",
    "call [rbx + {fn_pthread_create}]",
    "test eax, eax",
    "jnz 2f",
    "mov dword ptr [rbx + {stub_result}], 1",
    "jmp 3f",
    "2:",
    "mov [rbx + {error}], eax",
    "mov dword ptr [rbx + {error_step}], {STEP_THREAD}",
    "mov dword ptr [rbx + {stub_result}], 2",
    "3:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov r13, rax",
    "mov r14d, [rbx + {stub_turn_ticks}]",
    "dec r14", // 0 wraps around: it never yields
    "4:",
    "pause",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, r13",
    "cmp rax, [rbx + {stub_patience_ticks}]",
    "jae 5f",
    "cmp rax, r14",
    "jb 4b",
    // A thread that waits for this processor may hold the lock of the mappings, which the attacher
    // needs to read the result.
    "mov eax, 24", // sched_yield
    "syscall",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "sub rax, r13",
    "mov r14d, [rbx + {stub_turn_ticks}]",
    "add r14, rax",
    "jmp 4b",
    // No tracer stopped the thread in time, so it restores itself. (It also comes here if the data
    // cannot be made writable. It can then leave no error.)
    "5:",
    "mov rsp, [rbx + {sigframe}]",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    "ud2",
    // ---- The worker thread.
    ".balign 16",
    "10:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "mov rbx, rdi",
    "mov eax, 14", // rt_sigprocmask(SIG_SETMASK, all)
    "mov edi, 2",
    "lea rsi, [rbx + {all_signals}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "mov eax, 186", // gettid
    "syscall",
    "mov [rbx + {tid}], eax",
    "mov eax, 157", // prctl(PR_SET_NAME)
    "mov edi, 15",
    "lea rsi, [rbx + {name}]",
    "syscall",
    "mov eax, 144", // sched_setscheduler(0, SCHED_OTHER)
    "xor edi, edi",
    "xor esi, esi",
    "lea rdx, [rbx + {sched}]",
    "syscall",
    "mov esi, [rbx + {affinity_len}]",
    "test esi, esi",
    "jz 11f",
    "mov eax, 203", // sched_setaffinity(0)
    "xor edi, edi",
    "lea rdx, [rbx + {affinity}]",
    "syscall",
    "11:",
    "mov dword ptr [rbx + {mailbox}], {STARTED}",
    "mov eax, 53", // socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC)
    "mov edi, 1",
    "mov esi, 0x80005",
    "xor edx, edx",
    "lea r10, [rbx + {pair}]",
    "syscall",
    "mov ecx, {STEP_SOCKET}",
    "test eax, eax",
    "js 30f",
    "mov eax, [rbx + {pair}]",
    "mov [rbx + {fd_near}], eax",
    "mov [rbx + {poll}], eax",
    "mov eax, [rbx + {pair} + 4]",
    "mov [rbx + {fd_far}], eax",
    "mov edi, [rbx + {fd_near}]",
    "call 80f",
    "mov [rbx + {inodes}], rax",
    "mov edi, [rbx + {fd_far}]",
    "call 80f",
    "mov [rbx + {inodes} + 8], rax",
    "mov dword ptr [rbx + {mailbox}], {OPEN}",
    "12:",
    "mov eax, 7", // poll
    "lea rdi, [rbx + {poll}]",
    "mov esi, 1",
    "mov edx, [rbx + {patience_ms}]",
    "syscall",
    "cmp eax, -4",
    "je 12b",
    "mov ecx, {STEP_SILENCE}",
    "test eax, eax",
    "jle 30f",
    "13:",
    "mov eax, 47", // recvmsg(MSG_CMSG_CLOEXEC)
    "mov edi, [rbx + {fd_near}]",
    "lea rsi, [rbx + {message}]",
    "mov edx, 0x40000000",
    "syscall",
    "cmp eax, -4",
    "je 13b",
    "mov ecx, {STEP_RECEIVE}",
    "test eax, eax",
    "js 30f",
    "mov ecx, {STEP_SILENCE}",
    "jz 30f",
    "mov edi, [rbx + {fd_far}]",
    "mov dword ptr [rbx + {fd_far}], -1",
    "mov rsi, [rbx + {inodes} + 8]",
    "call 81f",
    "mov dword ptr [rbx + {mailbox}], {TALKING}",
    // The guard page is protected only now, when no process reads this process's memory any more
    // while one of its threads is held. The call takes the lock of the mappings, and if a thread
    // lost its processor meanwhile, it would keep the attacher waiting.
    "mov eax, 10", // mprotect(guard, PROT_NONE)
    "mov rdi, [rbx + {guard_base}]",
    "mov rsi, [rbx + {guard_len}]",
    "xor edx, edx",
    "syscall",
    // This process was forked from one that had the library. So its entry is called, and nothing is
    // loaded.
    "mov rax, [rbx + {fn_entry}]",
    "test rax, rax",
    "jz 16f",
    "mov rdi, rbx",
    "call rax",
    "jmp 40f",
    "16:",
    // No descriptor came with the message: the attacher has no loadable segments, which is no error.
    "cmp qword ptr [rbx + {message} + 40], 20",
    "jb 40f",
    "mov r12d, [rbx + {control} + 16]",
    "mov eax, 72", // fcntl(F_DUPFD_CLOEXEC)
    "mov edi, r12d",
    "mov esi, 1030",
    "mov edx, [rbx + {library_fd}]",
    "syscall",
    "mov r13d, eax",
    "mov eax, 3",
    "mov edi, r12d",
    "syscall",
    "mov eax, r13d",
    "mov ecx, {STEP_RECEIVE}",
    "test eax, eax",
    "js 30f",
    "mov [rbx + {library_fd}], eax",
    "mov edi, eax",
    "call 80f",
    "mov [rbx + {inodes} + 16], rax",
    "mov eax, r13d",
    // Append the number in decimal to "/proc/thread-self/fd/".
    "lea rdi, [rbx + {path} + 21]",
    "mov ecx, 10",
    "xor r8d, r8d",
    "14:",
    "xor edx, edx",
    "div ecx",
    "add edx, 48",
    "push rdx",
    "inc r8d",
    "test eax, eax",
    "jnz 14b",
    "15:",
    "pop rax",
    "mov [rdi], al",
    "inc rdi",
    "dec r8d",
    "jnz 15b",
    "mov byte ptr [rdi], 0",
    "lea rdi, [rbx + {path}]",
    "mov esi, 2", // RTLD_NOW | RTLD_LOCAL
    "call [rbx + {fn_dlopen}]",
    "mov r14, rax",
    "mov r12d, {STEP_LOAD}",
    "test rax, rax",
    "jnz 17f",
    // dlopen refused. Find out whether the path can be opened at all, with the same call as the
    // loader's, so that no seccomp filter objects to it more than to the loader's.
    "mov eax, 257", // openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC)
    "mov edi, -100",
    "lea rsi, [rbx + {path}]",
    "mov edx, 0x80000",
    "xor r10d, r10d",
    "syscall",
    "mov edi, eax",
    "mov r12d, {STEP_PATH}",
    "test eax, eax",
    "js 17f",
    "mov r12d, {STEP_LOAD}",
    "mov eax, 3", // close
    "syscall",
    "17:",
    "mov edi, r13d",
    "mov rsi, [rbx + {inodes} + 16]",
    "call 81f",
    "test r14, r14",
    "jz 20f",
    "mov rdi, r14",
    "lea rsi, [rbx + {entry}]",
    "call [rbx + {fn_dlsym}]",
    "mov ecx, {STEP_ENTRY}",
    "test rax, rax",
    "jz 30f",
    "mov rdi, rbx",
    "call rax",
    "jmp 40f",
    // ---- dlopen refused: copy its message, which is freed with this thread.
    "20:",
    "call [rbx + {fn_dlerror}]",
    "lea rdi, [rbx + {error_copy}]",
    "mov [rbx + {error_text}], rdi",
    "mov ecx, {ERROR_MOST}",
    "test rax, rax",
    "jz 22f",
    "21:",
    "mov dl, [rax]",
    "test dl, dl",
    "jz 22f",
    "mov [rdi], dl",
    "inc rax",
    "inc rdi",
    "dec ecx",
    "jnz 21b",
    "22:",
    "mov byte ptr [rdi], 0",
    "mov ecx, r12d",
    "xor eax, eax",
    // ---- Failed: eax is the negative errno or 0, ecx is the step.
    "30:",
    "neg eax",
    "mov [rbx + {error}], eax",
    "mov [rbx + {error_step}], ecx",
    "mov dword ptr [rbx + {mailbox}], {FAILED}",
    // ---- The end: close the descriptors that are open.
    "40:",
    "mov edi, [rbx + {fd_far}]",
    "cmp edi, -1",
    "je 41f",
    "mov dword ptr [rbx + {fd_far}], -1",
    "mov rsi, [rbx + {inodes} + 8]",
    "call 81f",
    "41:",
    "mov edi, [rbx + {fd_near}]",
    "cmp edi, -1",
    "je 42f",
    // An empty message tells the attacher that nothing more comes, as closing the socket would. The
    // thread then waits until the attacher has hung up, since the attacher may want to trace the
    // thread to its end. It waits no longer than for anything else.
    "call 80f",
    "cmp rax, [rbx + {inodes}]",
    "jne 44f",
    "mov [rbx + {poll}], edi",
    "mov dword ptr [rbx + {poll} + 4], 0",
    "mov eax, 44", // sendto(MSG_DONTWAIT | MSG_NOSIGNAL)
    "lea rsi, [rbx + {name}]",
    "xor edx, edx",
    "mov r10d, 0x4040",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "syscall",
    "43:",
    "mov eax, 7", // poll
    "lea rdi, [rbx + {poll}]",
    "mov esi, 1",
    "mov edx, [rbx + {patience_ms}]",
    "syscall",
    "cmp eax, -4",
    "je 43b",
    "44:",
    "mov edi, [rbx + {fd_near}]",
    "mov dword ptr [rbx + {fd_near}], -1",
    "mov rsi, [rbx + {inodes}]",
    "call 81f",
    "42:",
    "mov dword ptr [rbx + {mailbox}], {ENDED}",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "xor eax, eax",
    "ret",
    // ---- Returns the inode of descriptor edi in rax, or 0 if there is none: newfstatat(edi, "",
    // AT_EMPTY_PATH). Keeps edi and rsi.
    "80:",
    "push rsi",
    "sub rsp, 144", // struct stat
    "mov rdx, rsp",
    "lea rsi, [rbx + {sched}]",
    "mov r10d, 0x1000",
    "mov eax, 262",
    "syscall",
    "test eax, eax",
    "mov eax, 0",
    "jnz 82f",
    "mov rax, [rsp + 8]", // st_ino
    "82:",
    "add rsp, 144",
    "pop rsi",
    "ret",
    // ---- Closes descriptor edi if its inode is rsi. If it is not, the number is now the
    // program's.
    "81:",
    "call 80b",
    "cmp rax, rsi",
    "jne 83f",
    "mov eax, 3",
    "syscall",
    "83:",
    "ret",
    // ---- One system call that the attacher has the worker thread make when that is about to end.
    // An exit follows it, so that the thread ends even if the attacher dies.
    ".globl midair_blob_call",
    ".hidden midair_blob_call",
    "midair_blob_call:",
    "syscall",
    "50:",
    "xor edi, edi",
    "mov eax, 60", // exit
    "syscall",
    "jmp 50b",
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
    stub_turn_ticks = const offset_of!(BootBlock, stub_turn_ticks),
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
    static midair_blob_call: u8;
    static midair_blob_end: u8;
}

/// Returns the offset of the instruction with which a worker thread that is about to end makes
/// system calls. An `exit` follows it.
pub(crate) fn last_call() -> Option<u64> {
    let (begin, call) = (&raw const midair_blob_begin, &raw const midair_blob_call);
    Some((call as u64).wrapping_sub(begin as u64))
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
    use super::*;

    #[test]
    fn the_code_fits_its_page_and_begins_with_the_stub() {
        let bytes = code();
        assert!(bytes.len() > 256 && bytes.len() <= 4096, "{}", bytes.len());
        // mov eax, 10
        assert_eq!(bytes[..5], [0xb8, 10, 0, 0, 0]);
        // ret; syscall; then: xor edi, edi; mov eax, 60; syscall; back.
        let at = usize::try_from(last_call().unwrap()).unwrap();
        let end = [
            0xc3, 0x0f, 0x05, 0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf5,
        ];
        assert_eq!(bytes[at - 1..], end);
    }
}
