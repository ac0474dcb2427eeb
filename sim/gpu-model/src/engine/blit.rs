//! ROCr's own kernels that copy and fill device memory.
//!
//! Kernels compute nothing here, but ROCr prepares its structures for samples of program counters by
//! these two. They are recognised by their first instructions and carried out as a whole. Other kernels
//! of ROCr, such as the one for unaligned copies, are left alone.

use crate::log::Dispatch;
use crate::machine::Machine;
use crate::sampling::entry_of;

/// The first instructions, which load the arguments.
const COPY: [u32; 10] = [
    0xc00a_0100,
    0,
    0xc00a_0200,
    0x10,
    0xc00a_0300,
    0x20,
    0xc00a_0400,
    0x30,
    0xc00a_0500,
    0x40,
];
const FILL: [u32; 7] = [
    0xc00a_0100,
    0,
    0xc00a_0200,
    0x10,
    0xbf8c_c07f,
    0x8e02_8602,
    0x3200_0002,
];

/// Does what a kernel of ROCr does.
pub(super) fn run(machine: &impl Machine, dispatch: &Dispatch) {
    let entry = entry_of(machine, dispatch.kernel_object);
    let begins = |words: &[u32]| {
        (0..)
            .zip(words)
            .all(|(n, word)| machine.load_u32(entry + 4 * n) == *word)
    };
    let argument = |n: u64| machine.load_u64(dispatch.kernarg + 8 * n);
    if begins(&COPY) {
        // Four phases of consecutive memory, each with its source and destination; the ends last.
        let (from, to, end) = (argument(0), argument(1), argument(8));
        machine.copy(to, from, end.saturating_sub(from));
    } else if begins(&FILL) {
        let (to, end) = (argument(0), argument(2));
        let value = machine.load_u32(dispatch.kernarg + 24).to_le_bytes();
        machine.fill(to, &value, end.saturating_sub(to));
    }
}
