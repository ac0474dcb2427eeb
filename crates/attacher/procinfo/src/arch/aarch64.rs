//! Reading stacks on aarch64.

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use midair_ptrace::{FrameRegisters, Memory, RemoteAddr};

pub(crate) type FrameUnwinder = UnwinderAarch64<crate::unwind_limits::Shared>;
pub(crate) type FrameCache = CacheAarch64;

/// The address bits of user code, 52 at most (Documentation/arch/arm64/memory). A signed return
/// address carries its signature in the bits above them.
const ADDRESS_BITS: u64 = (1 << 52) - 1;

/// The registers that unwinding starts with.
pub(crate) fn unwind_registers(_pc: u64, sp: u64, frame: FrameRegisters) -> UnwindRegsAarch64 {
    UnwindRegsAarch64::new_with_ptr_auth_mask(PtrAuthMask(ADDRESS_BITS), frame.lr, sp, frame.fp)
}

/// Returns `from` plus the signed field of `bits` bits at `shift` of an instruction, times `scale`.
fn relative(from: u64, instruction: u32, shift: u32, bits: u32, scale: i64) -> u64 {
    let field = i64::from((instruction >> shift) & ((1 << bits) - 1));
    let sign = 1_i64 << (bits - 1);
    from.wrapping_add_signed(((field ^ sign) - sign).wrapping_mul(scale))
}

/// Returns the target of the call instruction (`bl`) that ends before `after`. The targets of calls
/// through registers are not known.
pub(crate) fn called(memory: &Memory, after: u64) -> Option<u64> {
    let at = after.wrapping_sub(4);
    call_target(at, memory.read_u32(RemoteAddr::new(at)).ok()?)
}

fn call_target(at: u64, instruction: u32) -> Option<u64> {
    (instruction >> 26 == 0b10_0101).then(|| relative(at, instruction, 0, 26, 4))
}

/// Returns the address of the word through which the call instruction before `after` goes, by an
/// entry of a procedure linkage table.
pub(crate) fn call_slot(memory: &Memory, after: u64) -> Option<u64> {
    slot_of(memory, called(memory, after)?)
}

/// Returns where an entry of a procedure linkage table jumps to.
pub(crate) fn through_linkage_table(memory: &Memory, entry: u64) -> Option<u64> {
    let slot = slot_of(memory, entry)?;
    memory.read_u64(RemoteAddr::new(slot)).ok()
}

/// Returns the address of the word through which an entry of a procedure linkage table jumps. Such
/// an entry is an optional `bti c`, then `adrp x16, page; ldr x17, [x16, #slot]`.
fn slot_of(memory: &Memory, entry: u64) -> Option<u64> {
    let bytes = memory.read_vec(RemoteAddr::new(entry), 12).ok()?;
    let mut words = [0_u32; 3];
    for (word, piece) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*piece);
    }
    linkage_slot(entry, words)
}

fn linkage_slot(entry: u64, words: [u32; 3]) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let (at, page, load) = match words {
        [BTI_C, page, load] => (entry.wrapping_add(4), page, load),
        [page, load, _] => (entry, page, load),
    };
    // adrp x16; ldr x17, [x16, #imm12 * 8]
    if page & 0x9f00_001f != 0x9000_0010 || load & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let high = (page >> 5) & 0x7_ffff;
    let low = (page >> 29) & 3;
    let base = relative(at & !0xfff, high << 2 | low, 0, 21, 4096);
    Some(base.wrapping_add(u64::from((load >> 10) & 0xfff) * 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_forward_and_back() {
        // bl .+8, bl .-4, blr x8
        assert_eq!(call_target(0x1000, 0x9400_0002), Some(0x1008));
        assert_eq!(call_target(0x1000, 0x97ff_ffff), Some(0xffc));
        assert_eq!(call_target(0x1000, 0xd63f_0100), None);
    }

    #[test]
    fn linkage_tables_with_and_without_a_landing_pad() {
        // adrp x16, +0x1f000; ldr x17, [x16, #0xf90]; add x16, x16, #0xf90
        let plain = [0xf000_00f0, 0xf947_ca11, 0x913e_4210];
        assert_eq!(linkage_slot(0x1_0400, plain), Some(0x2_ff90));
        let padded = [0xd503_245f, 0xf000_00f0, 0xf947_ca11];
        assert_eq!(linkage_slot(0x1_0400, padded), Some(0x2_ff90));
        assert_eq!(linkage_slot(0x1_0400, [0xd65f_03c0, 0, 0]), None);
    }
}
