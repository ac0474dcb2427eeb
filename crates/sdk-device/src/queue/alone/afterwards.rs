//! Signals of gates when the session is over: the process may run its exit handlers, where a runtime
//! takes its memory back while dispatches of ours still wait for their turns. Then the kernel copies
//! the words, and tells where nothing is mapped any more.

use crate::layout::Signal;

/// Offset of a signal's value.
const VALUE: u64 = 8;

/// There is no memory where the signal was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// A signal's value.
pub(super) fn value(signal: Signal) -> Result<i64, Gone> {
    let mut value = 0_i64;
    copy(libc::SYS_process_vm_readv, (&raw mut value).addr(), signal)?;
    Ok(value)
}

/// Sets a signal's value. Nobody but the device waits for it.
pub(super) fn set_value(signal: Signal, value: i64) -> Result<(), Gone> {
    copy(
        libc::SYS_process_vm_writev,
        (&raw const value).addr(),
        signal,
    )
}

/// Copies between `own`, eight bytes of the caller's, and the signal's value.
fn copy(call: libc::c_long, own: usize, signal: Signal) -> Result<(), Gone> {
    let bytes = |at: usize| libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(at),
        iov_len: size_of::<i64>(),
    };
    let (here, there) = (bytes(own), bytes((signal.0 + VALUE) as usize));
    // SAFETY: `own` is eight bytes of the caller's; the other side is only touched by the kernel, which
    // checks that it is mapped. What is mapped there instead is memory of this process that was a
    // signal's: the runtime's, in the moments before it is gone.
    let copied = unsafe {
        libc::syscall(
            call,
            libc::getpid(),
            &raw const here,
            1_usize,
            &raw const there,
            1_usize,
            0_usize,
        )
    };
    if copied == size_of::<i64>() as libc::c_long {
        Ok(())
    } else {
        Err(Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_is_mapped_is_read_and_set_and_one_that_is_not_is_gone() {
        let words = [0_i64, -3, 0];
        let at = words.as_ptr().expose_provenance() as u64;
        assert_eq!(value(Signal(at)), Ok(-3));
        assert_eq!(set_value(Signal(at), 5), Ok(()));
        assert_eq!(value(Signal(at)), Ok(5));
        assert_eq!(value(Signal(0x10)), Err(Gone));
        assert_eq!(set_value(Signal(0x10), 1), Err(Gone));
    }
}
