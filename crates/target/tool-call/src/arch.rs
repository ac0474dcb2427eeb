//! The catching frame: a function in assembly that calls another one, and returns whichever way
//! that call ends.
//!
//! `midair_tool_call(function, data, stack_pointer)` saves all registers that a callee must
//! preserve, stores its stack pointer, and calls `function(data)`. It returns null when that
//! function returns. Otherwise it continues at `midair_tool_landing`, with its result in the first
//! register. The unwinder gets there because of [`personality`]; `midair_tool_leave` jumps there
//! with a stored stack pointer.

use crate::exception::{Exception, personality};
use std::arch::global_asm;
use std::ffi::c_void;

/// A function that is called with data, and that an exception may leave.
pub(crate) type Function = unsafe extern "C-unwind" fn(*mut c_void);

unsafe extern "C-unwind" {
    #[link_name = "midair_tool_call"]
    pub(crate) fn call(
        function: Function,
        data: *mut c_void,
        stack_pointer: *mut usize,
    ) -> *mut Exception;
}

unsafe extern "C" {
    #[link_name = "midair_tool_leave"]
    pub(crate) fn leave(stack_pointer: usize, result: *mut c_void) -> !;
    #[link_name = "midair_tool_landing"]
    static LANDING: u8;
}

/// Returns the address at which the unwinder has to continue.
pub(crate) fn landing() -> usize {
    (&raw const LANDING).addr()
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .data.rel.ro,\"aw\",@progbits",
    ".p2align 3",
    ".Lmidair_tool_personality:",
    ".quad {personality}",
    ".popsection",
    ".pushsection .text.midair_tool_call,\"ax\",@progbits",
    ".globl midair_tool_call",
    ".hidden midair_tool_call",
    ".type midair_tool_call,@function",
    ".globl midair_tool_landing",
    ".hidden midair_tool_landing",
    ".globl midair_tool_leave",
    ".hidden midair_tool_leave",
    ".type midair_tool_leave,@function",
    ".p2align 4",
    "midair_tool_call:",
    ".cfi_startproc",
    // 0x9b: the encoding is indirect, relative, four bytes.
    ".cfi_personality 0x9b, .Lmidair_tool_personality",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "push rbx",
    ".cfi_offset rbx, -24",
    "push r12",
    ".cfi_offset r12, -32",
    "push r13",
    ".cfi_offset r13, -40",
    "push r14",
    ".cfi_offset r14, -48",
    "push r15",
    ".cfi_offset r15, -56",
    "sub rsp, 8",
    "mov [rdx], rsp",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    "midair_tool_landing:",
    "lea rsp, [rbp - 40]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    ".cfi_restore rbp",
    "ret",
    ".cfi_endproc",
    ".size midair_tool_call, . - midair_tool_call",
    "midair_tool_leave:",
    "mov rsp, rdi",
    "lea rbp, [rdi + 48]",
    "mov rax, rsi",
    "jmp midair_tool_landing",
    ".size midair_tool_leave, . - midair_tool_leave",
    ".popsection",
    personality = sym personality,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .data.rel.ro,\"aw\",@progbits",
    ".p2align 3",
    ".Lmidair_tool_personality:",
    ".xword {personality}",
    ".popsection",
    ".pushsection .text.midair_tool_call,\"ax\",@progbits",
    ".globl midair_tool_call",
    ".hidden midair_tool_call",
    ".type midair_tool_call,@function",
    ".globl midair_tool_landing",
    ".hidden midair_tool_landing",
    ".globl midair_tool_leave",
    ".hidden midair_tool_leave",
    ".type midair_tool_leave,@function",
    ".p2align 4",
    "midair_tool_call:",
    ".cfi_startproc",
    ".cfi_personality 0x9b, .Lmidair_tool_personality",
    "stp x29, x30, [sp, #-160]!",
    ".cfi_def_cfa_offset 160",
    ".cfi_offset x29, -160",
    ".cfi_offset x30, -152",
    "mov x29, sp",
    ".cfi_def_cfa x29, 160",
    "stp x19, x20, [sp, #16]",
    ".cfi_offset x19, -144",
    ".cfi_offset x20, -136",
    "stp x21, x22, [sp, #32]",
    ".cfi_offset x21, -128",
    ".cfi_offset x22, -120",
    "stp x23, x24, [sp, #48]",
    ".cfi_offset x23, -112",
    ".cfi_offset x24, -104",
    "stp x25, x26, [sp, #64]",
    ".cfi_offset x25, -96",
    ".cfi_offset x26, -88",
    "stp x27, x28, [sp, #80]",
    ".cfi_offset x27, -80",
    ".cfi_offset x28, -72",
    "stp d8, d9, [sp, #96]",
    ".cfi_offset b8, -64",
    ".cfi_offset b9, -56",
    "stp d10, d11, [sp, #112]",
    ".cfi_offset b10, -48",
    ".cfi_offset b11, -40",
    "stp d12, d13, [sp, #128]",
    ".cfi_offset b12, -32",
    ".cfi_offset b13, -24",
    "stp d14, d15, [sp, #144]",
    ".cfi_offset b14, -16",
    ".cfi_offset b15, -8",
    "mov x9, sp",
    "str x9, [x2]",
    "mov x9, x0",
    "mov x0, x1",
    "blr x9",
    "mov x0, xzr",
    "midair_tool_landing:",
    "mov sp, x29",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "ldp x29, x30, [sp], #160",
    ".cfi_def_cfa sp, 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size midair_tool_call, . - midair_tool_call",
    "midair_tool_leave:",
    "mov sp, x0",
    "mov x29, x0",
    "mov x0, x1",
    "b midair_tool_landing",
    ".size midair_tool_leave, . - midair_tool_leave",
    ".popsection",
    personality = sym personality,
);
