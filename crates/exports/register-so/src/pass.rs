//! `attach` and `detach` as they are exported. They determine which function a call is meant for
//! and jump to it, with every register preserved that may contain an argument. See
//! [`midair_register::pass`].

use midair_register::pass::{self, Name};
use std::ffi::c_void;

/// The target of a call that no function is found for.
extern "C" fn nowhere() -> u64 {
    0
}

/// Returns the function to jump to. The two functions below call it with the return address of the
/// call and their own number.
extern "C" fn choose(caller: *const c_void, which: u64) -> *const c_void {
    let name = if which == 0 {
        Name::Attach
    } else {
        Name::Detach
    };
    midair_capi_build::edge(None, || pass::target(name, caller)).unwrap_or(nowhere as *const c_void)
}

/// Defines a function that calls `choose` and jumps. Across the call it preserves the integer
/// argument registers, `rax` (the number of vector registers of a variadic call), `r10` (the static
/// chain), and the vector registers. These are preserved completely where the CPU has XSAVE (all
/// but AMX), otherwise only the eight that carry arguments. When the jump is made, the stack is as
/// at the call. So the other function's frame directly follows the caller's, for exceptions as
/// well.
///
/// On aarch64 it preserves `x0` to `x15`, `x18` (a static chain or the platform's register) and the
/// 128 bits of `q0` to `q7`. Only a function whose symbol says so takes longer vectors (SVE), and
/// ours does not say so.
macro_rules! pass_through {
    ($(#[$meta:meta])* $name:ident, $which:literal) => {
        $(#[$meta])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                "endbr64",
                "push rbp",
                "mov rbp, rsp",
                "push rbx",
                "push r12",
                "push rax",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push r10",
                "mov eax, 1",
                "xor ecx, ecx",
                "cpuid",
                "mov rbx, rsp",
                "sub rsp, 2880",
                "and rsp, -64",
                // ECX bit 27: the operating system lets programs use XSAVE.
                "bt ecx, 27",
                "setc r12b",
                "jnc 2f",
                // The header must be zero. x87 is left out, since it carries no arguments.
                "xor eax, eax",
                "mov [rsp + 512], rax",
                "mov [rsp + 520], rax",
                "mov [rsp + 528], rax",
                "mov [rsp + 536], rax",
                "mov [rsp + 544], rax",
                "mov [rsp + 552], rax",
                "mov [rsp + 560], rax",
                "mov [rsp + 568], rax",
                "mov eax, 0xe6",
                "xor edx, edx",
                "xsave64 [rsp]",
                "jmp 3f",
                "2:",
                "movaps [rsp], xmm0",
                "movaps [rsp + 16], xmm1",
                "movaps [rsp + 32], xmm2",
                "movaps [rsp + 48], xmm3",
                "movaps [rsp + 64], xmm4",
                "movaps [rsp + 80], xmm5",
                "movaps [rsp + 96], xmm6",
                "movaps [rsp + 112], xmm7",
                "3:",
                "mov rdi, [rbp + 8]",
                concat!("mov esi, ", $which),
                "call {choose}",
                "mov r11, rax",
                "test r12b, r12b",
                "jz 4f",
                "mov eax, 0xe6",
                "xor edx, edx",
                "xrstor64 [rsp]",
                "jmp 5f",
                "4:",
                "movaps xmm0, [rsp]",
                "movaps xmm1, [rsp + 16]",
                "movaps xmm2, [rsp + 32]",
                "movaps xmm3, [rsp + 48]",
                "movaps xmm4, [rsp + 64]",
                "movaps xmm5, [rsp + 80]",
                "movaps xmm6, [rsp + 96]",
                "movaps xmm7, [rsp + 112]",
                "5:",
                "mov rsp, rbx",
                "pop r10",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rax",
                "pop r12",
                "pop rbx",
                "pop rbp",
                "jmp r11",
                choose = sym choose,
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                // `bti c`, which older processors take for a `nop`.
                "hint #34",
                "stp x29, x30, [sp, #-288]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp x8, x9, [sp, #80]",
                "stp x10, x11, [sp, #96]",
                "stp x12, x13, [sp, #112]",
                "stp x14, x15, [sp, #128]",
                "str x18, [sp, #144]",
                "stp q0, q1, [sp, #160]",
                "stp q2, q3, [sp, #192]",
                "stp q4, q5, [sp, #224]",
                "stp q6, q7, [sp, #256]",
                "mov x0, x30",
                concat!("mov x1, #", $which),
                "bl {choose}",
                "mov x16, x0",
                "ldp q6, q7, [sp, #256]",
                "ldp q4, q5, [sp, #224]",
                "ldp q2, q3, [sp, #192]",
                "ldp q0, q1, [sp, #160]",
                "ldr x18, [sp, #144]",
                "ldp x14, x15, [sp, #128]",
                "ldp x12, x13, [sp, #112]",
                "ldp x10, x11, [sp, #96]",
                "ldp x8, x9, [sp, #80]",
                "ldp x6, x7, [sp, #64]",
                "ldp x4, x5, [sp, #48]",
                "ldp x2, x3, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #288",
                "br x16",
                choose = sym choose,
            )
        }
    };
}

pass_through!(
    /// First generation, `attach(uint32_t)`: attaches to a process through the attach library
    /// alongside this one, unless the caller means another function of this name.
    attach,
    "0"
);
pass_through!(
    /// First generation, `detach()`: ends what [`attach`] started, and is forwarded in the same way.
    detach,
    "1"
);
