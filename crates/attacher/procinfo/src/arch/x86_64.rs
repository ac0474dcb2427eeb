//! Reading stacks on x86-64.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use midair_ptrace::{FrameRegisters, Memory, RemoteAddr};

pub(crate) type FrameUnwinder = UnwinderX86_64<crate::unwind_limits::Shared>;
pub(crate) type FrameCache = CacheX86_64;

/// The registers that unwinding starts with.
pub(crate) fn unwind_registers(pc: u64, sp: u64, frame: FrameRegisters) -> UnwindRegsX86_64 {
    UnwindRegsX86_64::new(pc, sp, frame.fp)
}

/// Returns `from` plus a signed 32-bit offset.
fn relative(from: u64, offset: &[u8]) -> Option<u64> {
    let offset = i32::from_le_bytes(offset.try_into().ok()?);
    Some(from.wrapping_add_signed(i64::from(offset)))
}

/// Returns the target of the call instruction that ends before `after`. Direct calls and calls
/// through a global offset table are known, others are not.
pub(crate) fn called(memory: &Memory, after: u64) -> Option<u64> {
    match call_before(memory, after)? {
        Call::To(target) => Some(target),
        Call::Through(slot) => memory.read_u64(RemoteAddr::new(slot)).ok(),
    }
}

/// Returns the address of the word through which the call instruction before `after` goes: one of a
/// global offset table, directly or by an entry of a procedure linkage table.
pub(crate) fn call_slot(memory: &Memory, after: u64) -> Option<u64> {
    match call_before(memory, after)? {
        Call::To(target) => linkage_slot(memory, target),
        Call::Through(slot) => Some(slot),
    }
}

enum Call {
    To(u64),
    /// The target is in the word at this address.
    Through(u64),
}

fn call_before(memory: &Memory, after: u64) -> Option<Call> {
    let before = memory
        .read_vec(RemoteAddr::new(after.wrapping_sub(6)), 6)
        .ok()?;
    match before.as_slice() {
        [0xff, 0x15, slot @ ..] => relative(after, slot).map(Call::Through),
        [_, 0xe8, offset @ ..] => relative(after, offset).map(Call::To),
        _ => None,
    }
}

/// Returns where an entry of a procedure linkage table jumps to.
pub(crate) fn through_linkage_table(memory: &Memory, entry: u64) -> Option<u64> {
    let slot = linkage_slot(memory, entry)?;
    memory.read_u64(RemoteAddr::new(slot)).ok()
}

/// Returns the address of the word through which an entry of a procedure linkage table jumps. In
/// such an entry `endbr64` and `bnd` are optional before `jmp *slot(%rip)`.
fn linkage_slot(memory: &Memory, entry: u64) -> Option<u64> {
    let bytes = memory.read_vec(RemoteAddr::new(entry), 11).ok()?;
    let mut at = 0;
    if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        at += 4;
    }
    if bytes.get(at) == Some(&0xf2) {
        at += 1;
    }
    let jump = bytes.get(at..at + 6)?;
    let slot = jump.strip_prefix(&[0xff, 0x25])?;
    relative(entry.wrapping_add(at as u64 + 6), slot)
}
