//! A repair of the driver that ROCr emulates in its model mode, in the memory of this process only.
//!
//! A thread that waits for several events passes the age at which it has seen each of them, and
//! gets the present ages back for its next wait. ROCr 7.2's emulated driver calls an event ready
//! when its age is *at least* the one passed. The age of an event that has not been raised is 0, so
//! that from its second wait on such a thread is called ready at once and looks without a pause
//! (found by reading what the function does, and by `strace`). Both threads of ROCr that run
//! handlers then occupy a processor each, in any program, for as long as it runs: they took two
//! thirds of what the tests on AMD's runtimes cost. The kernel's driver lets such a thread sleep.
//!
//! After the repair an event is ready when it has been raised. The library's file stays as it is,
//! and a library that has other code at this place is left alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// `mov (%rdx),%rsi; cmp %rsi,0x8(%rax); setae %sil`: whether the age is at least the one passed.
const AT_LEAST: [u8; 11] = [
    0x48, 0x8b, 0x32, 0x48, 0x39, 0x70, 0x08, 0x40, 0x0f, 0x93, 0xc6,
];
/// `cmpq $0,0x8(%rax); setne %sil; xchg %ax,%ax`: whether it has been raised.
const RAISED: [u8; 11] = [
    0x48, 0x83, 0x78, 0x08, 0x00, 0x40, 0x0f, 0x95, 0xc6, 0x66, 0x90,
];

/// The emulated driver is in the same source file as the function that raises events, and 4 KiB
/// behind it.
const NEAR: usize = 16 << 10;

/// Repairs the driver whose function to raise events is at this address, if it is the one that is
/// known. Called before the runtime has threads.
pub(super) fn let_them_sleep(raise: usize) {
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/proc/self/mem");
    // Without the repair everything works, and costs more.
    let _ = memory.and_then(|memory| repair(&memory, raise as u64));
}

/// Returns whether it was done.
fn repair(memory: &File, from: u64) -> io::Result<bool> {
    let mut code = vec![0; NEAR];
    let got = memory.read_at(&mut code, from)?;
    code.truncate(got);
    let mut places = (0..got).filter(|at| code[*at..].starts_with(&AT_LEAST));
    let (Some(at), None) = (places.next(), places.next()) else {
        return Ok(false);
    };
    // The kernel copies the page for this process, as it does for a debugger.
    memory.write_all_at(&RAISED, from + at as u64)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> File {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        options.open("/proc/self/mem").unwrap()
    }

    #[test]
    fn code_that_is_known_is_repaired_once() {
        let mut code = vec![0x90; 2 * NEAR];
        code[300..311].copy_from_slice(&AT_LEAST);
        let at = code.as_ptr().expose_provenance() as u64;
        assert!(repair(&memory(), at).unwrap());
        let mut now = vec![0; code.len()];
        memory().read_exact_at(&mut now, at).unwrap();
        assert_eq!(now[300..311], RAISED);
        assert!(
            now[..300]
                .iter()
                .chain(&now[311..])
                .all(|byte| *byte == 0x90)
        );
        assert!(!repair(&memory(), at).unwrap(), "nothing is left to do");
    }

    #[test]
    fn other_code_is_left_alone() {
        let mut code = vec![0x90; 2 * NEAR];
        for at in [300, 400] {
            code[at..at + 11].copy_from_slice(&AT_LEAST);
        }
        let at = code.as_ptr().expose_provenance() as u64;
        assert!(!repair(&memory(), at).unwrap(), "twice: which one?");
        assert!(!repair(&memory(), 8).is_ok_and(|done| done), "no memory");
    }
}
