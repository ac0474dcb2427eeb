//! `attach` and `detach` as they are exported: they determine where the call belongs and jump
//! there, with every register that may contain an argument preserved. See
//! [`midair_register::pass`].

use midair_register::pass::{self, Name};
use std::ffi::c_void;

/// Target of a call that belongs nowhere.
extern "C" fn nowhere() -> u64 {
    0
}

/// Called from the two functions below with the return address of the call and the number of the
/// function.
extern "C" fn choose(caller: *const c_void, which: u64) -> *const c_void {
    let name = if which == 0 {
        Name::Attach
    } else {
        Name::Detach
    };
    midair_capi_build::edge(None, || pass::target(name, caller)).unwrap_or(nowhere as *const c_void)
}

/// A function that calls `choose` and jumps. Across that it preserves the integer argument
/// registers, `rax` (number of vector registers of a variadic call), `r10` (static chain), and the
/// vector registers: completely where the CPU has XSAVE (all but AMX), otherwise the eight that
/// carry arguments. When the jump is made the stack is as at the call, so the other function's
/// frame directly follows the caller's, for exceptions, too.
macro_rules! pass_through {
    ($(#[$meta:meta])* $name:ident, $which:literal) => {
        $(#[$meta])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
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
                // The header must be zero; x87 is left out, since it carries no arguments.
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
            )
        }
    };
}

pass_through!(
    /// First generation, `attach(uint32_t)`: attaches to a process through the attach library
    /// beside this one, unless the caller means another function of this name.
    attach,
    "0"
);
pass_through!(
    /// First generation, `detach()`: the end of what [`attach`] began, in the same way.
    detach,
    "1"
);
