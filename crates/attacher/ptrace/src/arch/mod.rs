//! The architecture-specific parts, one module for each architecture: the registers and how ptrace
//! moves them, the clock that code in a target waits by, and numbers of the ELF format. The code
//! above asks [`Registers`] for a register by its purpose, not by its name.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("there is no arch module for this processor");

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::stop::request;
use crate::{Result, Tid};

/// The number of ticks of [`ticks`]'s clock in a millisecond. It is measured once, against the
/// monotonic clock, over about 2 ms.
pub fn ticks_per_millisecond() -> u64 {
    static TICKS: OnceLock<u64> = OnceLock::new();
    *TICKS.get_or_init(|| {
        let (began, first) = (Instant::now(), ticks());
        while began.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        let (spent, last) = (began.elapsed(), ticks());
        let micros = u64::try_from(spent.as_micros()).unwrap_or(2000).max(1);
        last.wrapping_sub(first).saturating_mul(1000) / micros
    })
}

/// Reads a register set of a stopped thread into `bytes`. Returns how many bytes the kernel filled.
pub(crate) fn read_set(
    operation: &'static str,
    tid: Tid,
    set: usize,
    bytes: &mut [u8],
) -> Result<usize> {
    let mut area = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `area` is live, and names exactly the exclusive slice, which the kernel fills.
    unsafe {
        request(
            operation,
            libc::PTRACE_GETREGSET,
            tid,
            set,
            (&raw mut area) as usize,
        )
    }?;
    Ok(area.iov_len.min(bytes.len()))
}

/// Writes a register set of a stopped thread. The caller counts the operation as a step.
pub(crate) fn write_set(operation: &'static str, tid: Tid, set: usize, bytes: &[u8]) -> Result<()> {
    let area = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `area` is live, and names exactly the slice, which the kernel reads.
    unsafe {
        request(
            operation,
            libc::PTRACE_SETREGSET,
            tid,
            set,
            (&raw const area) as usize,
        )
    }
}
