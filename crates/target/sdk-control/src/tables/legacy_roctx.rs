//! Finds where the old roctracer's libroctx64.so.4, which has no tables, stores its callback
//! (`midair_sdk_hot::markers::legacy`).

use super::elf;
use super::maps::Maps;

/// The function that stores the callback.
const SETTER: &str = "roctxRegisterTracerCallback";

/// Returns the variable of a loaded old library; `None` when the module is not that library.
pub(crate) fn variable_of(maps: &Maps, module: &elf::Module<'_>) -> Option<Result<usize, String>> {
    let setter = module.symbol(SETTER)?;
    let variable = stored_at(maps, setter)
        .filter(|variable| variable.is_multiple_of(8) && maps.is_writable(*variable, 8));
    Some(variable.ok_or_else(|| format!("{SETTER} of {} is not the known code", module.name)))
}

/// AMD made the old library for x86-64 alone.
#[cfg(not(target_arch = "x86_64"))]
fn stored_at(_maps: &Maps, _function: usize) -> Option<usize> {
    None
}

/// Returns where a function stores its first argument, if it does nothing else: `mov
/// %rdi,variable(%rip); ret`.
#[cfg(target_arch = "x86_64")]
fn stored_at(maps: &Maps, function: usize) -> Option<usize> {
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};
    let mut code = [0; 16];
    if !maps.is_text(function) || !maps.read(function, &mut code) {
        return None;
    }
    let mut decoder = Decoder::with_ip(64, &code, function as u64, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.mnemonic() == Mnemonic::Endbr64 {
        instruction = decoder.decode();
    }
    let stores = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand()
        && instruction.op1_register() == Register::RDI;
    let returns = decoder.decode().mnemonic() == Mnemonic::Ret;
    (stores && returns).then(|| instruction.ip_rel_memory_address() as usize)
}
