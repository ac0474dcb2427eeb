//! The files that the disassembler may be.

use std::ffi::OsString;
use std::path::PathBuf;

/// AMD's library, by the names of ROCm 7 and 6, by which the loader finds it as well. HIP needs it, so
/// that each machine with HIP has it.
const LIBRARIES: [&str; 2] = ["libamd_comgr.so.3", "libamd_comgr.so.2"];
/// LLVM's program. ROCm has it below its own directory, and Debian with a number behind it.
const PROGRAM: &str = "llvm-objdump";
/// The oldest and the newest of Debian's numbers.
const NUMBERS: std::ops::RangeInclusive<u32> = 15..=22;

/// The start of an argument of the helper that names a library.
pub const LIBRARY: &str = "library=";
/// The start of an argument of the helper that names a program.
pub const OBJDUMP: &str = "objdump=";

/// What to install where there is no disassembler.
pub const REMEDY: &str = "install ROCm's comgr (libamd_comgr.so) or LLVM's llvm-objdump";

/// Returns the helper's arguments: what it tries, in this order. `roots` are where ROCm is installed.
pub fn arguments(roots: &[PathBuf]) -> Vec<OsString> {
    let with = |start: &str, file: OsString| {
        let mut argument = OsString::from(start);
        argument.push(file);
        argument
    };
    let mut all = Vec::new();
    for root in roots {
        for name in LIBRARIES {
            all.push(with(LIBRARY, root.join("lib").join(name).into()));
        }
    }
    all.extend(LIBRARIES.map(|name| with(LIBRARY, name.into())));
    for root in roots {
        all.push(with(OBJDUMP, root.join("llvm/bin").join(PROGRAM).into()));
    }
    all.push(with(OBJDUMP, PROGRAM.into()));
    for number in NUMBERS.rev() {
        all.push(with(OBJDUMP, format!("{PROGRAM}-{number}").into()));
    }
    all
}
