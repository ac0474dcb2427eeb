//! The bytes of the jump, and of the page that it leads to.

use super::wait_for_session;

/// Whether entry points can be watched on this processor.
pub(super) fn can_watch() -> Result<(), String> {
    Ok(())
}

/// Returns the first 8 bytes of a function at `from` that starts with a jump to `to`: 5 bytes of
/// `jmp rel32`, and the last 3 bytes of `before`. Returns `None` if `to` is out of reach.
pub(super) fn jump(from: usize, to: usize, before: u64) -> Option<u64> {
    let distance = (to as i64).checked_sub(from as i64 + 5)?;
    let distance = i32::try_from(distance).ok()?;
    let jump = 0xe9 | u64::from(distance.cast_unsigned()) << 8;
    Some(before & !0xff_ffff_ffff | jump)
}

/// Returns the jump target in this library for function number `index`, for functions within its
/// reach.
pub(super) fn own_stub(index: usize) -> usize {
    stubs as *const () as usize + 16 * index
}

/// As [`stub`], for all numbers, 16 bytes each.
#[unsafe(naked)]
unsafe extern "C" fn stubs() {
    macro_rules! each {
        ($($number:literal)*) => {
            core::arch::naked_asm!(
                $( ".balign 16", concat!("mov eax, ", $number), "jmp {passage}", )*
                passage = sym passage,
            )
        };
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
}

/// `mov eax, index; jmp [rip+0]; .quad passage`: loads the number of the function and jumps to
/// [`passage`], at any distance.
pub(super) fn stub(index: usize) -> Vec<u8> {
    let mut code = vec![0xb8];
    code.extend((index as u32).to_le_bytes());
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend((passage as *const () as usize).to_le_bytes());
    code
}

/// Saves the arguments of the call that came here, waits, and continues the call at the function
/// that was called.
#[unsafe(naked)]
unsafe extern "C" fn passage() {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "and rsp, -16",
        "mov edi, eax",
        "call {waits}",
        "lea rsp, [rbp - 48]",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "jmp rax",
        waits = sym wait_for_session,
    )
}
